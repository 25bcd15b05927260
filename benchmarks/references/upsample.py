"""Which pixels nearest-neighbour upsampling copies, and references of it and of its backward."""

from __future__ import annotations

import functools

import torch

from benchmarks.references.dtypes import wide


def _by_formula(n_in: int, n_out: int, scale: float | None, exact: bool, dtype: torch.dtype) -> torch.Tensor:
    """The source of each output pixel o: floor(o step), or in mode 'nearest-exact' floor((o + 0.5) step), computed in `dtype`."""
    if scale is not None and scale > 0:
        step = torch.tensor(1.0 / scale, dtype=torch.float64).to(dtype)
    else:
        step = torch.tensor(n_in, dtype=dtype) / torch.tensor(n_out, dtype=dtype)
    position = (torch.arange(n_out).to(dtype) + (0.5 if exact else 0.0)) * step
    # With an infinite step, pixel 0 gives NaN, which CUDA converts to 0.
    return position.float().double().floor().nan_to_num(nan=0.0).clamp(max=n_in - 1).long()


def source_index(n_in: int, n_out: int, scale: float | None, exact: bool, device: str) -> torch.Tensor:
    """The input pixel of each output pixel along one axis.

    If the sizes are equal, every pixel is its own source, whatever the scale. ATen's CPU kernels (device 'cpu') do this in mode
    'nearest' only. In that mode they also recognise a factor of 2 from the sizes.
    """
    if n_in == n_out and not (exact and device == "cpu"):
        return torch.arange(n_out)
    if n_out == 2 * n_in and not exact and device == "cpu":
        return torch.arange(n_out) // 2
    return _by_formula(n_in, n_out, scale, exact, torch.float32)


def same_in_every_kernel(n_in: int, n_out: int, scale: float | None, exact: bool) -> bool:
    """Whether ATen's CUDA kernel and all its CPU kernels copy the same pixels.

    One CPU kernel, used for large contiguous images, only applies the formula, and for float64 images applies it in float64.
    """
    axis = n_in, n_out, scale, exact
    first = source_index(*axis, "cuda")
    others = source_index(*axis, "cpu"), *(_by_formula(*axis, dtype) for dtype in (torch.float32, torch.float64))
    return all(torch.equal(first, other) for other in others)


def aten_cuda_windows_agree(n_in: int, n_out: int, scale: float | None, exact: bool) -> bool:
    """Whether ATen's CUDA backward adds up, along one axis, exactly the output pixels that are copies of each input pixel i.

    It adds the output pixels from ceil(i s) to ceil((i + 1) s), and in mode 'nearest-exact' from ceil(i s - 0.5). Here s is the
    scale or n_out / n_in, in float32.
    """
    if scale is not None and scale > 0:
        step = torch.tensor(scale, dtype=torch.float64).float()
    else:
        step = torch.tensor(n_out).float() / torch.tensor(n_in).float()
    # Product and difference are rounded once, because nvcc contracts them to one instruction.
    borders = (torch.arange(n_in + 1).double() * step.double() - (0.5 if exact else 0.0)).float()
    borders = borders.double().ceil().clamp(max=n_out).long()
    if (borders.diff() < 0).any():
        return False
    windows = torch.repeat_interleave(torch.arange(n_in), borders.diff())
    whole = int(borders[0]) == 0 and int(borders[-1]) == n_out
    return whole and torch.equal(windows, source_index(n_in, n_out, scale, exact, "cuda"))


def axes_of(input_size, output_size, scales) -> list[tuple]:
    """(input size, output size, scale) of the height and of the width."""
    return list(zip(input_size[2:], output_size, scales, strict=True))


def indices_of(device: str, exact: bool, axes: list[tuple]) -> list[torch.Tensor]:
    return [source_index(*axis, exact, device).to(device) for axis in axes]


def forward(exact: bool, x, output_size, scales_h=None, scales_w=None) -> torch.Tensor:
    rows, columns = indices_of(x.device.type, exact, axes_of(x.shape, output_size, (scales_h, scales_w)))
    return wide(x, x.dtype).index_select(2, rows).index_select(3, columns)


def forward_vec(exact: bool, x, output_size=None, scale_factors=None) -> torch.Tensor:
    if output_size is None:
        output_size = [int(n * s) for n, s in zip(x.shape[2:], scale_factors, strict=True)]
    return forward(exact, x, output_size, *(scale_factors or (None, None)))


def scattered(grad: torch.Tensor, input_size, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """Adds every output pixel's gradient to the gradient of its source pixel."""
    *images, height, width = input_size
    sums = grad.new_zeros(*images, height, grad.shape[3]).index_add(2, rows, grad)
    return grad.new_zeros(*images, height, width).index_add(3, columns, sums)


def backward(exact: bool, grad, output_size, input_size, scales_h=None, scales_w=None) -> torch.Tensor:
    indices = indices_of(grad.device.type, exact, axes_of(input_size, output_size, (scales_h, scales_w)))
    return scattered(wide(grad, grad.dtype), input_size, *indices)


REFERENCES = {
    f"upsample_nearest{kind}2d{way}": functools.partial(function, exact)
    for kind, exact in (("", False), ("_exact", True))
    for way, function in (("", forward), ("_backward", backward))
}
