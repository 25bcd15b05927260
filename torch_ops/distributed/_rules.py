"""How each operator is computed on shards: one row for each operator, which ``_sharding.py`` gives to DTensor.

A rule names the axes of every tensor, as in ``input(n c L) weight(o c K) &bias(o) -> (n o L)/c``:

- An axis in lower case may be sharded. Each tensor that has it is sharded there, and all others are replicated.
- ``-> (n o L)/c`` says that the result is a sum over c: results of shards of c are partial.
- ``&bias`` is added to that sum. It counts once, so each rank has a part of it.
- An axis in upper case is whole on every rank, and so are tensors that a rule does not name.
- ``d:`` has an entry for each group of d. Both are sharded, or there is one group.
- ``...`` are all other dimensions, which broadcast.
- ``%t`` are all dimensions, where t is the one that the argument ``dim`` names. ``%`` leaves it out, and ``%=t`` leaves it out
  unless ``keepdim``.
- ``input(n c L | c L)`` is the first form with the tensor's number of dimensions.
- ``*N`` are the last dimensions, as many as the argument ``dims`` says or ``pad`` has pairs, and ``*1`` as many of size 1. ``/~`` is a
  sum over ``...``.
- ``[h]`` is there if ``value`` is (entries, heads).
- A result ``weight/n`` has the axes of this argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """How an operator is computed on shards.

    Args:
        form: the axes of the tensors.
        partial: how the partial results of a summed axis are combined: ``"sum"``, ``"avg"``, ``"max"`` or ``"min"``.
        linear: groups of arguments. If all of a group are partial sums and the others replicated, results are partial sums.
        linear_if: the values of arguments with which the operator is linear.
        whole: axes that are whole unless an argument has this value: ``{"activation": ("none", "c")}``.
        refused: axes that are sharded by functions of torch_ops.distributed only, unless an argument has this value.
        filled: axes that are sharded only if every rank has a part, because the operator refuses or means something else without.
        size: the position of an argument that is the size of the result. It becomes the size of the shard.
    """

    form: str
    partial: str = "sum"
    linear: tuple[str, ...] = ()
    linear_if: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    whole: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    refused: Mapping[str, tuple[Any, str]] = field(default_factory=dict)
    filled: str = ""
    size: int | None = None


_GROUPS = {"groups": (1, "c o")}
_NO_ACTIVATION = {"activation": ("none", "c")}
_CONV = "input(n c L | c L) weight(o c K) &bias(o) -> (n o L)/c"
_TRANSPOSED = "input(n c L | c L) weight(c o K) &bias(o) -> (n o L)/c"
_CONV_GRADIENTS = "grad_output(n o L | o L) input(n c L | c L) weight(o c K) bias(o) -> input/o weight/n (o)/n"
_SCAN = "u(b d L) delta(b d L) A(d N) B(b d: N L | b N L | d N) C(b d: N L | b N L | d N) D(d) z(b d L) delta_bias(d)"
_UPDATE = (
    "state(b h d N | b d N) x(b h d | b d) dt(b h d | b d) A(h d N | d N) B(b h: N | b N) C(b h: N | b N) "
    "D(h d | d) z(b h d | b d) dt_bias(h d | d) -> (b h d)"
)
_ATTENTION = "left(R h K | R h) right(C h K | C h) value(C h f) bias(E h)"
_DENSE = "value(E h | E) dense(... C [h] f | C)"
_NORM = "input(... *N) weight(*N)"
_IMAGES = "(n C D H W | n C H W | n C L | n C)"
_CHANNELS = "(N c D H W | N c H W | N c L | N c)"
_SUMS = {"reduce": ("sum", "mean")}

RULES: dict[str, Rule] = {
    # element by element
    "mul": Rule("self(...) other(...) -> (...)", linear=("self", "other")),
    "mul_": Rule("self(...) other(...) -> (...)", linear=("self",)),
    "axpy": Rule("x(...) y(...) -> (...)", linear=("x y",)),
    "fma": Rule("a(...) b(...) c(...) -> (...)", linear=("a c", "b c")),
    # reductions and scans
    "reduce_sum": Rule("self(%r) -> (%=r)/r", linear=("self",)),
    "reduce_mean": Rule("self(%r) -> (%=r)/r", "avg", linear=("self",)),
    "reduce_max": Rule("self(%r) -> (%=r)/r", "max", filled="r"),
    "reduce_min": Rule("self(%r) -> (%=r)/r", "min", filled="r"),
    "cumsum": Rule("self(%T) -> (%T)", linear=("self",)),
    "cumsum_": Rule("self(%T) -> (%T)", linear=("self",)),
    "linear_recurrence": Rule("a(%T) b(%T) initial(%) -> (%T)", linear=("b initial",)),
    # norms
    "_layer_norm": Rule(f"{_NORM} bias(*N) -> (... *N) (... *1) (... *1)"),
    "_rms_norm": Rule(f"{_NORM} -> (... *N) (... *1)"),
    "_add_layer_norm": Rule(f"{_NORM} residual(... *N) bias(*N) -> (... *N) (... *1) (... *1) (... *N)"),
    "_add_rms_norm": Rule(f"{_NORM} residual(... *N) -> (... *N) (... *1) (... *N)"),
    "_layer_norm_backward": Rule(
        f"grad(... *N) sum_grad(... *N) {_NORM} mean(... *1) rstd(... *1) -> (... *N) (*N)/~ (*N)/~",
        linear=("grad sum_grad",),
    ),
    "_rms_norm_backward": Rule(
        f"grad(... *N) sum_grad(... *N) {_NORM} rstd(... *1) -> (... *N) (*N)/~", linear=("grad sum_grad",)
    ),
    "_group_norm": Rule(f"input{_IMAGES} weight(C) bias(C) -> input (n G) (n G)"),
    "_group_norm_backward": Rule(
        f"grad{_IMAGES} input{_IMAGES} mean(n G) rstd(n G) weight(C) bias(C) -> input (C)/n (C)/n", linear=("grad",)
    ),
    "_batch_norm": Rule(f"input{_CHANNELS} weight(c) bias(c) mean(c) variance(c) -> input (c) (c) (c)"),
    "_batch_norm_backward": Rule(
        f"grad{_CHANNELS} input{_CHANNELS} mean(c) rstd(c) weight(c) -> input (c) (c)", linear=("grad",)
    ),
    # products
    "dot": Rule("self(n) tensor(n) -> ()/n", linear=("self", "tensor")),
    "dot_fast_atomic": Rule("self(n) tensor(n) -> ()/n", linear=("self", "tensor")),
    "vdot": Rule("self(n) other(n) -> ()/n", linear=("self", "other")),
    "dot_rows": Rule("self(r n) tensor(r n) -> (r)/n", linear=("self", "tensor")),
    "matmul": Rule("self(... m k | k) other(... k n | k) -> (... m n)/k", linear=("self", "other")),
    # convolutions of signals
    "conv1d": Rule(_CONV, linear=("input bias", "weight bias"), refused=_GROUPS, filled="c o"),
    "conv1d_act": Rule(_CONV, whole=_NO_ACTIVATION, refused=_GROUPS, filled="c o"),
    "conv1d_backward": Rule(
        _CONV_GRADIENTS, linear=("grad_output",), whole=_NO_ACTIVATION, refused=_GROUPS, filled="c o"
    ),
    "conv_transpose1d": Rule(_TRANSPOSED, linear=("input bias", "weight bias"), refused=_GROUPS, filled="c o"),
    "causal_conv1d_update": Rule("input(n c) state(n c S) weight(c K) bias(c) -> (n c)", filled="c"),
    # images and matrices
    "transpose2d": Rule("self(... m n) -> (... n m)", linear=("self",)),
    "pad": Rule("self(... *N) -> (... *N)", linear=("self",), linear_if={"value": (None, 0)}, filled="~"),
    "_pad_backward": Rule("grad(... *N) -> (... *N)", linear=("grad",), filled="~", size=1),
    "upsample_nearest2d": Rule("self(n c H W) -> (n c H W)", linear=("self",), filled="c"),
    "upsample_nearest_exact2d": Rule("self(n c H W) -> (n c H W)", linear=("self",), filled="c"),
    "upsample_nearest2d_backward": Rule(
        "grad_output(n c H W) -> (n c H W)", linear=("grad_output",), filled="c", size=2
    ),
    "upsample_nearest_exact2d_backward": Rule(
        "grad_output(n c H W) -> (n c H W)", linear=("grad_output",), filled="c", size=2
    ),
    # rows that an index names
    "index_add": Rule("&self(%V) index(e |) source(%e) -> (%V)/e", linear=("self source",)),
    "index_add_": Rule("&self(%V) index(e |) source(%e) -> (%V)/e", linear=("self source",)),
    "index_select": Rule("self(%V) index(e |) -> (%e)", linear=("self",)),
    "scatter": Rule("src(%e) index(e) -> (%V)/e", linear=("src",), linear_if=_SUMS, whole={"reduce": ("sum", "e")}),
    "_scatter_arg": Rule("src(%E) -> (%V) (%V)"),
    # segments
    "group_by": Rule("-> (B) (E)"),
    "segment_reduce": Rule("data(E ...) -> (S ...)", linear=("data",), linear_if=_SUMS | {"empty": (None, 0.0)}),
    "segment_expand": Rule("rows(S ...) -> (E ...)", linear=("rows",)),
    "segment_softmax": Rule("src(E ...) -> (E ...)"),
    "_segment_reduce_arg": Rule("data(E ...) -> (S ...) (S ...)"),
    "_segment_select": Rule("rows(S ...) arg(S ...) -> (E ...)", linear=("rows",)),
    "_segment_softmax_backward": Rule("grad(E ...) result(E ...) -> (E ...)", linear=("grad",)),
    # sparse matrices
    "spmm": Rule(f"{_DENSE} -> (... R [h] f)", linear=("dense", "value"), linear_if=_SUMS),
    "_spmm_arg": Rule(f"{_DENSE} -> (... R [h] f) (... R [h] f)"),
    "_spmm_selected": Rule(f"{_DENSE} selected(... C [h] f | C) -> (... R [h] f)", linear=("dense", "value")),
    "sddmm": Rule("a(R h f | R f) b(C h f | C f) -> (E h)/f", linear=("a", "b")),
    "_transpose": Rule("-> (C) (E) (E)"),
    "_graph_attention": Rule(f"{_ATTENTION} -> (R h f) (R h)", filled="h f"),
    "_graph_attention_backward": Rule(
        f"grad(R h f) out(R h f) log_sum(R h) {_ATTENTION} -> left/f (E h) (E h)/f", filled="h f"
    ),
    # selective scans
    "selective_scan": Rule(f"{_SCAN} -> (b d L) (b d N)", filled="b d"),
    "_selective_scan_backward": Rule(
        f"out_grad(b d L) last_state_grad(b d N) {_SCAN} -> u delta A/b B/bd C/bd D/b z delta_bias/b",
        linear=("out_grad last_state_grad",),
        filled="b d",
    ),
    "selective_scan_update": Rule(_UPDATE, filled="b h d"),
    # graphs
    "triangle_count": Rule("-> (V)"),
}
