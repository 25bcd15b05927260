"""Types of the operators of torch.ops.gpuopt. Written by python -m tools.stubs."""

from collections.abc import Sequence
from typing import overload

from torch import Tensor, dtype
from torch.types import Number

def add_layer_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1.0000000000000001e-05,
) -> tuple[Tensor, Tensor]: ...
def add_rms_norm(
    input: Tensor,
    residual: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]: ...
def axpy(x: Tensor, y: Tensor, *, alpha: Number = 1) -> Tensor: ...
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.10000000000000001,
    eps: float = 1.0000000000000001e-05,
) -> Tensor: ...
def causal_conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none") -> Tensor: ...
def causal_conv1d_update(
    input: Tensor, state: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none"
) -> Tensor: ...
@overload
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = (1,),
    padding: int | Sequence[int] = (0,),
    dilation: int | Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor: ...
@overload
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = (1,),
    padding: str = "valid",
    dilation: int | Sequence[int] = (1,),
    groups: int = 1,
) -> Tensor: ...
def conv1d_act(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = (1,),
    padding: Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1,),
    groups: int = 1,
    activation: str = "none",
) -> Tensor: ...
def conv1d_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: int | Sequence[int],
    padding: Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
    bias: Tensor | None = None,
    activation: str = "none",
) -> tuple[Tensor, Tensor, Tensor]: ...
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = (1,),
    padding: int | Sequence[int] = (0,),
    output_padding: int | Sequence[int] = (0,),
    groups: int = 1,
    dilation: int | Sequence[int] = (1,),
) -> Tensor: ...
def convolve(a: Tensor, v: Tensor, mode: str = "full") -> Tensor: ...
@overload
def cumsum(
    self: Tensor, dim: int, *, dtype: dtype | None = None, reverse: bool = False, exclusive: bool = False
) -> Tensor: ...
@overload
def cumsum(
    self: Tensor, dim: int, *, dtype: dtype | None = None, reverse: bool = False, exclusive: bool = False, out: Tensor
) -> Tensor: ...
def cumsum_(
    self: Tensor, dim: int, *, dtype: dtype | None = None, reverse: bool = False, exclusive: bool = False
) -> Tensor: ...
@overload
def dot(self: Tensor, tensor: Tensor) -> Tensor: ...
@overload
def dot(self: Tensor, tensor: Tensor, *, out: Tensor) -> Tensor: ...
def dot_fast_atomic(self: Tensor, tensor: Tensor) -> Tensor: ...
def dot_rows(self: Tensor, tensor: Tensor) -> Tensor: ...
def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor: ...
def group_by(index: Tensor, bins: int, *, dtype: dtype | None = None) -> tuple[Tensor, Tensor]: ...
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1.0000000000000001e-05,
    activation: str | None = None,
) -> Tensor: ...
@overload
def index_add(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1, mode: str = "fast"
) -> Tensor: ...
@overload
def index_add(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1, mode: str = "fast", out: Tensor
) -> Tensor: ...
def index_add_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1, mode: str = "fast"
) -> Tensor: ...
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor: ...
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.10000000000000001,
    eps: float = 1.0000000000000001e-05,
) -> Tensor: ...
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1.0000000000000001e-05,
) -> Tensor: ...
def linear_recurrence(
    a: Tensor, b: Tensor, dim: int, initial: Tensor | None = None, reverse: bool = False, *, shifted: bool = False
) -> Tensor: ...
def matmul(self: Tensor, other: Tensor, *, precision: str = "ieee") -> Tensor: ...
@overload
def mul(self: Tensor, other: Number) -> Tensor: ...
@overload
def mul(self: Tensor, other: Number, *, out: Tensor) -> Tensor: ...
@overload
def mul(self: Tensor, other: Tensor) -> Tensor: ...
@overload
def mul(self: Tensor, other: Tensor, *, out: Tensor) -> Tensor: ...
@overload
def mul_(self: Tensor, other: Number) -> Tensor: ...
@overload
def mul_(self: Tensor, other: Tensor) -> Tensor: ...
def pad(self: Tensor, pad: Sequence[int], mode: str = "constant", value: Number | None = None) -> Tensor: ...
@overload
def reduce_max(self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor: ...
@overload
def reduce_max(
    self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Tensor
) -> Tensor: ...
@overload
def reduce_mean(
    self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor: ...
@overload
def reduce_mean(
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor,
) -> Tensor: ...
@overload
def reduce_min(self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Tensor: ...
@overload
def reduce_min(
    self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, out: Tensor
) -> Tensor: ...
@overload
def reduce_sum(
    self: Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False, *, dtype: dtype | None = None
) -> Tensor: ...
@overload
def reduce_sum(
    self: Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: dtype | None = None,
    out: Tensor,
) -> Tensor: ...
def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor: ...
def scatter(src: Tensor, dim: int, index: Tensor, bins: int, reduce: str = "sum") -> Tensor: ...
def sddmm(
    ptr: Tensor,
    index: Tensor | None,
    entry: Tensor | None,
    a: Tensor,
    b: Tensor,
    heads: bool = False,
    t_ptr: Tensor | None = None,
    t_index: Tensor | None = None,
    t_entry: Tensor | None = None,
) -> Tensor: ...
def segment_expand(rows: Tensor, offsets: Tensor, entries: int) -> Tensor: ...
def segment_reduce(data: Tensor, offsets: Tensor, reduce: str = "sum", empty: float | None = None) -> Tensor: ...
def segment_softmax(src: Tensor, offsets: Tensor) -> Tensor: ...
def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
) -> tuple[Tensor, Tensor]: ...
def selective_scan_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
) -> Tensor: ...
def spmm(
    ptr: Tensor,
    index: Tensor | None,
    entry: Tensor | None,
    value: Tensor | None,
    dense: Tensor,
    reduce: str = "sum",
    t_ptr: Tensor | None = None,
    t_index: Tensor | None = None,
    t_entry: Tensor | None = None,
) -> Tensor: ...
def transpose2d(self: Tensor) -> Tensor: ...
def triangle_count(source: Tensor, target: Tensor, vertices: int, per_vertex: bool = False) -> Tensor: ...
@overload
def upsample_nearest2d(
    input: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> Tensor: ...
@overload
def upsample_nearest2d(
    self: Tensor, output_size: Sequence[int], scales_h: float | None = None, scales_w: float | None = None
) -> Tensor: ...
def upsample_nearest2d_backward(
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor: ...
@overload
def upsample_nearest_exact2d(
    input: Tensor, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None
) -> Tensor: ...
@overload
def upsample_nearest_exact2d(
    self: Tensor, output_size: Sequence[int], scales_h: float | None = None, scales_w: float | None = None
) -> Tensor: ...
def upsample_nearest_exact2d_backward(
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Tensor: ...
@overload
def vdot(self: Tensor, other: Tensor) -> Tensor: ...
@overload
def vdot(self: Tensor, other: Tensor, *, out: Tensor) -> Tensor: ...
