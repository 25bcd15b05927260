"""Shared by the tests of dot products' planner and kernels: problems, as dot_problem.h has them, and plans."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

LINE, ROWS, SHORT_ROWS, TILE, VALUES = "line", "rows", "short_rows", "tile", "values"


class Given(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in (
            "self self_stride self_row_stride self_conjugate tensor tensor_stride tensor_row_stride tensor_conjugate out dtype rows size "
            "atomic"
        ).split()
    ]


class Plan(SimpleNamespace):
    """One launch of a plan, from its JSON. On path "line", all threads and blocks share one row."""

    def __init__(self, fields: dict):
        launch = fields["launch"]
        line = {"rows": 1, "x": 1, "y": launch["threads"], "rows_per_lane": 1, "splits": launch["blocks"], "unroll": 1}
        super().__init__(**{"shifted": False, "rows_first": False} | line | launch | fields)
        self.tiles = self.blocks // self.splits
