"""Products of a sparse matrix and sharded dense rows: features on each rank, or rows of matrix and features on each rank."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from torch_ops._arguments import checks_types
from torch_ops._deprecated import takes_old_calls
from torch_ops._spmm import Reduction
from torch_ops._spmm import spmm as local_spmm
from torch_ops.distributed._exchange import Line, rows_of_others
from torch_ops.distributed._parts import Parts
from torch_ops.distributed._peers import Peers
from torch_ops.sparse import CSR


class ShardedCSR:
    """A sparse matrix (M, K) whose rows are sharded over a mesh of one dimension, for :func:`spmm`.

    Making one is collective. Each rank finds which rows of a dense matrix (K, N) its entries need, and all ranks exchange the numbers
    of these rows once. A product then exchanges only the rows themselves.

    Args:
        rows: this rank's rows of the matrix, with the columns of the whole matrix: shape (local rows, K). The ranks have as many rows
            as of a DTensor of M rows that is sharded by ``Shard(0)``.
        mesh: a mesh of one dimension.

    Raises:
        TypeError: ``rows`` is no :class:`torch_ops.CSR`.
        ValueError: the mesh has several dimensions, the ranks' numbers of columns differ, or their rows are not a shard's.
    """

    def __init__(self, rows: CSR, mesh: DeviceMesh) -> None:
        if not isinstance(rows, CSR):
            raise TypeError(
                f"ShardedCSR: rows must be a sparse matrix: expected torch_ops.CSR, got {type(rows).__name__}"
            )
        if mesh.ndim != 1:
            raise ValueError(f"ShardedCSR: the mesh must have one dimension, got {mesh.ndim}")
        self.mesh, self.line = mesh, Line(mesh, 0)
        peers = Peers("ShardedCSR", mesh.get_group())
        local_rows, columns = rows.shape
        peers.agree(columns=columns)
        counts = peers.gather(local_rows)
        self.shape = (sum(counts), columns)
        expected = [last - first for first, last in self.line.parts(self.shape[0])]
        if counts != expected:
            raise ValueError(
                f"ShardedCSR: rows must be those of a shard: expected {expected} rows on the ranks, got {counts}"
            )
        needed, index = torch.unique(rows.index, return_inverse=True)  # sorted, hence by the rank that has them
        parts = self.line.parts(columns)
        bounds = torch.tensor([last for _, last in parts], device=needed.device, dtype=needed.dtype)
        ends = torch.searchsorted(needed, bounds).tolist()
        asks = [needed[first:last] for first, last in zip([0, *ends[:-1]], ends)]
        asked = peers.all_to_all(asks)
        self.come, self.to = [len(part) for part in asks], [len(part) for part in asked]
        self.asked = torch.cat(asked) - parts[self.line.rank][0]
        self.local = CSR(
            rows.ptr, index.to(rows.index.dtype), rows.values, (local_rows, len(needed)), perm=rows.perm, check=False
        )

    def __repr__(self) -> str:
        return f"ShardedCSR(shape={self.shape}, own={self.local.shape[0]}, rows of others={self.exchanged})"

    @property
    def exchanged(self) -> int:
        """The number of dense rows that this rank gets from others in a product."""
        return sum(self.come) - self.come[self.line.rank]


@takes_old_calls("csr dense reduce", dense="input")
@checks_types
def spmm(csr: CSR | ShardedCSR, input: DTensor, reduce: Reduction = "sum", *, values: Tensor | None = None) -> DTensor:
    """:func:`torch_ops.spmm` of sharded dense rows.

    With a :class:`torch_ops.CSR`, which is the same on all ranks, every dimension of ``input`` except its rows may be sharded, and
    nothing is exchanged. With a :class:`ShardedCSR` the rows are sharded. Each rank gets the rows that its entries name, each row
    once, and the backward pass sends their gradients back.

    Args:
        csr: sparse matrix (M, K).
        input: DTensor (K, N). With a :class:`torch_ops.CSR` also (..., K, N), or (..., K, heads, N) if values are (entries, heads).
            With a :class:`ShardedCSR` its placement is ``Shard(0)``, on the same mesh.
        reduce: as in :func:`torch_ops.spmm`.
        values: values in place of the matrix's own: of all entries, or of this rank's with a :class:`ShardedCSR`.

    Returns:
        DTensor with M rows and the placements of ``input``. Differentiable once in ``input`` and the values.

    Raises:
        TypeError: ``input`` is no DTensor.
        ValueError: the placements do not match as above.
        RuntimeError: as :func:`torch_ops.spmm`.
    """
    if isinstance(csr, ShardedCSR):
        return _by_rows(csr, input, reduce, values)
    values = csr.values if values is None else values
    heads = values is not None and values.dim() == 2
    at = input.dim() - (3 if heads else 2) if input.dim() > 1 else 0
    names = {at: "R"} | ({at + 1: "h"} if heads else {})
    axes = "".join(names.get(d) or chr(ord("p") + d) for d in range(input.dim()))
    parts = Parts("spmm", input, axes)
    if "R" in parts.sharded:
        raise ValueError("spmm: csr must be a ShardedCSR if the rows of input are sharded, got CSR")
    local_values = None if values is None else parts.local("values", values, "Eh" if heads else "E")
    out = local_spmm(csr, parts.local("input", input, axes), reduce, values=local_values)
    return parts.whole(out, axes, (*input.shape[:at], csr.shape[0], *input.shape[at + 1 :]))


def _by_rows(csr: ShardedCSR, input: DTensor, reduce: Reduction, values: Tensor | None) -> DTensor:
    parts = Parts("spmm", input, "RN")
    if input.dim() != 2 or parts.sharded != ["R"] or parts.mesh != csr.mesh:
        raise ValueError(
            f"spmm: input must be (K, N) and sharded as the matrix: expected Shard(0) on {csr.mesh}, got {input.placements} on "
            f"{input.device_mesh}"
        )
    if input.shape[0] != csr.shape[1]:
        raise RuntimeError(
            f"spmm: input must have a row for each column: expected {csr.shape[1]}, got {input.shape[0]}"
        )
    rows = rows_of_others(parts.local("input", input, "RN"), csr.asked, csr.line, csr.to, csr.come)
    out = local_spmm(csr.local, rows, reduce, values=values)
    return parts.whole(out, "RN", (csr.shape[0], input.shape[1]))
