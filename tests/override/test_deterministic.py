"""Operators that PyTorch refuses on CUDA while torch.use_deterministic_algorithms is on, and torch_ops.override takes.

Without a GPU the kernels of the CPU are replaced.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import torch_ops
from torch_ops import _library

from ..support.overriding import counted, nothing_is_left, override  # noqa: F401
from ..support.params import on
from ..support.runtime import deterministic_algorithms
from .deterministic_cases import CASES, aten

pytestmark = [pytest.mark.torch_version, pytest.mark.filterwarnings("ignore")]
TAKEN = (*torch_ops.override.deterministic_operators, "_embedding_bag_dense_backward", "cumsum", "scatter_reduce")
PAGE = (Path(__file__).parents[2] / "docs/deterministic.md").read_text()


# Operators that are deterministic in newer versions of PyTorch, which computes them.
NEWER = {"cumsum", "max_pool3d_with_indices_backward"} if _library.torch_version() >= (2, 15) else set()


# Named in the documentation of PyTorch 2.11, or not deterministic before it, but its kernels do not raise (an H200, CUDA 13.0).
SILENT = {"cumsum", "reflection_pad2d_backward", "adaptive_max_pool3d_backward"}


def each_case(*dtypes, devices=("cpu", "cuda")):
    params = []
    for k, case in enumerate(CASES):
        for device in devices:
            for dtype in dtypes:
                if dtype in case.dtypes:
                    params.append(on(device, case, device, dtype, name=f"{case.op}-{k}-{device}-{str(dtype)[6:]}"))
    return pytest.mark.parametrize(("case", "device", "dtype"), params)


def error_of(out, exact):
    """The largest error of a finite value, relative to the largest finite value. Others must be equal."""
    out = out.double()
    finite = exact.isfinite()
    assert torch.equal(out.isfinite(), finite)
    if not finite.any():
        return 0.0
    return ((out - exact)[finite].abs().amax() / exact[finite].abs().amax().clamp(min=1e-3)).item()


@each_case(torch.float32, torch.bfloat16, torch.float64)
def test_results(case, device, dtype):
    """Two runs have the same bits, PyTorch's metadata, and errors that are not above those without the mode."""
    if case.op in NEWER:
        pytest.skip("PyTorch has a deterministic kernel")
    leaves = case.leaves(device, dtype)
    exact = case.outputs([t.detach().double().requires_grad_() for t in leaves])
    try:
        plain = case.outputs(leaves)
    except NotImplementedError as error:
        pytest.skip(f"PyTorch's kernel: {error}")
    with counted() as calls, override(device), deterministic_algorithms():
        first, second = case.outputs(leaves), case.outputs(leaves)
    assert calls[case.op].get("taken", 0) >= 2, calls
    assert len(first) == len(plain) == len(exact)
    for mine, again, theirs, reference in zip(first, second, plain, exact, strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        assert torch.equal(mine.nan_to_num(77.0), again.nan_to_num(77.0))
        limit = max(16 * torch.finfo(mine.dtype).eps, 4 * error_of(theirs, reference.double()))
        assert error_of(mine, reference.double()) <= limit


@each_case(torch.float32)
def test_nothing_is_taken_without_the_mode(case, device, dtype):
    leaves = case.leaves(device, dtype)
    with counted() as calls, override(device, case.op):
        case.outputs(leaves)
    if case.op in torch_ops.override.deterministic_operators:
        assert "taken" not in calls[case.op], calls


@each_case(torch.float32, devices=("cuda",))
def test_pytorch_raises(case, device, dtype):
    """What the table says of torch 2.11."""
    if _library.torch_version() != (2, 11):
        pytest.skip("another version")
    raises = case.op not in SILENT and not case.is_silent
    error = pytest.raises(RuntimeError, match="does not have a deterministic implementation")
    with deterministic_algorithms(), error if raises else contextlib.nullcontext():
        case.outputs(case.leaves(device, dtype))


@pytest.mark.parametrize("layout", [torch.channels_last, torch.channels_last_3d], ids=str)
@pytest.mark.parametrize("device", [on("cpu", "cpu", name="cpu"), on("cuda", "cuda", name="cuda")])
def test_channels_last(layout, device):
    """Gradients keep the layout that PyTorch gives them."""
    dims = 2 if layout == torch.channels_last else 3
    shape = ((2, 3, 9, 11), (2, 3, 7, 8, 9))[dims - 2]
    for case in CASES:
        if case.shapes != (shape,):
            continue
        leaf = case.leaves(device, torch.float32)[0].detach().contiguous(memory_format=layout).requires_grad_()
        plain = case.outputs([leaf])
        with override(device), deterministic_algorithms():
            found = case.outputs([leaf])
        for mine, theirs in zip(found, plain, strict=True):
            if device == "cuda" or not re.search("pad|unpool", case.op):  # CPU kernels keep the layout there
                assert mine.stride() == theirs.stride(), case.op
            torch.testing.assert_close(mine, theirs)


def test_warnings_are_not_needed():
    """The mode that warns takes the same calls."""
    x = torch.randn(1, 2, 6, requires_grad=True)
    with counted() as calls, override("cpu"), deterministic_algorithms(warn_only=True):
        F.pad(x, (1, 1), "reflect").sum().backward()
    assert calls["reflection_pad1d_backward"] == {"taken": 1}


IMAGE = torch.ones(1, 2, 6, 7)
PASSED_ON = [
    ("reflection_pad2d_backward", "unsupported", lambda: aten.reflection_pad2d_backward(IMAGE[:, :, :5], IMAGE, (-1, 0, 0, 0))),
    ("max_unpool2d", "dtype", lambda: aten.max_unpool2d(IMAGE.long(), torch.arange(84).view(1, 2, 6, 7) % 42, (6, 7))),
    ("grid_sampler_2d_backward", "unsupported", lambda: aten.grid_sampler_2d_backward(
        IMAGE, IMAGE, torch.zeros(1, 6, 7, 2), 2, 0, False, (True, True))),
    ("index_reduce", "dtype", lambda: IMAGE.long().index_reduce(0, torch.zeros(1, dtype=torch.long), IMAGE.long(), "amax")),
    ("bincount", "aten_is_faster", lambda: torch.bincount(torch.ones(3, dtype=torch.long))),
    ("median", "unsupported", lambda: torch.median(torch.ones(()), 0)),
    ("scatter_reduce", "unsupported", lambda: torch.ones(3).scatter_reduce(
        0, torch.tensor([0, 1]), torch.ones(2), "sum", include_self=False)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "reason", "call"), PASSED_ON, ids=[row[0] for row in PASSED_ON])
def test_what_is_passed_on(op, reason, call):
    """PyTorch computes it, or raises its error."""
    with counted() as calls, override("cpu"), deterministic_algorithms():
        try:
            call()
        except RuntimeError as error:
            assert "gpuopt" not in str(error)
    assert calls[op].get(reason) == 1 and "taken" not in calls[op], calls


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("bincount only supports 1-d non-negative", lambda: torch.bincount(torch.tensor([-1, 2]), torch.ones(2))),
        ("max must be larger than min", lambda: torch.histc(torch.ones(4), 3, 2, 1)),
        ("range of .* is not finite", lambda: torch.histc(torch.full((4,), torch.inf), 3)),
    ],
)
def test_errors_are_pytorchs(message, call):
    with pytest.raises(RuntimeError, match=message):
        call()
    with override("cpu"), deterministic_algorithms(), pytest.raises(RuntimeError, match=message):
        call()


