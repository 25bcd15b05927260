"""Calls of the operators that torch_ops.override takes in deterministic mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

aten, nn = torch.ops.aten, torch._C._nn


@dataclass(frozen=True)
class Case:
    """A function of floating-point leaves, made of normally distributed values.

    Args:
        op: The replaced operator that the function or its gradient calls.
        words: The names by which torch's list of such operators has it.
        dtypes: The dtypes of the leaves that PyTorch supports.
        is_silent: Whether PyTorch does not raise for these arguments.
    """

    op: str
    words: str
    function: Callable
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float64)
    is_silent: bool = False

    def leaves(self, device, dtype: torch.dtype) -> list[torch.Tensor]:
        generator = torch.Generator(device).manual_seed(len(self.op))
        made = (torch.randn(shape, generator=generator, device=device) for shape in self.shapes)
        return [t.to(dtype).requires_grad_() for t in made]

    def outputs(self, leaves) -> list[torch.Tensor]:
        """The results of the function, and the gradients of the leaves."""
        result = self.function(*leaves)
        results = list(result) if isinstance(result, tuple) else [result]
        found = [t.detach() for t in results]
        differentiable = [t for t in results if t.requires_grad]
        if differentiable:
            weights = [
                torch.linspace(0.5, 2, t.numel(), device=t.device).view(t.shape).to(t.dtype) for t in differentiable
            ]
            found += [
                t for t in torch.autograd.grad(differentiable, leaves, weights, allow_unused=True) if t is not None
            ]
        return found


def integers(x: torch.Tensor, below: int, *shape: int) -> torch.Tensor:
    """The same random integers on every device."""
    return torch.randint(below, shape, generator=torch.Generator().manual_seed(below)).to(x.device)


def maximum_of_bags(weight):
    index = integers(weight, len(weight), 60)
    return F.embedding_bag(index, weight, torch.arange(0, 60, 5, device=weight.device), mode="max")


def unpooled(x, dims):
    index = integers(x, 1000, *x.shape).flatten(-dims).argsort(-1).view(x.shape)  # all different
    return (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[dims - 1](x, index, 2)


def reduced(x, source, reduce, include_self=True):
    index = integers(x, x.shape[1] - 1, source.shape[1])  # the last row has no entries
    return x.detach().index_reduce(1, index, source.detach(), reduce, include_self=include_self)


def multiplied(x, source):
    index = integers(x, x.shape[1], source.shape[0], 9, source.shape[2])
    return x.detach().scatter_reduce(1, index, source.detach(), "prod")


def medians(x, operator):
    values, index = operator(x.detach().masked_fill(x > 2, torch.nan), 1)
    found = x.detach().gather(1, index.unsqueeze(1)).squeeze(1)
    return values, torch.where(values.isnan(), values, found)  # of equal values, any may be found


def loss_of_images(x, weight, reduction):
    target = integers(x, x.shape[1], x.shape[0], *x.shape[2:])
    target[0, 0] = -100
    return F.nll_loss(x.log_softmax(1), target, weight.detach().abs(), reduction=reduction)


def sampled(x, grid, mode, padding, align):
    return F.grid_sample(x, grid, mode, padding, align)


FLOATS = (torch.float32, torch.float64)
IMAGE, VOLUME = (2, 3, 9, 11), (2, 3, 7, 8, 9)

CASES = [
    Case("reflection_pad1d_backward", "ReflectionPad1d", lambda x: F.pad(x, (3, 2), "reflect"), ((2, 3, 9),)),
    Case("reflection_pad2d_backward", "ReflectionPad2d", lambda x: F.pad(x, (3, 0, 2, 5), "reflect"), (IMAGE,)),
    Case("reflection_pad3d_backward", "ReflectionPad3d", lambda x: F.pad(x, (1, 2, 3, 4, 0, 6), "reflect"), (VOLUME,)),
    Case("replication_pad1d_backward", "", lambda x: nn.replication_pad1d(x, (30, 2)), ((3, 9),)),
    Case("replication_pad2d_backward", "", lambda x: nn.replication_pad2d(x, (3, 1, 12, 5)), (IMAGE,)),
    Case("replication_pad3d_backward", "", lambda x: nn.replication_pad3d(x, (1, 2, 3, 4, 0, 6)), (VOLUME,)),
    Case("max_pool3d_with_indices_backward", "MaxPool3d", lambda x: F.max_pool3d(x, 3, 1, 1), (VOLUME,)),
    Case("adaptive_max_pool2d_backward", "AdaptiveMaxPool2d", lambda x: F.adaptive_max_pool2d(x, (5, 4)), (IMAGE,)),
    Case("adaptive_max_pool3d_backward", "", lambda x: F.adaptive_max_pool3d(x, (5, 1, 4)), (VOLUME,)),
    Case("fractional_max_pool2d_backward", "FractionalMaxPool2d", lambda x: F.fractional_max_pool2d(
        x, 3, (4, 6), _random_samples=x.detach().new_full((2, 3, 2), 0.4)), (IMAGE,)),
    Case("fractional_max_pool3d_backward", "FractionalMaxPool3d", lambda x: F.fractional_max_pool3d(
        x, 3, (2, 4, 5), _random_samples=x.detach().new_full((2, 3, 3), 0.4)), (VOLUME,)),
    Case("max_unpool2d", "MaxUnpool1d", lambda x: unpooled(x, 1), ((2, 3, 9),)),
    Case("max_unpool2d", "MaxUnpool2d", lambda x: unpooled(x, 2), (IMAGE,)),
    Case("max_unpool3d", "MaxUnpool3d", lambda x: unpooled(x, 3), (VOLUME,)),
    Case("upsample_linear1d_backward", "linear", lambda x: nn.upsample_linear1d(x, [23], False, None), ((2, 3, 9),)),
    Case("upsample_bilinear2d_backward", "bilinear", lambda x: nn.upsample_bilinear2d(x, [18, 33], True), (IMAGE,)),
    Case("upsample_bilinear2d_backward", "", lambda x: nn.upsample_bilinear2d(x, None, False, [1.7, 0.6]), (IMAGE,)),
    Case("upsample_bilinear2d_backward", "", lambda x: nn.upsample_bilinear2d(x, [1, 1], True), (IMAGE,)),
    Case("upsample_trilinear3d_backward", "trilinear", lambda x: nn.upsample_trilinear3d(x, [5, 16, 20], False), (VOLUME,)),
    Case("upsample_bicubic2d_backward", "bicubic", lambda x: nn.upsample_bicubic2d(x, [18, 7], False), (IMAGE,)),
    Case("_upsample_bilinear2d_aa_backward", "", lambda x: nn._upsample_bilinear2d_aa(x, [3, 20], False), (IMAGE,)),
    Case("_upsample_bicubic2d_aa_backward", "", lambda x: nn._upsample_bicubic2d_aa(x, [4, 5], True), (IMAGE,)),
    Case("_adaptive_avg_pool2d_backward", "AdaptiveAvgPool2d", lambda x: F.adaptive_avg_pool2d(x, (5, 4)), (IMAGE,)),
    Case("_adaptive_avg_pool3d_backward", "AdaptiveAvgPool3d", lambda x: F.adaptive_avg_pool3d(x, (9, 1, 4)), (VOLUME,)),
    Case("avg_pool3d_backward", "AvgPool3d", lambda x: F.avg_pool3d(x, 3, 2, 1, True), (VOLUME,)),
    Case("avg_pool3d_backward", "", lambda x: F.avg_pool3d(x, (2, 3, 4), 1, 1, False, False), (VOLUME,)),
    Case("avg_pool3d_backward", "", lambda x: F.avg_pool3d(x[0], 3, divisor_override=5), (VOLUME,)),
    *(Case("grid_sampler_2d_backward", "grid_sample", lambda x, grid, mode=mode, padding=padding, align=align: sampled(
        x, grid, mode, padding, align), (IMAGE, (2, 6, 7, 2)), dtypes=FLOATS)
      for mode in ("bilinear", "nearest") for padding in ("zeros", "border", "reflection") for align in (False, True)
      if (mode, padding, align) != ("bilinear", "zeros", True)),  # which cuDNN computes
    *(Case("grid_sampler_3d_backward", "", lambda x, grid, padding=padding: sampled(
        x, grid, "bilinear", padding, False), (VOLUME, (2, 4, 5, 3, 3)), dtypes=FLOATS) for padding in ("zeros", "reflection")),
    *(Case("put_", "put_", lambda x, source, accumulate=accumulate: x.detach().clone().mT.put_(
        integers(x, x.numel(), 400) - 20, source.detach(), accumulate), ((20, 30), (400,)), dtypes=FLOATS)
      for accumulate in (True,)),
    Case("put_", "", lambda x, source: x.detach().clone().put_(
        torch.arange(0, 400, 2, device=x.device), source.detach()), ((20, 30), (200,))),
    Case("bincount", "bincount", lambda x: torch.bincount(integers(x, 7, 500), x.detach(), 9), ((500,),)),
    Case("histc", "histc", lambda x: torch.histc(x.detach(), 20, -2, 1.5), ((500,),), dtypes=FLOATS),
    Case("histc", "", lambda x: torch.histc(x.detach(), 7), ((30, 20),), dtypes=FLOATS),
    Case("_embedding_bag_dense_backward", "EmbeddingBag", maximum_of_bags, ((11, 6),)),
    *(Case("index_reduce", "", lambda x, source, reduce=reduce, include=include: reduced(x, source, reduce, include),
           ((4, 9, 5), (4, 30, 5))) for reduce in ("prod", "mean", "amax", "amin") for include in (True, False)),
    Case("scatter_reduce", "scatter_reduce", multiplied, ((4, 9, 5), (3, 12, 5))),
    Case("median", "median", lambda x: medians(x, torch.median), ((5, 30, 4),)),
    Case("nanmedian", "", lambda x: medians(x, torch.nanmedian), ((5, 31, 4),)),
    *(Case("nll_loss2d_forward", "NLLLoss", lambda x, weight, reduction=reduction: loss_of_images(x, weight, reduction),
           ((2, 5, 6, 7), (5,)), is_silent=reduction == "none") for reduction in ("none", "mean", "sum")),
    Case("cumsum", "cumsum", lambda x: x.cumsum(1), ((4, 100),)),
    Case("cumsum", "", lambda x: x.detach().clone().cumsum_(0), ((4, 100),)),
]  # fmt: skip
