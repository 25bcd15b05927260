"""The steps of ladders on more than 2^31 elements. Nearly all are zeros, so a value in a wrong position shows."""

from __future__ import annotations

import pytest
import torch

from torch_ops import ladder

from ..ladder_cases.matmul import FLOATS
from ..support.large import PAST, PLACES, check

pytestmark = [pytest.mark.gpu, pytest.mark.large]
gib = pytest.mark.gib

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


def every_step(op: str, *skipped: str):
    names = [step.name for step in ladder.steps(op) if step.name not in skipped]
    return pytest.mark.parametrize("step", names)


def spikes(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Zeros, except 1 at the first position, 2 and 3 on either side of 2^31, and 4 at the last position."""
    x = torch.zeros(*shape, dtype=dtype, device="cuda")
    for k, position in enumerate((*PLACES[:-1], x.numel() - 1)):
        x.view(-1)[position] = k + 1
    return x


@gib(10)
@every_step("reduce_sum")
def test_reductions(step):
    x = spikes(F32, PAST)
    assert ladder.run("reduce_sum", step, x) == 10 and ladder.run("reduce_max", step, x) == 4


@gib(24)
@every_step("cumsum")
def test_scans(step):
    x = spikes(F32, PAST)
    out = ladder.run("cumsum", step, x)
    check(out, lambda i: 1 + 2 * (i >= PLACES[1]) + 3 * (i >= PLACES[2]) + 4 * (i >= PLACES[3]))


@gib(28)
@every_step("mul")
def test_products(step):
    dtype = F16 if step.startswith("half") else F32
    x = spikes(dtype, PAST)
    out = ladder.run("mul", step, x, x)
    assert [out[position].item() for position in PLACES] == [1, 4, 9, 16]
    assert torch.count_nonzero(out) == 4


@gib(10)
@every_step(
    "dot", "half_atomic", "block_then_half_atomic", "half2_atomic", "fast_atomic"
)  # these steps take minutes of atomic operations
def test_dot(step):
    x = spikes(F16, PAST)
    assert ladder.run("dot", step, x, x) == 30


@gib(19)
@every_step("conv1d")
def test_one_long_row(step):
    x = spikes(F32, 1, 1, PAST)
    weight = torch.tensor([1.0, 10, 100], device="cuda").view(1, 1, 3)
    out = ladder.run("conv1d", step, x, weight).view(-1)
    assert out[:3].tolist() == [10, 1, 0] and out[-3:].tolist() == [0, 400, 40]
    # The values 2 and 3 are neighbours.
    assert out[2**31 - 3 : 2**31 + 3].tolist() == [0, 200, 320, 32, 3, 0]
    assert torch.count_nonzero(out) == 8


@gib(19)
@every_step("conv1d")
def test_many_short_rows(step):
    x = spikes(F32, PAST // 3, 1, 3)
    weight = torch.tensor([1.0, 10, 100], device="cuda").view(1, 1, 3)
    out = ladder.run("conv1d", step, x, weight)
    assert out[0].tolist() == [[10, 1, 0]] and out[-1].tolist() == [[0, 400, 40]]
    assert out.sum(dtype=torch.float64) < 2 * 111 * 10


@gib(19)
@every_step("transpose2d")
@pytest.mark.parametrize("shape", [(2**16, 2**15 + 4), (2**15 + 4, 2**16), (4, 2**29 + 4), (2**29 + 4, 4)], ids=str)
def test_transposition(step, shape):
    x = spikes(F32, *shape)
    out = ladder.run("transpose2d", step, x)
    for k, position in enumerate((*PLACES[:-1], x.numel() - 1)):
        assert out[position % shape[1], position // shape[1]] == k + 1
    assert torch.count_nonzero(out) == 4


@gib(12)
@every_step("spmm")
def test_sparse_products(step):
    """The matrix that reverses rows, and dense rows and results of more than 2^31 values."""
    rows = PAST // 64 + 1
    x = spikes(BF16, rows, 64)
    ptr = torch.arange(rows + 1, dtype=torch.int32, device="cuda")
    out = ladder.run("spmm", step, ptr, ptr[:-1].flip(0), None, x)
    for k, position in enumerate((*PLACES[:-1], x.numel() - 1)):
        assert out[rows - 1 - position // 64, position % 64] == k + 1
    assert torch.count_nonzero(out) == 4


@gib(19)
@every_step("matmul")
@pytest.mark.parametrize("tall", [True, False])
def test_matrix_products(step, tall):
    """The matrix that reverses columns or rows, and an operand and a result of more than 2^31 elements."""
    dtype = F32 if step in FLOATS else BF16
    shape = (PAST // 64 + 1, 64) if tall else (64, (PAST // 512 + 1) * 8)
    x, reverse = spikes(dtype, *shape), torch.eye(64, dtype=dtype, device="cuda").flip(0)
    out = ladder.run("matmul", step, *((x, reverse) if tall else (reverse, x)))
    for k, position in enumerate((*PLACES[:-1], x.numel() - 1)):
        i, j = divmod(position, shape[1])
        assert out[(i, 63 - j) if tall else (63 - i, j)] == k + 1
    assert torch.count_nonzero(out) == 4


@gib(12)
@every_step("layer_norm")
def test_norms(step):
    x, ones = spikes(BF16, PAST // 64 + 1, 64), torch.ones(64, dtype=BF16, device="cuda")
    out = ladder.run("layer_norm", step, x, ones, 0 * ones)
    rows = sorted({position // 64 for position in (*PLACES[:-1], x.numel() - 1)})
    torch.testing.assert_close(out[rows], torch.nn.functional.layer_norm(x[rows], (64,)))
    assert torch.count_nonzero(out) == 64 * len(rows)


@gib(16)
@every_step("layer_norm_backward")
def test_gradients_of_norms(step):
    """Rows of zeros add nothing, and the others what they add alone."""
    x, ones = spikes(BF16, PAST // 64 + 1, 64), torch.ones(64, dtype=BF16, device="cuda")
    mean = torch.zeros(len(x), 1, device="cuda")
    found = ladder.run("layer_norm_backward", step, x, x, mean, mean + 1, ones)
    rows = sorted({position // 64 for position in (*PLACES[:-1], x.numel() - 1)})
    alone = torch.ops.gpuopt._layer_norm_backward(
        x[rows], x[rows], mean[rows], mean[rows] + 1, ones, 1, 1e-5, [True] * 3
    )
    torch.testing.assert_close((found[0][rows], *found[1:]), alone)
    assert torch.count_nonzero(found[0]) == torch.count_nonzero(alone[0])


@gib(8)
@every_step("upsample_nearest2d")
def test_upsampling(step):
    x = torch.zeros(1, 520, 1024, 1024, dtype=F16, device="cuda")
    x[0, 0, 0, 0] = 1
    x[0, -1, -1, -1] = 2
    x[0, 511, 1023, 1023] = 3  # the input of the last of the first 2^31 outputs
    out = ladder.run("upsample_nearest2d", step, x, [2048, 2048])
    assert torch.count_nonzero(out) == 12
    assert out[0, 0, :2, :2].eq(1).all() and out[0, -1, -2:, -2:].eq(2).all() and out[0, 511, -2:, -2:].eq(3).all()


@gib(14)
@every_step("upsample_nearest2d_backward")
def test_upsampling_backward(step):
    grad = torch.zeros(1, 520, 2048, 2048, device="cuda")
    grad[0, 0, :2, :2] = 1
    grad[0, -1, -1, -1] = 2
    grad[0, 511, -2:, -2:] = 3
    out = ladder.run("upsample_nearest2d_backward", step, grad, [2048, 2048], [1, 520, 1024, 1024])
    assert torch.count_nonzero(out) == 3
    assert (out[0, 0, 0, 0], out[0, -1, -1, -1], out[0, 511, -1, -1]) == (4, 2, 12)


@gib(12)
@every_step("index_add_")
def test_index_add(step):
    """self, then source, with more than 2^31 values."""
    dtype = F32 if step == "atomic_per_element" else F16
    width, rows = 4096 if dtype == F16 else 2048, (2**31 // (4096 if dtype == F16 else 2048)) + 64
    self = torch.zeros(rows, width, dtype=dtype, device="cuda")
    source = torch.ones(1, width, dtype=dtype, device="cuda").expand(64, width).contiguous()
    index = torch.arange(rows - 64, rows, device="cuda")
    assert ladder.run("index_add_", step, self, index, source) is self
    assert torch.count_nonzero(self) == 64 * width and self[-64:].eq(1).all()
    self = self[:8].zero_()
    source = torch.zeros(rows, width, dtype=dtype, device="cuda")
    source[-1] = 1
    index = torch.zeros(rows, dtype=torch.int64, device="cuda")
    index[-1] = 7
    ladder.run("index_add_", step, self, index, source)
    assert torch.count_nonzero(self) == width and self[7].eq(1).all()
