"""Drop-in replacements for modules of torch.nn."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from torch_ops._conv1d import conv1d, conv_transpose1d
from torch_ops._norm import layer_norm, rms_norm
from torch_ops._upsample import upsample_nearest2d, upsample_nearest_exact2d

__all__ = ["Conv1d", "ConvTranspose1d", "LayerNorm", "RMSNorm", "Upsample", "UpsampleNearest2d"]

UpsampleMode = Literal["nearest", "nearest-exact"]


class Conv1d(torch.nn.Conv1d):
    """One-dimensional convolution by :func:`torch_ops.conv1d`, a drop-in replacement for :class:`torch.nn.Conv1d`.

    Arguments, attributes, initialisation, ``state_dict`` and results are the same. Every ``padding_mode`` is supported, and
    ``padding`` may be ``'valid'`` or ``'same'``. Padding modes other than ``'zeros'`` first pad a copy of the input, as
    :class:`torch.nn.Conv1d` does.

    ``torch.jit.trace``, ``torch.compile`` and ``torch.export`` support the module. ``torch.jit.script`` does not.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = functional.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = 0
        return conv1d(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class ConvTranspose1d(torch.nn.ConvTranspose1d):
    """One-dimensional transposed convolution by :func:`torch_ops.conv_transpose1d`, a drop-in replacement for
    :class:`torch.nn.ConvTranspose1d`.

    Arguments, attributes, initialisation, ``state_dict``, results and exceptions are the same. ``forward`` takes ``output_size``, which
    chooses the output padding.

    ``torch.jit.trace``, ``torch.compile`` and ``torch.export`` support the module. ``torch.jit.script`` does not.
    """

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if self.padding_mode != "zeros":
            raise ValueError(f"ConvTranspose1d: expected padding_mode 'zeros', got {self.padding_mode!r}")
        padding: Any = self.padding
        given: dict[str, Any] = {"stride": self.stride, "padding": padding, "kernel_size": self.kernel_size}
        output_padding = self._output_padding(
            input, output_size, **given, num_spatial_dims=1, dilation=list(self.dilation)
        )
        return conv_transpose1d(
            input, self.weight, self.bias, self.stride, padding, output_padding, self.groups, self.dilation
        )


class LayerNorm(torch.nn.LayerNorm):
    """Layer norm by :func:`torch_ops.layer_norm`, a drop-in replacement for :class:`torch.nn.LayerNorm`.

    Arguments, attributes, initialisation, ``state_dict`` and results are the same. Parameters may be float32 beside inputs of float16
    and bfloat16.

    ``torch.jit.trace``, ``torch.compile`` and ``torch.export`` support the module. ``torch.jit.script`` does not.
    """

    def forward(self, input: Tensor) -> Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.RMSNorm):
    """RMS norm by :func:`torch_ops.rms_norm`, a drop-in replacement for :class:`torch.nn.RMSNorm`.

    Arguments, attributes, initialisation, ``state_dict`` and results are the same. A float32 weight beside inputs of float16 and
    bfloat16 is one kernel, too. PyTorch composes that of eight operators.

    ``torch.jit.trace``, ``torch.compile`` and ``torch.export`` support the module. ``torch.jit.script`` does not.
    """

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)


class UpsampleNearest2d(torch.nn.Upsample):
    """Nearest-neighbour upsampling of (N, C, H, W), a drop-in replacement for :class:`torch.nn.Upsample`.

    Attributes, results and exceptions are the same. The module has no parameters and no state. As in
    :class:`torch.nn.Upsample`, arguments are checked when the module is called.

    ``torch.jit.trace``, ``torch.compile`` and ``torch.export`` support the module. ``torch.jit.script`` does not.

    Args:
        size: height and width of the output, or one number for both. Give exactly one of ``size`` and ``scale_factor``.
        scale_factor: factors of the height and of the width, or one number for both.
        mode: ``'nearest'`` (:func:`torch_ops.upsample_nearest2d`) or ``'nearest-exact'``
            (:func:`torch_ops.upsample_nearest_exact2d`).
        recompute_scale_factor: if True, ``scale_factor`` only decides the size of the output, and the step between source pixels
            is input size / output size. Otherwise the step is 1 / ``scale_factor``.

    Raises:
        ValueError: both or neither of ``size`` and ``scale_factor`` are given, or a sequence without 2 entries.
        ValueError: ``recompute_scale_factor`` is given with ``size``.
        TypeError: ``size`` is not an integer.
        NotImplementedError: another mode, an input that is not 4-D, or a dtype that the operator does not support.
        RuntimeError: a size that the operator does not support.
    """

    def __init__(
        self,
        size: int | tuple[int, int] | None = None,
        scale_factor: float | tuple[float, float] | None = None,
        mode: UpsampleMode = "nearest",
        recompute_scale_factor: bool | None = None,
    ) -> None:
        super().__init__(size, scale_factor, mode, recompute_scale_factor=recompute_scale_factor)

    def forward(self, input: Tensor) -> Tensor:
        # torch.fx does not know the number of dimensions: the operator checks it.
        dims = 2 if isinstance(input, torch.fx.Proxy) else input.dim() - 2
        self._check_arguments(dims)
        size: Any = self.size
        factors: Any = self.scale_factor
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
        """Raises what torch.nn.Upsample raises in every mode."""
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


class Upsample(UpsampleNearest2d):
    """Upsampling of any kind, a drop-in replacement for :class:`torch.nn.Upsample`.

    The modes ``'nearest'`` and ``'nearest-exact'`` of 4-D inputs are :class:`UpsampleNearest2d`. PyTorch computes all others. Arguments,
    attributes, results and exceptions are the same. In a graph of :func:`torch.fx.symbolic_trace`, PyTorch computes everything, because
    the number of dimensions is not known there.
    """

    def __init__(
        self,
        size: int | tuple[int, ...] | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ) -> None:
        torch.nn.Upsample.__init__(self, size, scale_factor, mode, align_corners, recompute_scale_factor)

    def forward(self, input: Tensor) -> Tensor:
        is_supported = (
            not isinstance(input, torch.fx.Proxy) and input.dim() == 4 and self.mode in ("nearest", "nearest-exact")
        )
        return super().forward(input) if is_supported else torch.nn.Upsample.forward(self, input)


def _are_integers(size: object) -> bool:
    return all(_is_integer(value) for value in (size if isinstance(size, (list, tuple)) else [size]))


def _is_integer(value: object) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point()
    return isinstance(value, (Integral, torch.SymInt)) and not isinstance(value, bool)
