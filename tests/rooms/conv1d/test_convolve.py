"""convolve, beyond the contract of every operator: numpy's results for every mode and dtype, and accuracy, blocks and derivatives
of convolutions by Fourier transforms."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import gradcheck, gradgradcheck

import torch_ops

from ...cases import tensors
from ...cases.conv1d import convolve_reference
from ...cases.samples.conv1d_samples import MODES
from ...support.compare import Failures, close, different_bits, raised_by
from ...support.params import each_device
from ...support.recorder import Recorder

numpy = pytest.importorskip("numpy")
each_mode = pytest.mark.parametrize("mode", MODES)


def _numpy(a: torch.Tensor, v: torch.Tensor, mode: str) -> torch.Tensor:
    return torch.from_numpy(numpy.convolve(a.cpu().numpy(), v.cpu().numpy(), mode)).to(a.device)


@each_device
@each_mode
def test_every_pair_of_small_sizes(mode, device):
    """Integer values, whose sums are exact, give numpy's values and sizes. numpy swaps the operands if the second is longer."""
    make = tensors.Maker(device, torch.int64, small=True)
    for m, n in itertools.product(range(1, 10), repeat=2):
        a, v = make(m).double(), make(n).double()
        assert different_bits(torch_ops.convolve(a, v, mode) + 0, _numpy(a, v, mode) + 0) is None, f"{m}, {n}"
        assert torch.equal(torch_ops.convolve(v, a, mode), torch_ops.convolve(a, v, mode)), f"{n}, {m}"
        rows = torch.stack([a, a + 1, -a]).view(1, 3, m)
        for row, got in zip(rows[0], torch_ops.convolve(rows, v, mode)[0], strict=True):
            assert torch.equal(got, _numpy(row, v, mode)), f"{m} in rows, {n}"


@each_device
@pytest.mark.parametrize("dtype", [*tensors.INTEGERS, torch.bool, torch.float32, torch.complex128], ids=str)
def test_numpys_values(dtype, device):
    """Integers wrap around in their own dtype. Bools are combined by "and" and "or"."""
    make = tensors.Maker(device, dtype)
    for (m, n), mode in itertools.product(((1, 1), (7, 3), (3, 7), (60, 31), (33, 600)), MODES):
        a, v = make(m), make(n)
        want, got = _numpy(a, v, mode), torch_ops.convolve(a, v, mode)
        problem = (
            different_bits(got, want)
            if not got.is_floating_point() and not got.is_complex()
            else close(got, want, ulps=32)
        )
        assert problem is None, f"{m}, {n}, {mode}: {problem}"


@each_device
def test_mixed_dtypes(device):
    """The result has the dtype of torch.result_type, and its values equal a call with operands of that dtype."""
    dtypes = (
        torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64, torch.complex64,
    )  # fmt: skip
    for first, second in itertools.product(dtypes, repeat=2):
        a, v = (tensors.Maker(device, torch.int64, seed, small=True)(n).abs() for seed, n in ((1, 9), (2, 4)))
        a, v = a.to(first), v.to(second)
        both = torch.result_type(a, v)
        got = torch_ops.convolve(a, v)
        assert got.dtype == both and different_bits(got, torch_ops.convolve(a.to(both), v.to(both))) is None


@each_device
@each_mode
def test_forms(mode, device):
    a, v = torch.arange(5.0, device=device), torch.arange(3.0, device=device) - 1
    want = _numpy(a, v, mode)
    for got in (
        torch_ops.convolve(a, v, mode),
        torch_ops.convolve(a=a, v=v, mode=mode),
        torch.ops.gpuopt.convolve(a, v, mode),
    ):
        assert torch.equal(got, want)


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=str)
def test_no_rows(dtype, device):
    """Without rows, the result is contiguous and part of the autograd graph."""
    a, v = torch.ones(2, 0, 7, dtype=dtype, device=device), torch.ones(3, dtype=dtype, device=device)
    for mode, size in zip(MODES, (9, 7, 5), strict=True):
        got = torch_ops.convolve(a, v, mode)
        assert got.shape == (2, 0, size) and got.dtype == dtype and got.stride() == torch.empty(got.shape).stride()
    if dtype.is_floating_point:
        grads = torch.autograd.grad(torch_ops.convolve(a.requires_grad_(), v.requires_grad_()).sum(), (a, v))
        assert grads[0].shape == a.shape and torch.equal(grads[1], torch.zeros_like(v))


# ---------------------------------------------------------------- Fourier transforms

# Lengths below and above the limit for Fourier transforms, for one block and many blocks, and with more taps than values.
TRANSFORMED = (
    (2000, 511), (2000, 512), (2000, 513), (700, 700), (513, 5000), (20_000, 600), (9001, 1025), (40_000, 3001),
)  # fmt: skip


