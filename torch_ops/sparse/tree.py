"""A :class:`torch_ops.CSR` as a nested tensor, which torch.export and torch.func take apart into tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torch_ops._tracing import is_eager
from torch_ops.sparse.csr import CSR
from torch_ops.sparse.structure import Pair, Side

# Sizes must not be constants of a trace. Most are sizes of tensors. An empty tensor carries the number of columns. A matrix keeps it,
# because torch.export marks the tensors whose sizes are dynamic.


def _carrier(csr: CSR) -> Tensor:
    if csr._sizes is not None and csr._sizes.shape[0] == csr._columns:
        return csr._sizes
    sizes = torch.empty((csr._columns, 0), dtype=csr.ptr.dtype, device=csr.device)
    if is_eager():
        csr._sizes = sizes
    return sizes


def _flatten(csr: CSR) -> tuple[list[Any], tuple[str, ...]]:
    if hasattr(csr, "_placeholders"):
        return csr._placeholders
    side, other = csr._side, csr._other
    parts = {"ptr": side.ptr, "index": side.index, "perm": side.perm, "values": csr._values}
    if other is not None:
        parts |= {"t_ptr": other.ptr, "t_index": other.index, "t_perm": other.perm}
    parts["columns"] = _carrier(csr)
    given = {name: tensor for name, tensor in parts.items() if tensor is not None}
    return list(given.values()), tuple(given)


def _flatten_with_keys(csr: CSR) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    tensors, names = _flatten(csr)
    return [(pytree.GetAttrKey(name), tensor) for name, tensor in zip(names, tensors, strict=True)], names


def _unflatten(tensors: Any, names: tuple[str, ...]) -> CSR:
    parts = dict(zip(names, tensors, strict=True))
    if not isinstance(parts["columns"], Tensor):
        # torch.vmap replaces tensors by numbers for a while.
        csr = CSR.__new__(CSR)
        csr._placeholders = list(tensors), names
        return csr
    columns = parts["columns"].shape[0]
    side = Side(parts["ptr"], parts["index"], parts.get("perm"))
    other = None
    if "t_ptr" in parts:
        other = Side(parts["t_ptr"], parts["t_index"], parts.get("t_perm"))
    csr = CSR._of(Pair(side, other), False, columns, parts.get("values"))
    csr._sizes = parts["columns"]
    return csr


torch.serialization.add_safe_globals([CSR, Pair, Side])  # torch.load takes matrices with weights_only=True, too
pytree.register_pytree_node(
    CSR,
    _flatten,
    _unflatten,
    serialized_type_name="torch_ops.CSR",
    to_dumpable_context=list,
    from_dumpable_context=tuple,
    flatten_with_keys_fn=_flatten_with_keys,
)
