"""How attention over a sparse matrix is planned: which heads the kernels read, the heads of a group, and the memory of long rows."""

from __future__ import annotations

import ctypes

import pytest

from tools import test_build

from .test_spmm_plan import F16, F32, F64, GRID, SIZE, Given, check_launch, given, read

VECTOR = 0


@pytest.fixture(scope="module")
def planner():
    library = test_build.load("plan/spmm")
    library.vectors.argtypes, library.vectors.restype = [ctypes.c_int64] * 3, ctypes.c_bool
    library.attention.argtypes = [ctypes.POINTER(Given), ctypes.c_int64, ctypes.c_bool]
    library.attention.restype = ctypes.c_char_p
    return library


@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_heads_of_vectors(planner, dtype):
    """A head is made of 1 to 32 whole vectors. The additive form has no features of keys."""
    vector = 16 // SIZE[dtype]
    for features, key in ((vector, 0), (vector, vector), (32 * vector, vector), (3 * vector, 32 * vector)):
        assert planner.vectors(key, features, dtype)
    for features, key in ((0, 0), (vector - 1, 0), (33 * vector, 0), (vector, 33 * vector), (vector, vector + 1)):
        assert not planner.vectors(key, features, dtype)


@pytest.mark.parametrize("dtype", [F16, F32, F64])
@pytest.mark.parametrize("heads", [1, 2, 3, 8, 33])
def test_groups_have_whole_heads(planner, heads, dtype):
    vector = 16 // SIZE[dtype]
    for value, key in ((1, 0), (2, 2), (3, 5), (32, 1), (1, 32)):
        problem = given(dtype=dtype, heads=heads, features=heads * value * vector)
        key_features = heads * key * vector
        forward, backward = (read(planner.attention(problem, key_features, g)) for g in (False, True))
        lanes, together = forward.head_lanes, forward.tile_heads
        assert max(value, key) <= lanes < 2 * max(value, key) and forward.lanes == lanes * together <= 32
        assert together < 2 * heads and (forward.tiles - 1) * together < heads <= forward.tiles * together
        for plan in (forward, backward):
            plan.access = VECTOR
            check_launch(problem, plan, plan.lanes * vector, dtype, plan.tiles)
        wide = max(SIZE[dtype], 4)
        blocks = 0 if forward.blocks_per_tile == 1 else forward.blocks_per_tile
        assert forward.part_bytes == 2 * blocks * problem.features * 4 * wide
        assert backward.sums.part_bytes == 2 * blocks * (key_features or heads) * wide
        if blocks:
            assert (forward.finish_tiles - 1) * 128 < problem.features <= forward.finish_tiles * 128
            assert forward.finish.blocks == forward.finish_blocks * forward.finish_tiles


def test_grids_of_many_heads(planner):
    heads = 2**20
    plan = read(planner.attention(given(10**6, 8 * 10**6, heads * 4, heads=heads), 0, False))
    assert plan.shape.blocks <= GRID