@each_device
@pytest.mark.parametrize("dtype", [*tensors.FLOATS, torch.complex64, torch.complex128], ids=str)
def test_accuracy_of_transforms(dtype, device):
    """The error, relative to the norms of the operands, is a few roundings of the compute dtype and one of the result's dtype."""
    failures, make = Failures(), tensors.Maker(device, dtype)
    for (m, n), mode in itertools.product(TRANSFORMED, MODES):
        if m * n > (2e8 if device == "cuda" and dtype.itemsize == 4 else 2e6):
            continue
        with failures.sample(f"{m}, {n}, {mode}"):
            a, v = make(2, m) / 8, make(n) / 8
            exact, got = convolve_reference(a, v, mode), torch_ops.convolve(a, v, mode)
            assert got.dtype == dtype and got.shape == exact.shape
            info = torch.finfo(torch.float32 if dtype.itemsize == 2 else dtype)
            norms = math.prod(float(t.abs().double().norm(dim=-1).max()) for t in (a, v))
            allowed = 8 * info.eps * norms + torch.finfo(dtype).eps * exact.abs()
            worst = ((got.to(exact.dtype) - exact).abs() - allowed).max()
            assert worst <= 0, f"an error is {float(worst)} beyond its bound"
    failures.check(at_least=12)


@each_device
def test_blocks_meet_without_a_seam(device):
    """Every value of every block is right. Inputs are integers, so rounding the result gives exact sums.

    The numbers of taps are around powers of two, and signals end before, at and after the end of a block.
    """
    make = tensors.Maker(device, torch.int64, small=True)
    for taps in (512, 513, 600, 1023, 1024, 1025):
        v = make(taps).double()
        block = 1 << (8 * taps - 1).bit_length()
        # With block - taps + 1 values, one block holds the full result. With block values, it holds the valid one.
        for m in (taps, 4096, 7 * 512 + 1, block - taps + 1, block - taps + 2, block, block + 1):
            a = make(m).double()
            if m >= taps:
                for mode in MODES:
                    want = _numpy(a, v, mode)
                    assert torch.equal(torch_ops.convolve(a, v, mode).round(), want), f"{m}, {taps}, {mode}"


@pytest.mark.parametrize(
    "m, taps, mode, size",
    [
        (512, 512, "full", 1024),
        (512, 512, "same", 768),
        (512, 512, "valid", 512),
        (1000, 512, "full", 1512),
        (4000, 600, "valid", 4000),
        (4001, 600, "valid", 4032),  # 4001 is a prime number, 4002 is 6 * 667
        (600, 4000, "full", 4608),
        (100_000, 600, "full", 8192),  # blocks
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64], ids=str)
def test_sizes_of_transforms(m, taps, mode, size, dtype):
    """Rows that fit into one block are transformed once, with the smallest size that has fast transforms."""
    with FakeTensorMode(), Recorder() as recorder:
        torch_ops.convolve(torch.empty(3, m, dtype=dtype), torch.empty(taps, dtype=dtype), mode)
    transforms = ("aten::_fft_r2c", "aten::_fft_c2c")
    assert {args[0].shape[-1] for op, args in recorder.calls if op._schema.name in transforms} == {size}


@each_device
def test_non_finite_values_stay_in_their_block(device):
    """A direct convolution spreads a NaN to the results that depend on it. A transform may spread it to its block, but no
    further."""
    a = torch.ones(100_000, device=device)
    a[50_000] = math.nan
    for taps in (31, 511):
        reached = torch_ops.convolve(a, torch.ones(taps, device=device)).isnan().nonzero().flatten()
        assert reached.tolist() == list(range(50_000, 50_000 + taps))
    reached = torch_ops.convolve(a, torch.ones(600, device=device)).isnan()
    assert reached[50_000:50_600].all() and not reached[:30_000].any() and not reached[70_000:].any()


@each_device
@each_mode
def test_gradients_of_transforms(mode, device):
    """First and second derivatives of transforms equal the derivatives of torch.conv1d with flipped taps."""
    make = tensors.Maker(device, torch.float64)
    for m, n in ((900, 600), (600, 900)):
        a, v = make(2, m).requires_grad_(), make(n).requires_grad_()
        results = []
        for function in (torch_ops.convolve, convolve_reference):
            result = function(a, v, mode) if function is torch_ops.convolve else _differentiable(a, v, mode)
            first = torch.autograd.grad(result, (a, v), torch.ones_like(result).cumsum(-1) / 100, create_graph=True)
            second = torch.autograd.grad(first[0].square().sum() + first[1].square().sum(), (a, v))
            results.append([*first, *second])
        for ours, theirs in zip(*results, strict=True):
            assert close(ours, theirs, ulps=2**12) is None


