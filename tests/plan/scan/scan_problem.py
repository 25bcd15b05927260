"""Problems of scans for the C entry points that tests call: the Python side of scan_problem.h."""

from __future__ import annotations

import ctypes

PACKED, ROWS, SPLIT_ROWS, COLUMNS, SPLIT_COLUMNS, ALONE = range(6)  # scan::Path


class Given(ctypes.Structure):
    _fields_ = [
        ("num_dims", ctypes.c_int64),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("sizes", "in_strides", "out_strides")),
        *((name, ctypes.c_int64) for name in ("scanned", "reverse", "exclusive")),
        *((name, ctypes.c_uint64) for name in ("source", "out")),
        *((name, ctypes.c_int64) for name in ("in_dtype", "dtype")),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("second_strides", "initial_strides")),
        *((name, ctypes.c_uint64) for name in ("second", "initial")),
    ]
