"""Convolutions on a GPU: errors of every path against float64, and the propagation of infinities and NaN."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import torch_ops
from benchmarks.references.dtypes import compute_type

from ...cases import tensors
from ...cases.conv1d import ACTIVATIONS, CASES, conv1d_reference, is_depthwise, update_bound, update_reference
from ...support.compare import Failures, different_bits, different_from_reference
from ...support.conv1d_calls import GRADIENTS, KINDS, make_call

pytestmark = pytest.mark.gpu
CASE = {case.name: case for case in CASES}
FORWARD, BACKWARD = CASE["conv1d_act"], CASE["conv1d_backward"]
each_dtype = pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
each_kind = pytest.mark.parametrize("kind", KINDS)
STRIDES_AND_DILATIONS = (
    [(s, 1) for s in range(1, 9)] + [(1, d) for d in (2, 3, 4, 5, 7, 8, 15, 16)] + [(2, 2), (3, 5), (4, 16), (8, 3)]
)
TAPS = (*range(1, 18), 21, 24, 31, 32, 33, 48, 63, 64, 65, 70)


def _check_all(failures: Failures, name: str, operands, grad, steps, activation="none") -> None:
    """Compares the forward with its activation, and each gradient, with float64."""
    given = {**steps, "activation": activation}
    with failures.sample(name):
        got = FORWARD.op(*operands, **given)
        exact = FORWARD.reference(*operands, **given)
        failures.add(
            name, different_from_reference(got, exact, FORWARD.bound("cuda", got.dtype, exact, *operands, **given))
        )
    for k, of in enumerate(GRADIENTS):
        mask = {**steps, "output_mask": [i == k for i in range(3)]}
        args = grad, *operands[:2]
        with failures.sample(f"{name}, gradient of {of}"):
            got, exact = BACKWARD.op(*args, **mask), BACKWARD.reference(*args, **mask)
            bound = BACKWARD.bound("cuda", got.dtype, exact, *args, **mask)
            failures.add(f"{name}, gradient of {of}", different_from_reference(got, exact, bound))


# ---------------------------------------------------------------- values


@each_kind
@each_dtype
def test_taps(kind, dtype):
    failures = Failures()
    for k, taps in enumerate(TAPS):
        layout = ("contiguous", "transposed", "misaligned1", "sliced")[k % 4]
        padding = (None, (taps - 1, 0), (0, 0), (taps - 1, taps - 1))[k // 4 % 4]
        call = make_call(kind, taps, dtype, padding=padding, layout=layout, seed=k)
        _check_all(failures, f"{kind}, {taps} taps, {layout}, {padding}", *call, activation=list(ACTIVATIONS)[k % 4])
    failures.check(at_least=100)


@each_kind
@each_dtype
def test_strides_and_dilations(kind, dtype):
    failures = Failures()
    for k, (stride, dilation) in enumerate(STRIDES_AND_DILATIONS):
        for taps in (2, 3 + k % 6):
            layout = ("transposed", "contiguous", "misaligned3", "contiguous")[k % 4]
            call = make_call(kind, taps, dtype, stride, dilation, layout=layout, seed=k)
            _check_all(failures, f"{kind}, {taps} taps, step {stride}, dilation {dilation}, {layout}", *call)
    failures.check(at_least=150)


@each_dtype
@pytest.mark.parametrize("layout", [name for name in tensors.LAYOUTS if name not in ("channels_last", "conj")])
def test_layouts(layout, dtype):
    """Every layout of the input, the gradient, the weight and the bias."""
    failures = Failures()
    for kind, taps in itertools.product(KINDS, (3, 8)):
        operands, grad, steps = make_call(kind, taps, dtype)
        laid_out = [tensors.LAYOUTS[layout](t) for t in (*operands[:2], grad)]
        if any(t is None for t in laid_out):
            continue
        x, w, grad_in_layout = laid_out
        bias = (
            tensors.LAYOUTS[layout](operands[2]) if layout in ("step2", "misaligned1", "misaligned3") else operands[2]
        )
        name = f"{kind}, {taps} taps, {layout}"
        _check_all(failures, f"{name} input", (x, *operands[1:]), grad, steps)
        _check_all(failures, f"{name} weight", (operands[0], w, bias), grad, steps)
        _check_all(failures, f"{name} gradient", operands, grad_in_layout, steps)
    failures.check(at_least=0 if layout == "neg" else 250)


@each_dtype
def test_sizes(dtype):
    """Numbers of positions and of channels with every remainder of a vector and of a warp's vectors, and an expanded bias."""
    failures = Failures()
    make = tensors.Maker("cuda", dtype)
    for positions in (*range(1, 36), 63, 64, 65, 127, 129, 255, 257, 511, 513, 1023, 1025, 2047, 2049, 4097):
        for channels, layout in ((3, "contiguous"), (8, "transposed"), (1, "contiguous")):
            x, w = tensors.LAYOUTS[layout](make(2, channels, positions)), make(channels, 1, 4)
            steps = {"stride": [1], "padding": [3, 0], "dilation": [1], "groups": channels}
            _check_all(
                failures,
                f"{positions} positions of {channels}",
                (x, w, make(1).expand(channels)),
                make(2, channels, positions),
                steps,
            )
    for channels in (*range(1, 36), 63, 64, 65, 127, 129, 255, 257, 1000):
        x, w = make(2, 11, channels).mT, make(channels, 1, 3)
        steps = {"stride": [1], "padding": [1, 1], "dilation": [1], "groups": channels}
        _check_all(failures, f"{channels} channels", (x, w, make(channels)), make(2, 11, channels).mT, steps)
    failures.check(at_least=500)


