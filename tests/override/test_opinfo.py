"""PyTorch's own samples of all its operators (OpInfo) give the same results under torch_ops.override, which takes calls of every size.

Most operators reach replaced ones: they copy, add, multiply or index inside. A result is compared by its bits where the override took
no call, and otherwise by its error against float64.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.utils import _pytree as pytree

import torch_ops

from ..support.compare import components, raised_by
from ..support.overriding import nothing_is_left, override  # noqa: F401
from ..support.params import on, spread

pytest.importorskip("expecttest", reason="torch.testing's OpInfo database imports expecttest")
from torch.testing._internal.common_methods_invocations import op_db

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Samples of each operator and dtype: of so many first ones, so many that are evenly spread.
FIRST, SAMPLES = 40, 6
UNITS = 16  # roundings of a result's largest value that are always allowed

LEFT_OUT = {
    **dict.fromkeys(("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
                    "results are uninitialised"),
    **dict.fromkeys(("resize_", "resize_as_"), "leaves elements of a grown tensor uninitialised"),
    "nn.functional.ctc_loss": "its CUDA gradient adds atomically, and samples have lengths for which it is infinite",
    "svd_lowrank": "projects on random vectors, and results are defined up to a rotation",
    "pca_lowrank": "projects on random vectors, and results are defined up to a rotation",
    **dict.fromkeys(("nn.functional.layer_norm", "native_layer_norm", "nn.functional.group_norm", "nn.functional.batch_norm",
                     "nn.functional.batch_norm.without_cudnn", "nn.functional.instance_norm", "native_batch_norm",
                     "_native_batch_norm_legit", "_batch_norm_with_update"),
                    "the gradient of a sum is 0, of which only roundings are left; test_norm.py and test_norm_channels.py have others"),
    "to_sparse": "results are sparse, and have no strides",
    "sparse.sampled_addmm": "results are sparse, and have no strides",
    "sparse.mm": "results are sparse, and have no strides",
    "torch._scaled_mm_v2": "computes in 8 bits only",
}  # fmt: skip
# Without a GPU: operators that reach replaced ones. ATen computes there, so that few samples are enough.
ON_CPU = (
    "sum", "mean", "amax", "amin", "mul", "index_add", "scatter_add", "scatter_reduce", "index_put", "__getitem__", "index_select",
    "gather", "take_along_dim", "contiguous", "clone", "to", "dot", "vdot", "nn.functional.conv1d", "nn.functional.conv_transpose1d",
    "nn.functional.embedding", "cumsum", "cumulative_trapezoid",
    "nn.functional.interpolate", "nn.functional.upsample_nearest", "cov", "einsum", "var", "softmax", "cat",
    "permute", "T", "linalg.norm", "nn.functional.linear", "bmm", "cdist", "kron", "logsumexp", "repeat", "expand", "norm",
)  # fmt: skip
INFOS = [info for info in op_db if info.name not in LEFT_OUT]


def _each_operator():
    params = [on("cpu", info, "cpu", name=f"{info.full_name}-cpu") for info in INFOS if info.name in ON_CPU]
    return params + [on("cuda", info, "cuda", name=f"{info.full_name}-cuda") for info in INFOS]


def _tensors(tree) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor) and t.layout == torch.strided]


class Call:
    """A sample on copies of its operands: outputs and gradients of their sum, or the exception."""

    def __init__(self, info, sample, change=lambda t: t):
        def copied(t: torch.Tensor) -> torch.Tensor:
            if t.layout != torch.strided:
                return t
            return change(t.detach()).clone().requires_grad_(t.requires_grad)

        args, kwargs = pytree.tree_map_only(torch.Tensor, copied, ((sample.input, *sample.args), sample.kwargs))
        torch.manual_seed(0)
        self.outputs = []
        self.error = raised_by(self._run, info, args, kwargs)

    def _run(self, info, args, kwargs) -> None:
        leaves = [t for t in _tensors((args, kwargs)) if t.requires_grad]
        result = info.op(*args, **kwargs)
        self.outputs = [t.detach() for t in _tensors(result)]
        losses = [t.sum() for t in _tensors(result) if t.requires_grad]
        if losses and leaves:
            loss = sum(t.abs() if t.is_complex() else t for t in losses)
            self.outputs += [t for t in torch.autograd.grad(loss, leaves, allow_unused=True) if t is not None]


def _widened(t: torch.Tensor) -> torch.Tensor:
    return t.double() if t.is_floating_point() else t.to(torch.complex128) if t.is_complex() else t


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    a, b = components(a), components(b)
    return torch.equal(a.nan_to_num(nan=77), b.nan_to_num(nan=77)) and torch.equal(a.isnan(), b.isnan())


def _error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """The largest error of a finite component, relative to the largest finite component."""
    out, reference = components(out).double(), components(reference).double()
    finite = out.isfinite() & reference.isfinite()
    size = torch.where(finite, reference.abs(), 0.0).amax().clamp(min=1e-30) if out.numel() else 1.0
    return float((torch.where(finite, out - reference, 0.0).abs() / size).amax()) if out.numel() else 0.0


def _difference(ours: torch.Tensor, theirs: torch.Tensor, again: torch.Tensor, reference, taken: bool) -> str | None:
    """What differs between the results with and without override. `again` is a second result without it."""
    metadata = [(t.dtype, tuple(t.shape), t.stride()) for t in (ours, theirs)]
    if metadata[0] != metadata[1]:
        return f"{metadata[0]}, ATen's {metadata[1]}"
    if _same_bits(ours, theirs):
        return None
    repeatable = _same_bits(again, theirs)
    if not taken and repeatable or not (ours.is_floating_point() or ours.is_complex()):
        return "no call was taken, and the bits differ" if repeatable else None
    if not torch.equal(components(ours).isfinite(), components(theirs).isfinite()):
        return "other elements are finite"
    exact = theirs if reference is None or reference.shape != theirs.shape else reference
    error, aten_error = _error(ours, exact), max(_error(theirs, exact), _error(again, theirs))
    limit = max(UNITS * torch.finfo(ours.dtype).eps, 4 * aten_error)
    return None if error <= limit else f"error {error:.2e}, limit {limit:.2e}, ATen's {aten_error:.2e}"


def _samples(info, device: str, dtype: torch.dtype) -> list:
    if dtype not in info.supported_dtypes(device):
        return []
    gradients = info.supports_autograd and dtype in info.supported_backward_dtypes(device)
    made = list(itertools.islice(info.sample_inputs(device, dtype, requires_grad=gradients), FIRST))
    return spread(made, SAMPLES if device == "cuda" else 3) if made else []


@pytest.mark.parametrize(("info", "device"), _each_operator())
def test_results(info, device, record_property):
    """Outputs, and the gradients of their sum."""
    found, count = [], 0
    for dtype in DTYPES:
        if device == "cpu" and dtype == torch.float16:
            continue  # some of oneDNN's convolutions in float16 never return (torch 2.11)
        samples = _samples(info, device, dtype)
        theirs = [(Call(info, sample), Call(info, sample)) for sample in samples]
        ours, takens = [], []
        with override(device):
            for sample in samples:
                before = torch_ops.override_report().taken
                ours.append(Call(info, sample))
                takens.append(torch_ops.override_report().taken > before)
        for k, (sample, (want, again), got, taken) in enumerate(zip(samples, theirs, ours, takens, strict=True)):
            name = f"{dtype} sample {k}: {sample.summary()[:200]}"
            if repr(got.error) != repr(want.error):
                found.append(f"{name}: {got.error!r}, ATen's {want.error!r}")
                continue
            count += want.error is None
            reference = Call(info, sample, _widened).outputs if taken else []
            same = len(reference) == len(want.outputs)
            for n, (mine, plain, second) in enumerate(zip(got.outputs, want.outputs, again.outputs, strict=True)):
                if problem := _difference(mine, plain, second, reference[n] if same else None, taken):
                    found.append(f"{name}: tensor {n}: {problem}")
    record_property("compared", count)  # conftest.py prints the sum
    assert not found, f"{len(found)} differences, first ones:\n" + "\n".join(found[:8])


def test_enough_is_compared():
    """The database has not lost its operators: with several calls of each, more than a thousand are compared."""
    assert sum(torch.float32 in info.supported_dtypes("cuda") for info in INFOS) >= 500
    assert {info.name for info in INFOS} >= set(ON_CPU)
