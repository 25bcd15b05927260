"""Reductions on a GPU: accuracy of large calls, overlapping calls give the same bits, and the memory that a call allocates."""

from __future__ import annotations

import functools
import math

import pytest
import torch

import torch_ops

from ...cases.reduce import CASES
from ...support.compare import different_from_reference
from ...support.overlap import Calls
from ...support.runtime import allocated, peak

pytestmark = pytest.mark.gpu
CASE = {case.name: case for case in CASES}


# ---------------------------------------------------------------- accuracy


def _ill_conditioned(n: int, **like) -> torch.Tensor:
    """Values over six orders of magnitude that cancel in distant pairs, except a few ones."""
    x = torch.randn(n, **like) * torch.exp2(20 * torch.rand(n, **like) - 10)
    x[n // 2 :] = -x[: n - n // 2].flip(0)
    x[::1009] += 1
    return x


DATA = {"uniform": torch.rand, "normal": torch.randn, "ill-conditioned": _ill_conditioned}
each_data = pytest.mark.parametrize("data", DATA)
each_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def _exact_sum(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([part.double().sum() for part in x.split(2**26)]).sum()


def _check_full_sums(data: str, dtype: torch.dtype, n: int, seeds: int):
    """Compares the mean error over many seeds with ATen's, because the error of one sum may be zero by chance.

    bfloat16 values are summed to a float32 result, which shows the error of the additions. The bfloat16 result must be within the
    bound.
    """
    ours, theirs, ulps = [], [], []
    generator = torch.Generator("cuda")
    for seed in range(seeds):
        generator.manual_seed(seed)
        x = DATA[data](n, generator=generator, device="cuda", dtype=torch.float32).to(dtype)
        exact = _exact_sum(x)
        got = torch_ops.reduce_sum(x, dtype=torch.float32)
        ours.append(float((got - exact).abs()))
        theirs.append(float((torch.sum(x, dtype=torch.float32) - exact).abs()))
        ulps.append(float(exact.abs()) * torch.finfo(torch.float32).eps)
        if seed < 3:
            size = torch.stack([part.double().abs().sum() for part in x.split(2**26)]).sum()
            bound = (math.log2(n) + 8) * torch.finfo(torch.float32).eps * size
            for result in (got, torch_ops.reduce_sum(x), torch_ops.reduce_sum(x.view(-1, 2**13))):
                assert different_from_reference(result, exact, bound) is None
            mean = torch_ops.reduce_mean(x)
            assert different_from_reference(mean, exact / n, bound / n) is None
    assert sum(ours) <= 1.5 * sum(theirs) + sum(ulps), f"summed error {sum(ours)}, ATen's is {sum(theirs)}"


@each_data
@each_dtype
def test_accuracy_of_full_sums(data, dtype):
    _check_full_sums(data, dtype, 2**26, seeds=64)


@pytest.mark.large
@pytest.mark.gib(28)
@each_data
@each_dtype
def test_accuracy_of_full_sums_of_2_to_30(data, dtype):
    _check_full_sums(data, dtype, 2**30, seeds=24)


@each_data
@each_dtype
@pytest.mark.parametrize("shape", [(2**13, 2**13), (64, 2**20), (2**20, 64), (2**16, 2**10), (2**10, 2**16)], ids=str)
@pytest.mark.parametrize("dim", [0, 1], ids=["columns", "rows"])
def test_accuracy_of_rows_and_columns(data, dtype, shape, dim):
    generator = torch.Generator("cuda").manual_seed(1)
    x = DATA[data](math.prod(shape), generator=generator, device="cuda", dtype=torch.float32).to(dtype).view(shape)
    exact = x.double().sum(dim)
    got, want = (op(x, dim, dtype=torch.float32) for op in (torch_ops.reduce_sum, torch.sum))
    bound = CASE["reduce_sum"].bound("cuda", torch.float32, exact, x, dim)
    assert different_from_reference(got, exact, bound) is None
    ours, theirs = (float((t - exact).abs().mean()) for t in (got, want))
    ulp = float(exact.abs().mean()) * torch.finfo(torch.float32).eps
    assert ours <= 1.5 * theirs + ulp, f"mean error {ours}, ATen's is {theirs}"
    count = shape[dim]
    assert different_from_reference(torch_ops.reduce_mean(x, dim), exact / count, bound / count) is None


# ---------------------------------------------------------------- calls for ../test_overlap.py


@functools.cache
def overlapping() -> Calls:
    """Reductions of every kind as functions without arguments: by one block and by many, over rows, columns and middle
    dimensions."""
    generator = torch.Generator("cuda").manual_seed(3)

    def make(*shape, dtype=torch.float32):
        return torch.randn(shape, generator=generator, device="cuda").to(dtype)

    channels = make(8, 64, 56, 56).contiguous(memory_format=torch.channels_last)
    calls = {}
    for name, x, dim in (
        ("full 2^22", make(2**22), None),
        ("full 2^18+13", make(2**18 + 13), None),
        ("full 2^14", make(2**14), None),
        ("full bf16", make(2**21 + 5, dtype=torch.bfloat16), None),
        ("full f64", make(2**20, dtype=torch.float64), None),
        ("rows (3, 1000003)", make(3, 1_000_003), 1),
        ("rows (4099, 513)", make(4099, 513), 1),
        ("rows (70001, 5)", make(70_001, 5), 1),
        ("columns (1000003, 3)", make(1_000_003, 3), 0),
        ("columns (513, 4099)", make(513, 4099), 0),
        ("columns bf16 (100003, 64)", make(100_003, 64, dtype=torch.bfloat16), 0),
        ("NCHW", make(8, 64, 56, 56), (0, 2, 3)),
        ("channels_last", channels, (0, 2, 3)),
        ("channels_last, pooled", channels, (2, 3)),
        ("middle", make(64, 1000, 33), 1),
        ("transposed", make(2000, 3000).mT, 0),
        ("step 2", make(2**20)[::2], None),
    ):
        for op in (torch_ops.reduce_sum, torch_ops.reduce_mean, torch_ops.reduce_max):
            calls[f"{op.__name__}, {name}"] = functools.partial(op, x, dim)
    for name, x in (("full int8", make(2**21).mul(50).to(torch.int8)), ("full int64", make(2**20).mul(2**60).long())):
        calls[f"reduce_sum, {name}"] = functools.partial(torch_ops.reduce_sum, x)
    return Calls(calls)


# ---------------------------------------------------------------- memory


def _inputs() -> dict:
    """Inputs of 64 MiB or more that a kernel for dense rows of one dtype would copy first."""

    def make(*shape, dtype=torch.float32):
        return torch.ones(shape, dtype=dtype, device="cuda")

    channels = torch.channels_last
    return {
        "contiguous": (lambda: make(2**12, 2**12), {}),
        "channels_last": (lambda: make(16, 64, 128, 128).contiguous(memory_format=channels), {}),
        "channels_last_3d": (lambda: make(4, 64, 16, 64, 64).contiguous(memory_format=torch.channels_last_3d), {}),
        "transposed": (lambda: make(2**11, 2**13).mT, {}),
        "permuted": (lambda: make(32, 64, 64, 128).permute(2, 0, 3, 1), {}),
        "expanded first": (lambda: make(1, 2**13).expand(2**12, 2**13), {}),
        "expanded last": (lambda: make(2**13, 1).expand(2**13, 2**12), {}),
        "step 2": (lambda: make(2**12, 2**13)[:, ::2], {}),
        "rows with gaps": (lambda: make(2**12, 2**12 + 8)[:, :-8], {}),
        "misaligned": (lambda: make(2**24 + 1)[1:].view(2**12, 2**12), {}),
        "float32 to float64": (lambda: make(2**12, 2**12), {"dtype": torch.float64}),
        "float32 to bfloat16": (lambda: make(2**12, 2**12).mT, {"dtype": torch.bfloat16}),
        "bfloat16 to float32": (lambda: make(2**13, 2**12, dtype=torch.bfloat16), {"dtype": torch.float32}),
        "int32 to float32": (lambda: make(2**12, 2**12, dtype=torch.int32), {"dtype": torch.float32}),
        "int8": (lambda: make(2**13, 2**13, dtype=torch.int8), {"dtype": torch.int64}),
        "bool": (lambda: make(2**13, 2**13, dtype=torch.bool), {"dtype": torch.int64}),
    }


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("what", _inputs())
def test_never_copies_its_input(case, what):
    build, kwargs = _inputs()[what]
    x = build()
    if case.name in ("reduce_max", "reduce_min"):
        kwargs = {}
    elif case.name == "reduce_mean" and kwargs.get("dtype") == torch.int64:
        kwargs = {"dtype": torch.float32}
    dims = [None, 0, 1, -1]
    if x.dim() > 2:
        dims += [tuple(range(0, x.dim(), 2)), (0, *range(2, x.dim())), tuple(range(2, x.dim()))]
    for dim in dims:
        result, _, most = allocated(lambda d=dim, k=kwargs: case.op(x, d, **k))
        beside, size = most - result.nbytes, x.nbytes  # nbytes counts every element, even if elements share an address
        assert beside <= size // 16, f"dim={dim}: {beside} bytes beside the result, the input has {size}"
        out = torch.empty_like(result)
        assert peak(lambda d=dim, k=kwargs, out=out: case.op(x, d, **k, out=out)) <= size // 16, f"dim={dim}, out"


def test_backward_of_a_sum_takes_no_memory():
    """The backward of a sum expands the incoming gradient and allocates nothing."""
    for op in (torch_ops.reduce_sum, torch_ops.reduce_mean):
        x = torch.ones(2**12, 2**12, device="cuda", requires_grad=True)
        for dim in (None, 0, 1):
            result = op(x, dim)
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            (grad,) = torch.autograd.grad(result, x, torch.ones_like(result))
            assert grad.shape == x.shape
            assert torch.cuda.max_memory_allocated() - before <= x.nbytes // 16


# ---------------------------------------------------------------- two steps


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
@pytest.mark.parametrize(
    "sizes, dims",
    [
        ((16, 5, 257, 129), (0, 2)),
        ((64, 45, 45, 16, 4), (1, 2, 4)),
        ((80, 60, 40, 13), (0, 1, 3)),
        ((256, 300, 7, 7), (0, 2, 3)),
    ],
)
def test_reduced_and_kept_dimensions_alternate(sizes, dims, dtype):
    """From 4 MiB on, one group of dimensions is reduced before the others, in the dtype of sums. Memory may be permuted."""
    generator = torch.Generator("cuda").manual_seed(0)
    x = torch.randn(*sizes, generator=generator, device="cuda").mul(50).to(dtype)
    assert x.nbytes >= 4 << 20
    for values in (x, x.transpose(0, -1).contiguous().transpose(0, -1)):
        for keepdim in (False, True):
            wide = values.double() if dtype.is_floating_point else values.long()
            sums = torch_ops.reduce_sum(values, dims, keepdim)
            size, exact = wide.abs().sum(dims, keepdim).double(), wide.sum(dims, keepdim)
            rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 0
            bound = 64 * torch.finfo(torch.float32).eps * size + rounding * exact.abs() if rounding else 0 * size
            assert sums.shape == exact.shape and bool(((sums.double() - exact.double()).abs() <= bound).all())
            if rounding:
                means = torch_ops.reduce_mean(values, dims, keepdim)
                count = values.numel() / means.numel()
                assert bool(((means.double() - exact / count).abs() <= bound / count).all())
            assert torch.equal(torch_ops.reduce_max(values, dims, keepdim), values.amax(dims, keepdim))
            out = torch.empty([*sums.shape, 2], dtype=sums.dtype, device="cuda")[..., 0]
            torch.ops.gpuopt.reduce_sum.out(values, dims, keepdim, out=out)
            assert bool(((out.double() - exact.double()).abs() <= bound).all())
