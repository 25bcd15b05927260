"""The orders of calls on streams that overlap.py makes. If all orders were equal, tests of overlapping calls would still pass."""

from __future__ import annotations

import itertools
from collections import Counter

from ..support.overlap import half_alike


def test_half_of_the_orders_are_alike():
    names = [str(k) for k in range(45)]
    orders = half_alike(names, streams=8, times=2)
    assert len(orders) == 8
    for order in orders:
        assert Counter(order) == dict.fromkeys(names, 2)
    for (i, one), (j, other) in itertools.combinations(enumerate(orders), 2):
        alike = sum(a == b for a, b in zip(one, other))
        assert alike == (0 if i % 2 or j % 2 else 90)
