"""What an operator promises, written once.

A room (elementwise, reduce, ...) adds one file here that ends in `CASES = [OpCase(...), ...]`. Files are globbed; nothing else
has to be edited. Everything in tests/contract/ then runs on the new operators, and benchmarks take their float64 reference from here.
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

from . import tensors


def _tensors_in(*tree) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


@dataclass(frozen=True)
class Sample:
    """One call. `exact_inputs=False` says that an argument is not representable in the type the operator computes in
    (0.1 times a half tensor), so that only ATen, and not the float64 reference, says what the answer is. `sanitize=True` has it run
    under compute-sanitizer whatever its size: it reaches a path that only large tensors take."""

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
        """The same call on tensors twice as large (tensors.resized). Tuples among the positional arguments are sizes and grow with them."""
        args = [tuple(n if n == 1 else 2 * n for n in a) if isinstance(a, tuple) else a for a in self.args]
        return replace(self, args=tuple(args)).map(tensors.resized)

    def requiring_grad(self, dtypes: Sequence[torch.dtype] = ()) -> Sample:
        """Leaves that require grad, wherever the dtype allows it (and is one of `dtypes`, if given)."""

        def leaf(t: torch.Tensor) -> torch.Tensor:
            differentiable = (t.is_floating_point() or t.is_complex()) and (not dtypes or t.dtype in dtypes)
            return t.detach().requires_grad_(differentiable)

        return self.map(leaf)

    @property
    def tensors(self) -> list[torch.Tensor]:
        return _tensors_in(self.args, self.kwargs)

    @property
    def floating(self) -> list[torch.Tensor]:
        """The tensors that are neither integers nor bools, such as an index."""
        return [t for t in self.tensors if t.is_floating_point() or t.is_complex()]

    @property
    def differentiable(self) -> list[torch.Tensor]:
        return [t for t in self.tensors if t.requires_grad]


@dataclass(frozen=True)
class ErrorCase:
    """A call that ATen refuses. The exception's type is whatever ATen raises for it; `says` are regular expressions that
    our message must contain beside the operator's name. `variant` is 'functional', 'inplace' or 'out'. `on_meta=False` marks what
    Meta tensors cannot know: devices, addresses, which kernels a device has."""

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
    """One way to call an operator: functional, in place (changes its first argument) or out (takes `out=`)."""

    op: Callable
    overload: torch._ops.OpOverload
    aten: Callable


@dataclass(frozen=True)
class OpInfoLink:
    """Ties an entry of PyTorch's OpInfo database to an operator. `adapt` turns the arguments of PyTorch's sample into ours, or
    into None when ours has no such call. `at_least` so many calls are made in every dtype that the entry has."""

    name: str
    adapt: Callable[..., tuple[tuple, dict] | None] = lambda *args, **kwargs: (args, kwargs)
    at_least: int = 12


@dataclass(frozen=True)
class OpCase:
    """One public operator overload and everything that the generic tests need to know about it.

    `op` and `aten` take the same arguments. `reference` takes them too and gives the answer in float64, complex128 or int64.
    `bound(device, dtype, reference, *args, **kwargs)` is the error allowed, per element, on top of rounding the
    reference to the result's dtype; None means none at all: the operator is a single rounding and must also equal ATen bit for bit.
    `samples` sweeps shapes, layouts and values; `few` gives a handful of small calls for what costs much per call
    (gradcheck, compilation, vmap). `elementwise` says that an element of the result depends on one element of each operand: no layout
    or alignment changes its bits, out= may be an operand, and a call allocates its result alone. Where it is False, equal values in
    other memory may be added in another order (results agree within `bound`), and a call may take a small workspace. `as_accurate=False`
    says that it rounds more often than ATen's: its errors are held to `bound` alone.
    `cuda_dtypes` are taken on CUDA beside `dtypes`, which every device takes. `repeatable(device, sample)` says whether the same call
    gives the same bits again; `workspace(sample)` how many bytes it may take beside its result, where that is not a small part of
    what it reads. `writes` are the arguments that `overload` writes to in place of copies that `op` makes of them.
    Where derivatives of `few` are sums, `cancels` says how many times smaller than what is added all of a gradient may be: what the order
    of a sum changes is so many times as much of the result.
    `saves_inputs` says that backward may need an argument of which ATen saves something else (a padded copy, a result).
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
    writes: tuple[str, ...] = ()
    saves_inputs: bool = False
    cancels: int = 1

    def ulps(self, dtype: torch.dtype, ulps: float) -> float:
        """How many roundings derivatives may be apart, of which a single rounding is allowed `ulps`. Half types add up in float32."""
        return ulps * (self.cancels if tensors.real_of(dtype).itemsize > 2 else 1)

    @property
    def schema_name(self) -> str:
        """'gpuopt::mul', the way messages name the operator."""
        return self.overload._schema.name

    def of_variant(self, variant: str) -> Variant:
        """'functional', 'inplace' or 'out'."""
        return Variant(self.op, self.overload, self.aten) if variant == "functional" else getattr(self, variant)

    @property
    def overloads(self) -> list[torch._ops.OpOverload]:
        variants = [v for v in (self.inplace, self.out) if v is not None]
        return [self.overload] + [v.overload for v in variants]

    def __repr__(self) -> str:
        return self.name


@functools.cache
def all_cases() -> tuple[OpCase, ...]:
    """Every case of every file in this folder."""
    found: list[OpCase] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        found += getattr(importlib.import_module(f"{__name__}.{module}"), "CASES", [])
    return tuple(found)