@each_dtype
def test_long_kernels(dtype):
    """Thousands of taps, filters longer than the signal, dilation, stride, and windows that lie entirely in the padding."""
    failures = Failures()
    make = tensors.Maker("cuda", dtype)
    for (n, c, positions), taps, stride, dilation, padding in (
        ((1, 1, 5001), 1000, 1, 1, (500, 499)), ((1, 4, 4099), 4096, 1, 1, (0, 0)), ((2, 3, 300), 4096, 1, 1, (4095, 0)),
        ((1, 2, 2049), 513, 3, 2, (512, 512)), ((1, 1, 3001), 257, 8, 9, (0, 3)), ((2, 8, 1025), 255, 1, 4, (508, 508)),
        ((1, 5, 40), 3, 1, 1, (100, 90)), ((3, 4, 33), 5, 7, 16, (70, 70)), ((1, 33, 700), 129, 2, 1, (128, 0)),
    ):  # fmt: skip
        out = (positions + sum(padding) - dilation * (taps - 1) - 1) // stride + 1
        steps = {"stride": [stride], "padding": list(padding), "dilation": [dilation], "groups": c}
        # Transposed layouts fall back to ATen, whose fp16 and bf16 exceed these bounds.
        for layout in ("contiguous",) if dtype.itemsize == 2 else ("contiguous", "transposed"):
            x, grad = (tensors.LAYOUTS[layout](make(n, c, size)) for size in (positions, out))
            operands = x, make(c, 1, taps) / 8, make(c)
            _check_all(failures, f"{taps} taps over {tuple(x.shape)}, {layout}", operands, grad, steps)
    failures.check(at_least=36)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_add_up_in_float32(dtype):
    """Sums of ones, which would stop at 256 in bf16 or 2048 in fp16: long filters forward, and all positions backward."""
    x, w = torch.ones(2, 4, 9000, dtype=dtype, device="cuda"), torch.ones(4, 1, 4096, dtype=dtype, device="cuda")
    assert (
        torch_ops.conv1d(x[:1, :1], w[:1]) == 4096
    ).all()  # one row, because more rows with so many taps do not fit into a block
    # Channels-last: ones are added to 4096 one after another. 4223 rounds to 4224 in both dtypes.
    last, few = torch.ones(2, 900, 8, dtype=dtype, device="cuda").mT, torch.ones(8, 1, 128, dtype=dtype, device="cuda")
    few[..., 0] = 4096
    assert (torch_ops.conv1d(last, few, groups=8) == 4224).all()
    for t in (x, x.mT.contiguous().mT):
        grads = torch_ops.conv1d_backward(torch.ones_like(t), t, w[..., :3], padding=1, groups=4)
        assert (grads[1][..., 1] == 18_000).all() and (grads[2] == 18_000).all()