def _differentiable(a: torch.Tensor, v: torch.Tensor, mode: str) -> torch.Tensor:
    m, n = a.shape[-1], v.shape[-1]
    full = torch.conv1d(a[:, None], v.flip(0)[None, None], padding=n - 1)[:, 0]
    size, taps = max(m, n), min(m, n)
    start, positions = {"full": (0, m + n - 1), "same": ((taps - 1) // 2, size), "valid": (taps - 1, size - taps + 1)}[
        mode
    ]
    return full.narrow(-1, start, positions)


@each_device
def test_derivatives_of_short_filters(device):
    make = tensors.Maker(device, torch.float64)
    for (m, n), mode in itertools.product(((4, 3), (2, 4)), MODES):
        a, v = make(2, m).requires_grad_(), make(n).requires_grad_()
        assert gradcheck(lambda a, v, mode=mode: torch_ops.convolve(a, v, mode), (a, v), check_forward_ad=True)
        assert gradgradcheck(lambda a, v, mode=mode: torch_ops.convolve(a, v, mode), (a, v))


@each_device
@each_mode
def test_rows_that_kernels_take_without_reversed_taps(mode, device):
    """Integer values in rows that are long enough, and derivatives in forward mode: convolve is linear in each operand."""
    make = tensors.Maker(device, torch.int64, small=True)
    for m, n in ((140, 1), (141, 2), (150, 8), (133, 9), (2000, 31), (1100, 300)):
        rows, v = make(3, m).double(), make(n).double()
        got = torch_ops.convolve(rows, v, mode)
        assert got.is_contiguous()
        for row, own in zip(rows, got, strict=True):
            assert torch.equal(own, _numpy(row, v, mode)), f"{m}, {n}"
        tangents = make(3, m).double(), make(n).double()
        got = torch.func.jvp(lambda a, v: torch_ops.convolve(a, v, mode), (rows, v), tangents)[1]
        want = torch_ops.convolve(tangents[0], v, mode) + torch_ops.convolve(rows, tangents[1], mode)
        assert torch.equal(got, want), f"{m}, {n}"


@pytest.mark.parametrize(
    "a, v, expected",
    [
        (((300,), {}), 7, "conv1d_backward"),
        (((2, 4, 300), {}), 8, "conv1d_backward"),
        (((7,), {}), 300, "conv1d_backward"),  # swapped
        (((2, 7), {}), 300, "conv1d_act"),  # several kernels
        (((100,), {}), 7, "conv1d_act"),  # short
        (((300,), {"dtype": torch.complex64}), 7, "conv1d_act"),
        (((300,), {"requires_grad": True}), 7, "conv1d_act"),
    ],
)
def test_operators_of_a_call_on_cuda(a, v, expected):
    """The called operators are recorded with fake tensors, so no GPU is needed."""
    with FakeTensorMode():
        operands = torch.empty(*a[0], device="cuda", **a[1]), torch.empty(v, device="cuda")
        with Recorder() as recorder:
            result = torch_ops.convolve(*operands)
        called = set(recorder.names)
        assert called & {"gpuopt::conv1d_backward", "gpuopt::conv1d_act"} == {f"gpuopt::{expected}"}
        assert ("aten::flip" in called) == (expected == "conv1d_act")
        assert result.shape == (*a[0][:-1], a[0][-1] + v - 1)
        with recorder:
            torch_ops.convolve(torch.empty(600, device="cuda")[::2], operands[1])
        assert "gpuopt::conv1d_act" in recorder.names  # rows are not contiguous


@each_device
def test_transforms_under_vmap_and_compile(device):
    a, v = torch.randn(3, 2000, device=device), torch.randn(3, 600, device=device)
    want = torch.stack([torch_ops.convolve(x, y, "same") for x, y in zip(a, v)])
    got = torch.vmap(lambda x, y: torch_ops.convolve(x, y, "same"))(a, v)
    assert close(got, want, ulps=16) is None
    compiled = torch.compile(torch_ops.convolve, fullgraph=True, backend="aot_eager")
    assert close(compiled(a, v[0]), torch_ops.convolve(a, v[0])) is None
    torch._dynamo.reset()


def test_refuses_what_numpy_refuses():
    """Calls for which numpy raises ValueError raise RuntimeError."""
    for a, v in ((torch.ones(0), torch.ones(3)), (torch.ones(3), torch.ones(0))):
        with pytest.raises(ValueError):
            numpy.convolve(a.numpy(), v.numpy())
        assert isinstance(raised_by(torch_ops.convolve, a, v), RuntimeError)
