"""``torch_scatter.utils``: the broadcasting of an index."""

from __future__ import annotations

from torch import Tensor

__all__ = ["broadcast"]


def broadcast(src: Tensor, other: Tensor, dim: int) -> Tensor:
    """Expands the index ``src`` to the shape of ``other``.

    A vector lies along dimension ``dim``. An index of more dimensions has the first dimensions of ``other``. Dimensions of size 1 are
    expanded.
    """
    if src.dim() == 1:
        shape = [1] * (dim + other.dim() if dim < 0 else dim) + [src.size(0)]
    else:
        shape = list(src.shape)
    return src.view(shape + [1] * (other.dim() - len(shape))).expand_as(other)