@each_dtype
def test_own_kernels_are_no_further_off_than_atens(dtype):
    """Mean errors of large calls are no larger than ATen's, without TF32 (tests/conftest.py).

    gpuopt adds the n products of an input gradient one after another, with a mean error of about 0.15 sqrt(n) roundings of the
    result. ATen may add them in parts.
    """
    for kind in ("depthwise, 768", "one channel", "few into many", "two outputs a channel"):
        for taps in (4, 33):
            operands, grad, steps = make_call(kind, taps, dtype)
            products = operands[1][:, 0].numel() // steps["groups"]
            for case, args, given, count in (
                (FORWARD, operands, steps, 0),
                *(
                    (BACKWARD, (grad, *operands[:2]), {**steps, "output_mask": [i == k for i in range(3)]}, count)
                    for k, count in enumerate((products, 0))
                ),
            ):
                exact = case.reference(*args, **given)
                ours, theirs = (float((f(*args, **given) - exact).abs().mean()) for f in (case.op, case.aten))
                mean = float(exact.abs().mean())
                sums = 0.2 * math.sqrt(count) * torch.finfo(compute_type("cuda", dtype)).eps * mean
                allowed = 1.5 * theirs + 0.1 * torch.finfo(dtype).eps * mean + sums
                assert ours <= allowed, f"{case}, {kind}, {taps}: {ours}, ATen's {theirs}"


def test_own_kernels_ignore_tf32():
    operands, grad, steps = make_call("depthwise", 7, torch.float32)
    want = FORWARD.op(*operands, **steps)
    with torch.backends.cudnn.flags(True, allow_tf32=True):
        assert different_bits(FORWARD.op(*operands, **steps), want) is None


@each_dtype
def test_updates_of_a_causal_convolution(dtype):
    """causal_conv1d_update with states of the smallest length and longer, in any layout, and sizes around a vector and a block."""
    failures, make = Failures(), tensors.Maker("cuda", dtype)
    for (n, c), (size, taps) in itertools.product(
        ((1, 1), (2, 3), (3, 33), (1, 1000), (70, 257), (2, 4096)),
        ((0, 1), (1, 2), (3, 4), (4, 4), (7, 2), (15, 16), (70, 65)),
    ):
        for layout, activation in zip(
            ("contiguous", "transposed", "sliced", "reversed", "rotated", "step2", "misaligned1"), [*ACTIVATIONS] * 2
        ):
            state = tensors.LAYOUTS[layout](make(n, c, size))
            x = tensors.LAYOUTS["transposed" if layout == "transposed" else "misaligned1"](make(n, c))
            args = x, state, make(c, taps), make(c)
            exact = update_reference(*args, activation)
            bound = update_bound("cuda", dtype, exact, *args, activation)
            name = f"({n}, {c}), {size}, {taps} taps, {layout}, {activation}"
            with failures.sample(name):
                got = torch_ops.causal_conv1d_update(*args, None if activation == "none" else activation)
                failures.add(name, different_from_reference(torch.cat([got[..., None], state], -1), exact, bound))
    failures.check(at_least=250)


# ---------------------------------------------------------------- values that are not finite


def _reached(x_bad, w_bad, steps) -> torch.Tensor:
    """The outputs that depend on a marked input: `x_bad` and `w_bad` are ones where a value is marked, and zeros elsewhere."""
    return conv1d_reference(x_bad.double(), w_bad.double(), None, **steps) > 0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["depthwise", "two outputs a channel", "few into many", "one channel", "short"])
