"""Convolutions on a GPU: overlapping calls give the same bits, and the memory that a call allocates.

Results that ATen computes are repeatable because tests/conftest.py sets cuDNN's deterministic flag. Errors are tested in
test_accuracy.py.
"""

from __future__ import annotations

import functools
import itertools

import pytest
import torch

import torch_ops

from ...cases import tensors
from ...cases.conv1d import CASES
from ...support.compare import Failures, close, different_bits, different_from_reference
from ...support.conv1d_calls import GRADIENTS, KINDS, MANY, make_call
from ...support.overlap import Calls
from ...support.runtime import captured, deterministic_algorithms, peak

pytestmark = pytest.mark.gpu
CASE = {case.name: case for case in CASES}
FORWARD, BACKWARD = CASE["conv1d_act"], CASE["conv1d_backward"]


# ---------------------------------------------------------------- every path


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_every_path(dtype):
    """Every path runs except the one for small problems, which most other tests use."""
    failures = Failures()
    for call in MANY:
        operands, grad, steps = call.make(dtype)
        for case, args, given in (
            (FORWARD, operands, {**steps, "activation": "silu"}),
            (BACKWARD, (grad, *operands[:2]), {**steps, "output_mask": [True, True, False]}),
        ):
            name = f"{case.name}, {call}"
            with failures.sample(name):
                got, exact = case.op(*args, **given), case.reference(*args, **given)
                bound = case.bound("cuda", dtype, exact, *args, **given)
                failures.add(name, different_from_reference(got, exact, bound))
    failures.check(at_least=2 * len(MANY))


def goes_through_rows(x, w, grad, steps, what: str) -> bool:
    """Whether the plan of a pass transposes channels-last signals to rows."""
    sizes = (*(steps[name][0] for name in ("stride", "padding", "dilation")), steps["groups"])
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    operand = None if what == "output" else grad
    return torch.ops.gpuopt_ladder.conv1d_paths(x, w, None, operand, *sizes, what, sms).startswith("rows\n")


@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_plans_through_rows_give_the_bits_of_rows(dtype):
    """They run the kernel that contiguous signals take. Results are channels last."""
    met = set()
    for call in (call for call in MANY if call.layout == "transposed"):
        (x, w, b), grad, steps = call.make(dtype)
        for what, k in (("output", None), ("grad_input", 0), ("grad_weight", 1)):
            if not goes_through_rows(x, w, grad, steps, what):
                continue
            met.add(what)

            def run(x, grad, k=k, w=w, b=b, steps=steps):
                if k is None:
                    return FORWARD.op(x, w, b, **steps, activation="silu")
                mask = [i == k for i in range(3)]
                return torch.ops.gpuopt.conv1d_backward(grad, x, w, **steps, output_mask=mask, bias=None)[k]

            got, want = run(x, grad), run(x.contiguous(), grad.contiguous())
            assert different_bits(got, want) is None, f"{what}, {call}"
            assert k == 1 or got.mT.is_contiguous(), f"{what}, {call}: {got.stride()}"
    assert "grad_input" in met


# ---------------------------------------------------------------- calls for ../test_overlap.py


@functools.cache
def overlapping() -> Calls:
    """The forward and the gradients of every kind, as functions without arguments that return a tensor."""
    calls = {}
    for kind, layout, dtype in itertools.product(KINDS, ("contiguous", "transposed"), (torch.float32, torch.bfloat16)):
        if kind == "dense":
            continue  # computed by cuDNN only
        for taps, stride in ((4, 1), (17, 2)):
            operands, grad, steps = make_call(kind, taps, dtype, stride, layout=layout, seed=3)
            name = f"{kind}, {layout}, {dtype}, {taps} taps"
            calls[name] = functools.partial(FORWARD.op, *operands, **steps, activation="silu")
            for k, of in enumerate(GRADIENTS):
                mask = [i == k for i in range(3)]
                calls[f"{name}, {of}"] = functools.partial(BACKWARD.op, grad, *operands[:2], **steps, output_mask=mask)
    big = tensors.Maker("cuda", torch.float32)
    x, w = big(8, 64, 20_001), big(64, 1, 9)
    calls["large"] = functools.partial(torch_ops.conv1d, x, w, groups=64)
    calls["large, weight"] = functools.partial(
        BACKWARD.op,
        big(8, 64, 19_993),
        x,
        w,
        stride=[1],
        padding=[0],
        dilation=[1],
        groups=64,
        output_mask=[False, True, False],
    )
    return Calls(calls)


OWN = ("depthwise", "depthwise, 768", "one channel", "one position", "short")  # gpuopt has kernels at stride 1


def test_own_kernels_repeat_whatever_cudnn_is_asked():
    calls = overlapping()  # all tests share these calls, and some of them call cuDNN
    own = [name for name in calls.names if name.startswith("large") or _is_own(name)]
    assert len(own) >= 80
    with torch.backends.cudnn.flags(True, deterministic=False, allow_tf32=False):
        calls.repeat(5, own)


def _is_own(name: str) -> bool:
    return name.startswith(tuple(f"{kind}, {layout}" for kind in OWN for layout in ("contiguous", "transposed"))) and (
        ", 4 taps" in name
    )


def test_graph_of_updates():
    """Every replay of a graph advances the state by one position."""
    make = tensors.Maker("cuda", torch.float32)
    x, state, w = make(2, 40), torch.zeros(2, 40, 3, device="cuda"), make(40, 4)
    graph, result = captured(lambda: torch_ops.causal_conv1d_update(x, state, w, None, "silu"))
    state.zero_()
    positions = make(2, 40, 6)
    want = torch_ops.causal_conv1d(positions, w, None, "silu")
    for k in range(6):
        x.copy_(positions[..., k])
        graph.replay()
        assert close(result, want[..., k]) is None


def test_deterministic_algorithms():
    """use_deterministic_algorithms changes no bit of results of gpuopt's kernels. Dense convolutions, by cuDNN, obey it."""
    calls = overlapping()
    with deterministic_algorithms():
        calls.repeat(1)
        operands, grad, steps = make_call("dense", 5, torch.float32)
        mask = {**steps, "output_mask": [True, True, True]}
        for case, args, given in ((FORWARD, operands, steps), (BACKWARD, (grad, *operands[:2]), mask)):
            assert different_bits(case.op(*args, **given), case.op(*args, **given)) is None


# ---------------------------------------------------------------- memory


def test_operands_are_never_copied():
    """A call allocates its results and, for the weight's gradient, a workspace, in every layout and with any padding."""
    make = tensors.Maker("cuda", torch.float32)
    x, w = make(8, 64, 2**15 + 5), make(64, 1, 4)
    for given in (x, x[..., 1:-2], x[:, :, ::2], x.mT.contiguous().mT, x.expand(8, -1, -1), x[:1].expand(8, -1, -1)):
        for call in (
            lambda t=given: torch_ops.causal_conv1d(t, w[:, 0], None, "silu"), lambda t=given: torch_ops.conv1d(t, w, padding="same", groups=64),
        ):  # fmt: skip
            size = call().nbytes
            assert peak(call) <= size + 2**20
        grad = torch.ones((), device="cuda").expand(given.shape)
        for mask in ((True, False, False), (False, True, False)):
            most = peak(lambda m=mask, t=given, g=grad: torch_ops.conv1d_backward(g, t, w, 1, (3, 0), 1, 64, m))
            assert most <= mask[0] * given.numel() * 4 + x.nbytes // 8 + 2**20, (
                f"{tuple(given.stride())}, {mask}: {most} bytes"
            )
