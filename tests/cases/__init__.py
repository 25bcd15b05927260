"""The test case of each operator: its samples, errors, reference and error bound.

A room (elementwise, reduce, ...) adds one file here that ends in `CASES = [OpCase(...), ...]`. Files are found by globbing, so
nothing else has to be edited. All tests in tests/contract/ then run for the new operators. The float64 references that
benchmarks need, too, are in benchmarks/references.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from benchmarks.references.dtypes import real_of

from . import tensors


def _tensors_in(*tree) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


@dataclass(frozen=True)
class Sample:
    """One call of an operator.

    Args:
        exact_inputs: False if an argument is not exact in the compute dtype (0.1 times an fp16 tensor). The result is then compared
            with ATen's and not with the float64 reference.
        sanitize: True if the call runs under compute-sanitizer whatever its size, because it reaches a path for large tensors only.
    """

    name: str
    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    exact_inputs: bool = True
    sanitize: bool = False

    def map(self, function: Callable[[torch.Tensor], Any]) -> Sample:
        """The same call with `function` applied to every tensor."""
        args, kwargs = pytree.tree_map_only(torch.Tensor, function, (self.args, self.kwargs))
        return replace(self, args=args, kwargs=kwargs)

    def twin(self) -> Sample:
        """A copy that shares no memory with this one and has the same strides, offsets, conj and neg bits."""
        return self.map(tensors.twin)

    def resized(self) -> Sample:
        """The same call with tensors twice as large (tensors.resized). Tuples in the positional arguments are sizes and grow,
        too."""
        args = [tuple(n if n == 1 else 2 * n for n in a) if isinstance(a, tuple) else a for a in self.args]
        return replace(self, args=tuple(args)).map(tensors.resized)

    def requiring_grad(self, dtypes: Sequence[torch.dtype] = ()) -> Sample:
        """The same call with leaves that require grad if their dtype allows it (and is in `dtypes`, if given)."""

        def leaf(t: torch.Tensor) -> torch.Tensor:
            differentiable = (t.is_floating_point() or t.is_complex()) and (not dtypes or t.dtype in dtypes)
            return t.detach().requires_grad_(differentiable)

        return self.map(leaf)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return _tensors_in(self.args, self.kwargs)

    @property
    def floating(self) -> list[torch.Tensor]:
        """The floating-point and complex tensors. An index, for example, is left out."""
        return [t for t in self.tensors if t.is_floating_point() or t.is_complex()]

    @property
    def differentiable(self) -> list[torch.Tensor]:
        return [t for t in self.tensors if t.requires_grad]


@dataclass(frozen=True)
class ErrorCase:
    """A call that ATen refuses. gpuopt must raise the same type of exception.

    Args:
        says: regular expressions that gpuopt's message must contain, beside the operator's name.
        variant: 'functional', 'inplace' or 'out'.
        on_meta: False if the error depends on something that Meta tensors lack: devices, addresses, or the kernels of a device.
    """

    name: str
    args: tuple
    kwargs: dict[str, Any] = field(default_factory=dict)
    says: tuple[str, ...] = ()
    variant: str = "functional"
    on_meta: bool = True

    @property
    def tensors(self) -> list[torch.Tensor]:
        return _tensors_in(self.args, self.kwargs)


@dataclass(frozen=True)
class Variant:
    """One way to call an operator: functional, in place (writes its first argument) or out (writes `out=`)."""

    op: Callable
    overload: torch._ops.OpOverload
    aten: Callable


@dataclass(frozen=True)
class OpInfoLink:
    """Connects an operator to an entry of PyTorch's OpInfo database.

    `adapt` converts the arguments of PyTorch's sample to gpuopt's, or returns None if gpuopt has no such call. At least `at_least`
    calls are made for every dtype of the entry.
    """

    name: str
    adapt: Callable[..., tuple[tuple, dict] | None] = lambda *args, **kwargs: (args, kwargs)
    at_least: int = 12


@dataclass(frozen=True)
class OpCase:
    """One public operator overload, with everything that the generic tests need to know about it.

    Args:
        op, aten, reference: functions of the same arguments. `reference` returns float64, complex128 or int64.
        bound: `bound(device, dtype, reference, *args, **kwargs)` is the allowed error per element, in addition to rounding the
            reference to the result's dtype. None means that the operator rounds once. It must then also equal ATen bit for bit.
        samples: calls over all shapes, layouts and values.
        few: a handful of small calls, for tests that are slow per call (gradcheck, compilation, vmap).
        errors: calls that must be refused.
        dtypes, cuda_dtypes: the dtypes supported on every device, and additional ones on CUDA.
        grad_dtypes: the dtypes with gradients.
        elementwise: True if an element of the result depends on one element of each operand. Then no layout or alignment changes
            its bits, out= may be an operand, and a call allocates only its result. If False, another layout may change the order of
            additions (results agree within `bound`), and a call may allocate a small workspace.
        as_accurate: False if the operator rounds more often than ATen's. Its errors are then only compared with `bound`.
        repeatable: `repeatable(device, sample)` says whether the same call gives the same bits again.
        workspace: `workspace(sample)` is the number of bytes that a call may allocate beside its result, if that is not a small
            part of its input.
        approximates: above 1 for operators that compute exp by a GPU's fast instructions, or that round in another order than ATen's.
            Differences from PyTorch's results may be this many times as large as differences that come from another order of additions.
        fuses: True for an operator that stands for several of ATen's, which round between them.
        writes: the arguments that `overload` writes. (`op` writes to copies of them.)
        saves_inputs: True if backward may need an argument for which ATen saves something else (a padded copy, a result).
        internal: True for an operator that only kernels of this library call, with operands that were checked. It has kernels for
            each device and Meta. Errors, gradients and rules for autocast, vmap and compilation belong to its callers.
        arguments: for an `op` with other arguments than `overload`: the same call with the arguments of `overload`.
        cancels: for derivatives in `few` that are sums: the terms may be this many times as large as the whole gradient, and so may
            the errors that come from another order of additions.
    """

    name: str
    op: Callable
    overload: torch._ops.OpOverload
    aten: Callable
    reference: Callable
    samples: Callable[[str, torch.dtype], Iterator[Sample]]
    few: Callable[[str, torch.dtype], Iterator[Sample]]
    errors: Callable[[str], Iterator[ErrorCase]]
    dtypes: tuple[torch.dtype, ...]
    grad_dtypes: tuple[torch.dtype, ...]
    bound: Callable[..., torch.Tensor | None]
    inplace: Variant | None = None
    out: Variant | None = None
    opinfo: tuple[OpInfoLink, ...] = ()
    elementwise: bool = True
    as_accurate: bool = True
    cuda_dtypes: tuple[torch.dtype, ...] = ()
    repeatable: Callable[[str, Sample], bool] = lambda device, sample: True
    workspace: Callable[[Sample], int] | None = None
    approximates: int = 1
    fuses: bool = False
    writes: tuple[str, ...] = ()
    saves_inputs: bool = False
    cancels: int = 1
    arguments: Callable[[Sample], Sample] = lambda sample: sample
    internal: bool = False

    def ulps(self, dtype: torch.dtype, ulps: float) -> float:
        """The allowed difference of derivatives in ulps, where a single rounding allows `ulps`. fp16 and bf16 are summed in
        float32, so `cancels` does not apply to them."""
        return ulps * (self.cancels if real_of(dtype).itemsize > 2 else 1)

    @property
    def schema_name(self) -> str:
        """The operator's name in messages, such as 'gpuopt::mul'."""
        return self.overload._schema.name

    def of_variant(self, variant: str) -> Variant:
        """The variant 'functional', 'inplace' or 'out'."""
        return Variant(self.op, self.overload, self.aten) if variant == "functional" else getattr(self, variant)

    @property
    def overloads(self) -> list[torch._ops.OpOverload]:
        variants = [v for v in (self.inplace, self.out) if v is not None]
        return [self.overload] + [v.overload for v in variants]

    def __repr__(self) -> str:
        return self.name


def internal_case(**fields) -> OpCase:
    """The case of an operator that only kernels of this library call. Callers check operands."""
    return OpCase(errors=lambda device: iter(()), grad_dtypes=(), internal=True, **fields)


def exact(device, result_dtype, reference, *operands, **options) -> None:
    """The bound of an operator that only moves values or counts."""


def workspace_of(times: int, more: int = 2**20) -> Callable[[Sample], int]:
    """A workspace of so many times the bytes of the operands, and some more."""
    return lambda sample: times * sum(t.nbytes for t in sample.tensors) + more


@functools.cache
def all_cases() -> tuple[OpCase, ...]:
    """The cases of all files in this folder."""
    found: list[OpCase] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        found += getattr(importlib.import_module(f"{__name__}.{module}"), "CASES", [])
    return tuple(found)
