"""Modules that take the place of torch.nn's."""

from __future__ import annotations

from numbers import Integral

import torch
from torch import Tensor
from torch.nn import functional

from torch_ops.conv1d import conv1d
from torch_ops.upsample import upsample_nearest2d, upsample_nearest_exact2d

__all__ = ["Conv1d", "UpsampleNearest2d"]


class Conv1d(torch.nn.Conv1d):
    """One-dimensional convolution by :func:`torch_ops.conv1d`, in the place of :class:`torch.nn.Conv1d`: the same arguments,
    attributes, initialisation, ``state_dict`` and results, with every ``padding_mode`` and with ``padding='valid'`` or ``'same'``.

    Padding modes other than ``'zeros'`` pad a copy of the input first, as :class:`torch.nn.Conv1d` does. ``torch.jit.script``
    doesn't compile it; ``torch.jit.trace``, ``torch.compile`` and ``torch.export`` do.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class UpsampleNearest2d(torch.nn.Upsample):
    """Nearest-neighbour upsampling of (N, C, H, W), in the place of :class:`torch.nn.Upsample` with ``mode='nearest'`` or
    ``'nearest-exact'``: the same attributes, results and exceptions. It has no parameters and no state.

    Args:
        size: height and width of the output, or one number for both.
        scale_factor: factors of the height and of the width, or one number for both. Exactly one of ``size`` and
            ``scale_factor`` is given.
        mode: ``'nearest'`` (:func:`torch_ops.upsample_nearest2d`) or ``'nearest-exact'``
            (:func:`torch_ops.upsample_nearest_exact2d`).
        recompute_scale_factor: whether ``scale_factor`` only decides the size of the output, and the step between source pixels
            is input size / output size; otherwise it is 1 / ``scale_factor``.

    As in :class:`torch.nn.Upsample`, arguments are checked when the module is called. ``torch.jit.script`` doesn't compile it;
    ``torch.jit.trace``, ``torch.compile`` and ``torch.export`` do.

    Raises:
        ValueError: both or neither of ``size`` and ``scale_factor``, or not one or two numbers; ``recompute_scale_factor`` with
            ``size``.
        TypeError: a ``size`` that is not an integer.
        NotImplementedError: another mode; an input that is not 4-D; dtypes that the operator doesn't take.
        RuntimeError: sizes that the operator doesn't take.
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        scale_factor: float | tuple[float, float] | None = None,
        mode: str = "nearest",
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__(size, scale_factor, mode, recompute_scale_factor=recompute_scale_factor)

    def forward(self, input: Tensor) -> Tensor:
        # The operator looks at what torch.fx doesn't know.
        dims = 2 if isinstance(input, torch.fx.Proxy) else input.dim() - 2
        self._check_arguments(dims)
        size, factors = self.size, self.scale_factor
        if self.recompute_scale_factor:
            each = factors if isinstance(factors, (list, tuple)) else [factors] * dims
            size, factors = [torch.sym_int(input.shape[2 + d] * each[d]) for d in range(dims)], None
        upsample = {"nearest": upsample_nearest2d, "nearest-exact": upsample_nearest_exact2d}.get(self.mode)
        if upsample is None or dims != 2:
            raise NotImplementedError(
                "UpsampleNearest2d: expected a 4-D input and mode 'nearest' or 'nearest-exact',"
                f" got {input.dim()} dimensions and mode {self.mode!r}"
            )
        return upsample(input, size, factors)

    def _check_arguments(self, dims: int) -> None:
        """What torch.nn.Upsample refuses in every mode."""
        if (self.size is None) == (self.scale_factor is None):
            given = "neither" if self.size is None else "both"
            raise ValueError(f"UpsampleNearest2d: expected exactly one of size and scale_factor, got {given}")
        name, values = ("scale_factor", self.scale_factor) if self.size is None else ("size", self.size)
        if isinstance(values, (list, tuple)) and len(values) != dims:
            raise ValueError(f"UpsampleNearest2d: expected a {name} for each of {dims} dimensions, got {values}")
        if self.size is not None and self.recompute_scale_factor:
            raise ValueError(
                "UpsampleNearest2d: recompute_scale_factor has no meaning with size: expected scale_factor"
            )
        if self.size is not None and not _are_integers(self.size):
            raise TypeError(f"UpsampleNearest2d: expected integers as size, got {self.size!r}")


def _are_integers(size) -> bool:
    return all(_is_integer(value) for value in (size if isinstance(size, (list, tuple)) else [size]))


def _is_integer(value) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point()
    return isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool)
