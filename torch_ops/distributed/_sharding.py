"""Gives the rules of ``_rules.py`` to DTensor, which then computes the operators of ``torch.ops.gpuopt`` on shards.

A rule becomes a list of placements of the arguments and results over one dimension of a mesh. DTensor chooses the one that moves the
fewest bytes, and combines the choices of several mesh dimensions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard
from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
from torch.distributed.tensor.experimental import register_sharding

from torch_ops.distributed._rules import RULES, Rule

Call = Mapping[str, Any]  # the arguments of an operator by name, and the specs of tensors
# Placements of the results and of the tensor arguments that are given.
Choice = tuple[list[Placement | None], list[Placement | None]]

_ARGUMENT = re.compile(r"(&?)(\w+)\(([^)]*)\)")
_RESULT = re.compile(r"(?:(\w+)|\(([^)]*)\))(?:/([\w~]+))?")


def _is_spec(value: Any) -> bool:
    return hasattr(value, "placements")


def _is_floating(spec: Any) -> bool:
    dtype = spec.tensor_meta.dtype
    return dtype.is_floating_point or dtype.is_complex


def _bound(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, with defaults."""
    arguments = op._schema.arguments
    given = dict(zip((argument.name for argument in arguments), args)) | kwargs
    return {a.name: given.get(a.name, a.default_value if a.has_default_value() else None) for a in arguments}


# ---------------------------------------------------------------- axes


def _dims_of(call: Call, specs: Sequence[Any], with_dim: Sequence[str]) -> tuple[int, list[int]]:
    """The number of dimensions of the tensors that have all of them, and the ones that the argument ``dim`` names."""
    rank = max(specs[i].ndim for i in range(len(specs)) if with_dim[i])
    dim = call["dim"]
    dims = list(dim) if isinstance(dim, (list, tuple)) else [] if dim is None else [dim]
    return rank, sorted(d % rank for d in dims) if rank and dims else list(range(rank))