def test_gradients_of_gradients():
    """Autograd's formulas lie above."""
    x = torch.randn(1, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    with override("cpu"), deterministic_algorithms():
        for function in (
            lambda x: F.pad(x, (2, 1, 0, 3), "reflect"),
            lambda x: torch._C._nn.upsample_bicubic2d(x, [9, 4], False),
            lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
        ):
            assert torch.autograd.gradcheck(function, x) and torch.autograd.gradgradcheck(function, x)


def test_empty_batches():
    """As of a detector without proposals."""
    x, index = torch.ones(0, 2, 6, 6, 6, requires_grad=True), torch.arange(0)
    with counted() as calls, override("cpu", TAKEN), deterministic_algorithms():
        for function in (F.adaptive_avg_pool3d, F.adaptive_max_pool3d, F.avg_pool3d, F.max_pool3d):
            assert torch.autograd.grad(function(x, 2).sum(), x)[0].shape == x.shape
        F.pad(x, (1, 1, 1, 1, 1, 1), "reflect").sum().backward()
        assert torch.ones(3).put_(index, torch.ones(0)).tolist() == [1, 1, 1]
    assert {reason for op, row in calls.items() for reason in row if op not in NEWER} == {"taken"}, calls


# Operators of PyTorch's database (OpInfo) that reach replaced ones. Samples of median may find other equal values.
OPERATORS = {
    *(f"nn.functional.{name}" for name in (
        "interpolate", "pad", "max_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", "fractional_max_pool2d",
        "fractional_max_pool3d", "max_unpool1d", "max_unpool2d", "max_unpool3d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
        "avg_pool3d", "grid_sample", "nll_loss", "cross_entropy")),
    "put", "take", "histc", "bincount", "cumsum", "scatter_reduce", "index_reduce", "grid_sampler_2d", "grid_sampler_3d",
}  # fmt: skip


def each_info(device):
    opinfo = pytest.importorskip("tests.override.test_opinfo", reason="expecttest is missing")
    # The CPU kernel of max_unpool2d keeps the layout, and CUDA's does not.
    left_out = {"nn.functional.max_unpool2d"} if device == "cpu" else set()
    return [info for info in opinfo.op_db if info.name in OPERATORS - left_out]


@pytest.mark.parametrize("device", [on("cpu", "cpu", name="cpu"), on("cuda", "cuda", name="cuda")])
def test_samples_of_pytorch(device):
    """Two runs of a sample have the same bits, and differ from PyTorch's by rounding. Calls that are not covered are left out."""
    from .test_opinfo import Call, _difference, _same_bits, _samples, _widened

    found, compared = [], 0
    torch.manual_seed(0)
    for info in each_info(device):
        for sample in _samples(info, device, torch.float32):
            plain, again, reference = Call(info, sample), Call(info, sample), Call(info, sample, _widened)
            with counted() as calls, override(device, TAKEN), deterministic_algorithms():
                first, second = Call(info, sample), Call(info, sample)
            if any({"unsupported", "dtype"} & row.keys() for row in calls.values()):
                continue
            name = f"{info.full_name}: {sample.summary()[:200]}"
            if repr(first.error) != repr(plain.error):
                found.append(f"{name}: {first.error!r}, PyTorch's {plain.error!r}")
            for mine, twin, theirs, other, exact in zip(
                *(call.outputs for call in (first, second, plain, again, reference)), strict=True
            ):
                compared += 1
                if not _same_bits(mine, twin):
                    found.append(f"{name}: two runs differ")
                elif problem := _difference(mine, theirs, other, exact, True):
                    found.append(f"{name}: {problem}")
    assert compared >= 200
    assert not found, f"{len(found)} differences, first ones:\n" + "\n".join(found[:8])


# ---------------------------------------------------------------- the table


def listed_by_pytorch() -> set[str]:
    """The names in the list of what raises, of torch.use_deterministic_algorithms."""
    text = torch.use_deterministic_algorithms.__doc__.partition("nondeterministic operations will throw a")[
        2
    ].partition("In addition")[0]
    text = "".join(
        entry for entry in re.split(r"^        \* ", text, flags=re.MULTILINE) if "CUDA" in entry or "MPS" not in entry
    )
    found = {name.rpartition(".")[2] for name in re.findall(r":(?:class|func):`([\w.]+)`", text)}
    return (found | set(re.findall(r"- ``(\w+)``", text))) - {"RuntimeError", "interpolate"}


def rows_of_page() -> dict[str, str]:
    """The last cell of each row, by the names in the first."""
    rows = re.findall(r"^\| (.*?) \|.*\| (.*?) \|$", PAGE, re.MULTILINE)
    return {name: last for names, last in rows for name in re.findall(r"`(\w+)`", names)}


def test_the_table_has_all_that_pytorch_lists():
    names = listed_by_pytorch()
    assert len(names) >= 25
    assert names <= rows_of_page().keys()


def test_the_table_says_what_is_taken():
    """Every entry of PyTorch's list that the table calls taken has a case, and every operator that is replaced is named."""
    with_case = {word for case in CASES for word in case.words.split()}
    taken = {name for name, last in rows_of_page().items() if last != "no"}
    assert listed_by_pytorch() & taken == listed_by_pytorch() & with_case
    assert set(torch_ops.override.deterministic_operators) <= set(re.findall(r"`(\w+)`", PAGE))
    assert {case.op for case in CASES} >= set(torch_ops.override.deterministic_operators) - {
        "cudnn_grid_sampler_backward"
    }


def test_cudnns_sampling_is_replaced():
    """It has no kernel on the CPU, whose grid_sample is not cuDNN's."""
    x, grid, grad = torch.randn(2, 3, 4, 5), torch.rand(2, 6, 7, 2), torch.randn(2, 3, 6, 7)
    with counted() as calls, override("cpu"), deterministic_algorithms():
        found = aten.cudnn_grid_sampler_backward(x, grid, grad)
    assert calls["cudnn_grid_sampler_backward"] == {"taken": 1}
    want = aten.grid_sampler_2d_backward(grad, x, grid, 0, 0, True, (True, True))
    for mine, theirs in zip(found, want, strict=True):
        torch.testing.assert_close(mine, theirs)