def test_where_values_that_are_not_finite_get(kind, value):
    """A non-finite value in the input or in grad_output reaches exactly the results that depend on it, in either layout.

    This is tested for problems with a kernel in gpuopt, because cuDNN's algorithms differ. For float64 that is every problem.
    """
    failures = Failures()
    for layout, (taps, stride, dilation), dtype in itertools.product(
        ("contiguous", "transposed"),
        ((3, 1, 1), (4, 2, 1), (5, 1, 3), (33, 1, 1)),
        (torch.float64, torch.float32, torch.bfloat16),
    ):
        (x, w, b), grad, steps = make_call(kind, taps, dtype, stride, dilation, layout=layout)
        if dtype != torch.float64 and not is_depthwise(x, w, steps["stride"], steps["dilation"], steps["groups"]):
            continue
        w, ones = w.abs() + 0.5, torch.ones_like(w)
        for position in (0, x.shape[2] // 2, x.shape[2] - 1):
            bad = x.clone(memory_format=torch.preserve_format)
            bad[-1, -1, position] = value
            name = f"{kind}, {layout}, {taps}, {stride}, {dilation}, {dtype}, {position}"
            with failures.sample(name):
                mask = _reached(~bad.isfinite(), ones, steps)
                got = FORWARD.op(bad, w, b, **steps)
                failures.add(name, None if torch.equal(~got.isfinite(), mask) else "the forward differs")
                _, of_weight, _ = torch_ops.conv1d_backward(torch.ones_like(got), bad, w, **steps)
                mask = BACKWARD.reference(
                    torch.ones_like(got),
                    ~bad.isfinite() * torch.ones_like(x),
                    w,
                    **steps,
                    output_mask=[False, True, False],
                )
                failures.add(
                    name, None if torch.equal(~of_weight.isfinite(), mask > 0) else "weight's gradient differs"
                )
        for position in (0, grad.shape[2] // 2, grad.shape[2] - 1):
            bad = grad.clone(memory_format=torch.preserve_format)
            bad[-1, -1, position] = value
            name = f"gradient of {kind}, {layout}, {taps}, {stride}, {dilation}, {dtype}, {position}"
            with failures.sample(name):
                of_input, of_weight, of_bias = torch_ops.conv1d_backward(bad, x, w, **steps)
                marks = ~bad.isfinite() * torch.ones_like(grad)
                for got, k in ((of_input, 0), (of_weight, 1), (of_bias, 2)):
                    mask = (
                        BACKWARD.reference(
                            marks, torch.ones_like(x), ones, **steps, output_mask=[i == k for i in range(3)]
                        )
                        > 0
                    )
                    # In the weight's gradient, an infinity may also be multiplied by the zeros of padding.
                    same = (
                        torch.equal(~got.isfinite(), mask)
                        if k != 1
                        else bool((~got.isfinite() >= mask).all()) and bool(got[:-1].isfinite().all())
                    )
                    failures.add(name, None if same else f"the gradient of {GRADIENTS[k]} differs")
    failures.check(at_least=48)


# ---------------------------------------------------------------- gradients through autograd


@each_kind
def test_gradients_equal_those_of_the_cpu(kind):
    """Gradients through autograd, for calls as in models, against ATen's on the CPU in float64."""
    for activation, taps in zip(ACTIVATIONS, (3, 4, 9, 16)):
        operands, _, steps = make_call(kind, taps, torch.float32, stride=1 + taps % 2)
        grads = []
        for device, dtype in (("cuda", torch.float32), ("cpu", torch.float64)):
            leaves = [t.to(device, dtype).requires_grad_() for t in operands]
            op = FORWARD.op if device == "cuda" else FORWARD.aten
            result = op(*leaves, **steps, activation=activation)
            total = result.double().square().sum() + result.double().sum()  # a sum has an expanded gradient
            grads.append([g.cpu().double() for g in torch.autograd.grad(total, leaves)])
        for ours, theirs in zip(*grads, strict=True):
            assert float((ours - theirs).abs().max()) <= 2e-5 * float(theirs.abs().max()), (
                f"{kind}, {activation}, {taps}"
            )
