"""Segments of more than 2^31 values, and more than 2^31 segments. A closed form gives the result."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.large import PAST, check, filled, ramp

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib
each_width = pytest.mark.parametrize("features", [1, 1031])
BF16, I64 = torch.bfloat16, torch.int64


def _x(i):
    """Small integers: sums of three are exact in bfloat16."""
    return i % 13


def _segments_of_three(features: int) -> tuple[int, torch.Tensor]:
    """The number of segments, and their offsets."""
    segments = PAST // (3 * features) + 1
    return segments, filled(segments + 1, lambda s: 3 * s, I64)


@gib(16)
@pytest.mark.parametrize("reduce", ["sum", "amax"])
@each_width
def test_reductions(features, reduce):
    segments, offsets = _segments_of_three(features)
    data = filled(3 * segments * features, _x, BF16).view(-1, features)
    got = torch_ops.segment_reduce(data, offsets, reduce)

    def expected(i):
        first = i // features * 3 * features + i % features
        three = torch.stack([_x(first + k * features) for k in range(3)])
        return three.sum(0) if reduce == "sum" else three.amax(0)

    assert got.shape == (segments, features)
    check(got.view(-1), expected)


@gib(14)
@each_width
def test_copies_to_entries(features):
    """The last entry is in no segment."""
    segments, offsets = _segments_of_three(features)
    rows = filled(segments * features, ramp).view(-1, features)
    got = torch_ops.segment_expand(rows, offsets, 3 * segments + 1)

    def expected(i):
        entry = i // features
        return (entry < 3 * segments) * ramp(entry // 3 * features + i % features)

    check(got.view(-1), expected)


@gib(28)
def test_many_segments():
    """More than 2^31 segments. Every other one is empty."""
    offsets = filled(PAST + 1, lambda s: s // 2, I64)
    got = torch_ops.segment_reduce(filled(PAST // 2, _x, BF16), offsets)
    check(got, lambda s: s % 2 * _x(s // 2))