class _Axes:
    """The axes of the tensors of a call. Dimensions that a rule doesn't name have a name of their distance from the last one."""

    def __init__(self, form: str, call: Call) -> None:
        self.call = call
        has_heads = _is_spec(call.get("value")) and call["value"].ndim == 2
        form = form.replace("[h]", "h" if has_heads else "")
        last = range(call.get("dims") or len(call.get("pad") or ()) // 2)
        form = form.replace("*N", " ".join(f"N{d}" for d in last)).replace("*1", " ".join("1" for _ in last))
        arguments, _, self.results_form = form.partition("->")
        parsed = _ARGUMENT.findall(arguments)
        given = [(added, name, text.strip()) for added, name, text in parsed if _is_spec(call.get(name))]
        self.added = {name for added, name, _ in given if added}
        if "%" in form:
            specs = [call[name] for _, name, _ in given]
            self.rank, self.dims = _dims_of(call, specs, [text[0] == "%" and text != "%" for _, _, text in given])
        self.of = {name: self._named(text, call[name].ndim) for _, name, text in given}
        self.sizes: dict[str, int] = {}
        for name, axes in self.of.items():
            for axis, size in zip(axes, call[name].shape):
                self.sizes[axis] = max(self.sizes.get(axis, 0), size)

    def _named(self, text: str, ndim: int | None) -> list[str]:
        """The axes of a tensor, or of a result if `ndim` is None."""
        if text.startswith("%"):
            return self._with_dim(text[1:], ndim)
        for form in text.split("|"):
            axes = form.split()
            others = None if ndim is None else ndim - len([a for a in axes if a != "..."])
            if ndim is None or others == 0 or ("..." in axes and others is not None and others > 0):
                break
        else:
            raise RuntimeError(f"no form in ({text}) has {ndim} dimensions")
        if others is None:
            others = max((int(axis[1:]) for axis in self.sizes if axis[0] == "~"), default=0)
        i = axes.index("...") if "..." in axes else len(axes)
        return axes[:i] + [f"~{d}" for d in range(others, 0, -1) if i < len(axes)] + axes[i + 1 :]

    def _with_dim(self, text: str, ndim: int | None) -> list[str]:
        keeps, axis = text[:1] == "=", text.lstrip("=")
        names = [f"~{self.rank - d}" for d in range(self.rank)]
        for d in self.dims:
            names[d] = f"{axis}{d}" if len(self.dims) > 1 else axis
            if keeps:
                names[d] = "1" if self.call["keepdim"] else ""
        names = [name for d, name in enumerate(names) if name and (axis or d not in self.dims)]
        return names if ndim is None else names[len(names) - ndim :] if ndim else []

    def results(self) -> Iterator[tuple[list[str] | None, str]]:
        """The axes of each result, or None if there is none, and the axes that it is a sum over."""
        masked = self.call.get("output_mask")
        for i, (name, text, sums) in enumerate(_RESULT.findall(self.results_form)):
            if masked and not masked[i]:
                yield None, ""
            elif name:
                yield self.of.get(name, []), sums
            else:
                axes = self._named(text.strip(), None)
                # An output without a batch has no batch axis. The dimensions of %t are all there.
                yield [a for a in axes if a in self.sizes or not _may_shard(a) or text.startswith("%")], sums


def _may_shard(axis: str) -> bool:
    return axis[0] == "~" or axis.islower()


def _kind(axis: str) -> str:
    """The axis that a rule writes: several dimensions of a call may have one."""
    return axis.rstrip("0123456789")


# ---------------------------------------------------------------- placements


def _placement(axes: list[str], shape: Sequence[int], axis: str, size: int) -> Placement | None:
    """The shard of a tensor along an axis, or None if it has no such axis, or broadcasts along it."""
    for name in (axis, f"{axis}:"):
        if name in axes:
            i = axes.index(name)
            return None if shape[i] == 1 and size != 1 else Shard(i)
    return None


def _fills(size: int, mesh: DeviceMesh) -> bool:
    """Whether every rank has a part of an axis."""
    ranks = mesh.size()
    return size % ranks == 0 or (mesh.ndim == 1 and -(-size // -(-size // ranks)) == ranks)


def _choice(
    rule: Rule, axes: _Axes, results: list[Any], given: dict[str, Any], axis: str, mesh: DeviceMesh
) -> Choice | None:
    """The placements if this axis is sharded, or None if it can't be."""
    size, ranks = axes.sizes[axis], mesh.size()
    arguments: list[Placement | None] = []
    summed = any(names is not None and _kind(axis) in sums for names, sums in results)
    if (summed and rule.partial == "avg") or f"{axis}:" in axes.sizes:
        if size % ranks:
            return None
    if _kind(axis) in rule.filled.split() and not _fills(size, mesh):
        return None
    groups = axes.sizes.get(f"{axis}:", 1)
    if groups > 1 and groups % ranks:
        return None
    for name, spec in given.items():
        placement = _placement(axes.of.get(name, []), spec.shape, axis, size)
        if placement is None and summed and name in axes.added:
            if not _is_floating(spec):  # a part of it would not be an integer
                return None
            placement = Partial("sum")
        arguments.append(placement or Replicate())
    if not any(isinstance(placement, Shard) for placement in arguments):
        return None
    placements: list[Placement | None] = []
    for names, sums in results:
        if names is None:
            placements.append(None)
        elif axis in names or (f"{axis}:" in names and groups > 1):
            placements.append(Shard(names.index(axis if axis in names else f"{axis}:")))
        else:
            placements.append(Partial(rule.partial) if _kind(axis) in sums else Replicate())
    return placements, arguments


def _linear_choices(rule: Rule, call: Call, results: list[Any], given: dict[str, Any]) -> Iterator[Choice]:
    """The placements if some arguments are partial sums, and so are the results."""
    dtype = call.get("dtype")
    if any(call[name] not in values for name, values in rule.linear_if.items()):
        return
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        return
    for group in rule.linear:
        names = [name for name in group.split() if name in given]
        if not names or not all(_is_floating(given[name]) for name in names):
            continue
        for kind in ("sum", "avg"):
            yield (
                [None if axes is None else Partial(kind) for axes, _ in results],
                [Partial(kind) if name in names else Replicate() for name in given],
            )


def _whole(rule: Rule, op: str, call: Call, axes: _Axes) -> set[str]:
    """The axes that are whole in this call."""
    found: set[str] = set()
    for argument, (value, names) in rule.whole.items():
        if call[argument] != value:
            found |= set(names.split())
    for argument, (value, names) in rule.refused.items():
        if call[argument] == value:
            continue
        found |= set(names.split())
        for name, letters in axes.of.items():
            sharded = {letters[p.dim] for p in call[name].placements if isinstance(p, Shard)}
            if sharded & found:
                raise NotImplementedError(
                    f"gpuopt::{op}: {argument} must be {value} where channels of DTensors are sharded: expected {value}, got "
                    f"{call[argument]} (torch_ops.distributed.conv1d, conv_transpose1d and causal_conv1d shard groups)"
                )
    return found


def choices(op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Choice]:
    """The placements over one mesh dimension with which a call can be computed on shards."""
    name = op._schema.name.partition("::")[2]
    rule, call = RULES[name], _bound(op, args, kwargs)
    has_out = op._schema.arguments[-1].is_out
    given = {argument: spec for argument, spec in call.items() if _is_spec(spec)}
    if has_out:
        given.pop("out")
    axes = _Axes(rule.form, call)
    results = list(axes.results())
    whole = _whole(rule, name, call, axes)
    mesh = next(iter(given.values())).mesh
    whole_results: list[Placement | None] = [None if names is None else Replicate() for names, _ in results]
    found: list[Choice] = [(whole_results, [Replicate()] * len(given))]
    for axis in axes.sizes:
        if _may_shard(axis) and axis[-1] != ":" and _kind(axis) not in whole:
            choice = _choice(rule, axes, results, given, axis, mesh)
            if choice is not None:
                found.append(choice)
    found += _linear_choices(rule, call, results, given)
    if has_out:
        found = [(placements, [*arguments, placements[0]]) for placements, arguments in found]
    return found


def _keeps_written(op: torch._ops.OpOverload, args: Sequence[Any], choice: Choice) -> bool:
    """Whether arguments that the operator writes stay where they are. Others can be moved first."""
    specs = iter(choice[1])
    for argument, value in zip(op._schema.arguments, args):
        if not _is_spec(value):
            continue
        placement = next(specs)
        if argument.is_write:
            if len(set(value.placements)) > 1 and not op._schema.name.endswith("_"):
                raise NotImplementedError(
                    f"{op._schema.name}: {argument.name} must have one placement over all dimensions of the mesh, got "
                    f"{value.placements}"
                )
            if placement not in value.placements:
                return False
    return True


# ---------------------------------------------------------------- registration


def overloads() -> list[torch._ops.OpOverload]:
    """The overloads that DTensor sees. It does not see compositions of other operators."""
    found = []
    for name in RULES:
        packet = getattr(torch.ops.gpuopt, name)
        for overload in (getattr(packet, each) for each in packet.overloads()):
            if not torch._C._dispatch_has_kernel_for_dispatch_key(overload.name(), "CompositeImplicitAutograd"):
                found.append(overload)
    return found


def _schema_info(op: torch._ops.OpOverload) -> RuntimeSchemaInfo:
    """Which arguments DTensor's cache of choices tells apart: all, except tensors and keyword-only numbers.

    register_sharding tells apart integers only, so a reduction would be computed as the first one of its shape was, whatever its
    ``dim``.
    """
    first, keywords = 100, []
    for i, argument in enumerate(op._schema.arguments):
        kind = str(argument.type)
        if "Tensor" in kind or (argument.kwarg_only and kind == "number"):
            continue
        if argument.kwarg_only:
            keywords.append(argument.name)
        else:
            first = min(first, i)
    return RuntimeSchemaInfo(first, keywords or None, needs_pytree=True)


def register() -> None:
    propagator = DTensor._op_dispatcher.sharding_propagator
    for op in overloads():

        def rule(*args: Any, op: torch._ops.OpOverload = op, **kwargs: Any) -> list[Choice]:
            return [choice for choice in choices(op, args, kwargs) if _keeps_written(op, args, choice)]

        register_sharding(op)(rule)
        propagator.op_to_schema_info[op] = _schema_info(op)
        size = RULES[op._schema.name.partition("::")[2]].size
        if size is not None:
            propagator.op_to_shape_and_stride_idx[op] = size
