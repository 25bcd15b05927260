"""torch_ops.ladder: its lists, its errors, and on a GPU every step compared with float64."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest
import torch

from benchmarks.harness.traffic import results
from torch_ops import ladder
from torch_ops.ladder.step import _HINTS

from ..ladder_cases import CASES, cases_of
from ..ladder_cases.matmul import FLOATS
from ..support.runtime import deterministic_algorithms

GPU = pytest.mark.gpu
# The last step of matmul is PyTorch's own operator.
OPERATORS = {"matmul": torch.mm, "layer_norm_backward": torch.ops.gpuopt._layer_norm_backward}


def every_step():
    return [pytest.param(op, step.name, id=f"{op}-{step.name}") for op in ladder.ops() for step in ladder.steps(op)]


def test_every_ladder_ends_at_the_operator_of_its_name():
    for op in ladder.ops():
        found = ladder.steps(op)
        assert [step.number for step in found] == list(range(len(found))) and len(found) > 3
        assert len({step.name for step in found}) == len(found)
        assert all(re.fullmatch(r"[a-z0-9_]+", step.name) and len(step.idea) > 20 for step in found)
        assert found[-1].name == "production" and (op in OPERATORS or hasattr(torch.ops.gpuopt, op))
        schema = getattr(torch.ops.gpuopt_ladder, op).default._schema
        assert schema.arguments[-1].name == "step" and str(schema.arguments[-1].type) == "int"


def test_what_there_is_not():
    with pytest.raises(ValueError, match="op must be one of .*reduce_sum.*, got 'sum'"):
        ladder.steps("sum")
    with pytest.raises(ValueError, match="op must be one of .*, got 'ops'"):
        ladder.run("ops", 0)
    with pytest.raises(ValueError, match="step must be one of interleaved_modulo, .*, production, got 'fast'"):
        ladder.run("reduce_sum", "fast", torch.ones(3))
    for step in (-1, 99):
        with pytest.raises(ValueError, match=f"gpuopt_ladder::conv1d: step must be 0 to 5, got {step}"):
            ladder.run("conv1d", step, torch.ones(3))


@pytest.mark.parametrize("op", [None, 3, ["mul"]])
def test_the_name_of_a_ladder_is_a_word(op):
    for name, call in (("steps", ladder.steps), ("run", lambda op: ladder.run(op, 0))):
        with pytest.raises(TypeError, match=f"^ladder.{name}: op must be str, got {type(op).__name__}$"):
            call(op)


X = torch.ones(3)
WRONG_CALLS = {
    "step must be int or str, got NoneType": ("mul", None),
    "step must be int or str, got float": ("mul", 1.5, X, X),
    "step must be an integer.* got .*1.5": ("mul", torch.tensor(1.5), X, X),
    "self must be Tensor, got int": ("mul", 0, 3, X),
    "other must be Tensor, got NoneType": ("mul", "vectors", X, None),
    "value must be Tensor or None, got list": ("spmm", 0, X, X, [1.0], X),
    "output_size must be a sequence of int or int, got list": ("upsample_nearest2d", 0, X, [2, 2.5]),
    "vertices must be int, got str": ("triangle_count", 0, X, X, "many"),
    "args must be self, other, got 1 operand$": ("mul", 0, X),
    "args must be self, got 2 operands$": ("reduce_sum", 0, X, X),
}


@pytest.mark.parametrize("message", WRONG_CALLS)
def test_wrong_types(message):
    op, *others = WRONG_CALLS[message]
    with pytest.raises(TypeError, match=f"^gpuopt_ladder::{op}: {message}"):
        ladder.run(op, *others)


def test_types_of_every_schema_are_known():
    """A numpy integer and a tensor of one integer name a step, too."""
    for op in ladder.ops():
        for argument in getattr(torch.ops.gpuopt_ladder, op).default._schema.arguments:
            assert str(argument.type) in _HINTS
    for step in (np.int64(1), torch.tensor(1)):
        with pytest.raises(NotImplementedError, match="self must be on a CUDA device"):
            ladder.run("reduce_sum", step, X)


def test_a_ladder_is_for_cuda_tensors():
    """The message is one sentence. PyTorch's own lists all backends."""
    with pytest.raises(
        NotImplementedError, match="gpuopt_ladder::reduce_sum: self must be on a CUDA device.*got a tensor on cpu$"
    ):
        ladder.run("reduce_sum", 0, torch.ones(3))
    with pytest.raises(NotImplementedError, match="gpuopt_ladder::spmm: ptr must be"):
        ladder.run("spmm", "production", torch.zeros(1, dtype=torch.int32), *[torch.ones(0)] * 3)


def test_every_ladder_has_cases():
    assert sorted(CASES) == ladder.ops()


@GPU
@pytest.mark.sanitize
@pytest.mark.parametrize("op, step", every_step())
def test_every_step(op, step):
    count = 0
    for args, expected, tolerance in cases_of(op, step, "cuda"):
        for result, wanted in zip(results(ladder.run(op, step, *args)), results(expected), strict=True):
            assert result.shape == wanted.shape
            torch.testing.assert_close(result.double(), wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
        count += 1
    assert count > 5


@GPU
@pytest.mark.parametrize("op, step", every_step())
def test_repeatable_steps_repeat(op, step):
    repeatable = next(known.repeatable for known in ladder.steps(op) if known.name == step)
    *_, (args, _, _) = cases_of(op, step, "cuda")

    def run() -> tuple[torch.Tensor, ...]:  # on copies, because a step may write in place
        return results(ladder.run(op, step, *(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args)))

    with deterministic_algorithms():
        if not repeatable and step != "production":
            with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
                run()
            return
        first = run()
        for _ in range(5):
            for again, before in zip(run(), first, strict=True):
                assert torch.equal(again.nan_to_num(), before.nan_to_num())


@GPU
@pytest.mark.parametrize("op", ladder.ops())
def test_steps_have_limits_and_say_so(op):
    first, *_, last = ladder.steps(op)
    args, _, _ = next(cases_of(op, first.name, "cuda"))
    operator = getattr(torch.ops.gpuopt_ladder, op).default
    for call in (lambda step: operator(*args, step), lambda step: ladder.run(op, step, *args)):
        limits = f"gpuopt_ladder::{op}: step must be .*0 to {last.number}.* got {last.number + 1}"
        with pytest.raises(ValueError, match=limits):
            call(last.number + 1)
    with pytest.raises(ValueError, match="got -1"):
        ladder.run(op, -1, *args)
    for arg in args:
        if isinstance(arg, torch.Tensor) and arg.is_floating_point():
            arg.requires_grad_()
    refusal = "derivative for gpuopt_ladder::.* is not implemented|a leaf Variable|does not require grad"
    with pytest.raises(RuntimeError, match=refusal):
        results(ladder.run(op, 0, *args))[0].sum().backward()


@GPU
@pytest.mark.sanitize
@pytest.mark.parametrize("access_bytes", [4, 8, 16])
@pytest.mark.parametrize("loads", [1, 2, 4, 8])
def test_copies_of_any_shape(access_bytes, loads):
    copy = torch.ops.gpuopt_ladder.copy_in_flight
    for size in (0, 1, 15, 16, 17, 4099, 1_000_003):
        x = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        for warps in (1, 8, 64):
            assert torch.equal(copy(x, access_bytes, loads, warps), x)
    for shape in ((2, 1, 1), (4, 3, 1), (4, 1, 65), (4, 1, 0), (2**40, 1, 1)):
        with pytest.raises(ValueError, match="copy_in_flight: expected access_bytes of 4, 8 or 16"):
            copy(x, *shape)
    with pytest.raises(RuntimeError, match="self must begin at a multiple of 16 bytes"):
        copy(x[1:], 4, 1, 1)


@GPU
@pytest.mark.alone
def test_the_rate_of_a_unit_is_near_the_rate_of_its_clock():
    """An SM has 128 multiply-adds in each cycle, and 1024 in TF32 or 2048 in bfloat16 on Hopper."""
    rate, like = torch.ops.gpuopt_ladder.unit_rate, torch.empty(0, device="cuda")
    properties = torch.cuda.get_device_properties(0)
    hopper = {"tf32": 1024, "bf16": 2048} if properties.major == 9 else {}
    for unit, in_a_cycle in {"fma": 128, **hopper}.items():
        cycles, ns, operations = rate(like, unit, 5000).tolist()
        assert 0.5 < cycles / ns < 3  # GHz
        own = operations / 2 / properties.multi_processor_count / cycles
        assert 0.8 * in_a_cycle < own < 1.02 * in_a_cycle, (unit, own)
    with pytest.raises(ValueError, match="expected unit fma, tf32 or bf16, got int8"):
        rate(like, "int8", 1)
    with pytest.raises(ValueError, match="expected 1 iteration or more, got 0"):
        rate(like, "fma", 0)


@GPU
def test_reductions_of_what_the_steps_do_not_take():
    x = torch.ones(64, device="cuda")
    with pytest.raises(NotImplementedError, match="reduce_sum: self must be of dtype .*Float.*, got Half"):
        ladder.run("reduce_sum", 0, x.half())
    with pytest.raises(RuntimeError, match="reduce_sum: self must be contiguous, got strides"):
        ladder.run("reduce_sum", 0, x[::2])
    with pytest.raises(
        RuntimeError, match="step vectors: self must begin at a multiple of 16 bytes, got .* 4 bytes behind"
    ):
        ladder.run("reduce_sum", "vectors", x[1:])
    assert ladder.run("reduce_sum", "warp_shuffle", x[1:]) == 63
    assert ladder.run("reduce_sum", "production", x[::2].half()) == 32
    with pytest.raises((RuntimeError, IndexError)):
        ladder.run("reduce_max", 0, x[:0])


@GPU
def test_scans_of_what_the_steps_do_not_take():
    x = torch.ones(64, device="cuda")
    with pytest.raises(NotImplementedError, match="cumsum: self must be of dtype .*Float.*, got Half"):
        ladder.run("cumsum", 0, x.half())
    with pytest.raises(RuntimeError, match="cumsum: self must be a vector: expected 1 dimension, got shape"):
        ladder.run("cumsum", 0, x.view(8, 8))
    with pytest.raises(RuntimeError, match="cumsum: self must be contiguous, got strides"):
        ladder.run("cumsum", 0, x[::2])
    for step in ("vectors", "reduce_then_scan", "look_back"):
        with pytest.raises(RuntimeError, match=f"step {step}: self must begin at a multiple of 16 bytes"):
            ladder.run("cumsum", step, x[1:])
    assert torch.equal(ladder.run("cumsum", "production", x.view(8, 8).half()), x.view(8, 8).half().cumsum(1))


@GPU
def test_look_back_of_many_tiles_at_once():
    """Blocks of several streams run at once, and often find tiles that have only published their totals."""
    x = torch.ones(1 << 22, device="cuda")
    expected = x.cumsum(0, dtype=torch.float64).float()
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    results = []
    for _ in range(25):
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(ladder.run("cumsum", "look_back", x))
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


@GPU
@pytest.mark.parametrize(
    "shape, size", [((2, 9, 13, 7), (5, 31)), ((1, 17, 14, 26), (46, 22)), ((3, 1, 64, 31), (31, 64))]
)
def test_upsampling_to_sizes_that_not_every_step_takes(shape, size):
    x = torch.randint(-8, 9, shape, device="cuda").float() / 4
    grad = torch.randint(-8, 9, (*shape[:2], *size), device="cuda").float() / 4
    forward = torch.ops.gpuopt.upsample_nearest2d(x, size)
    backward = torch.ops.gpuopt.upsample_nearest2d_backward(grad, size, shape)
    for step in (0, 1):
        assert torch.equal(ladder.run("upsample_nearest2d", step, x, size), forward)
        assert torch.equal(ladder.run("upsample_nearest2d_backward", step, grad, size, shape), backward)
    with pytest.raises(RuntimeError, match="step vectors_2x: output_size must be twice"):
        ladder.run("upsample_nearest2d", "vectors_2x", x, size)


@GPU
def test_matrix_products_of_what_the_steps_do_not_take():
    a, b = torch.ones(8, 12, device="cuda"), torch.ones(12, 16, device="cuda")
    with pytest.raises(NotImplementedError, match="matmul: a must be of dtype .*Float.*, got Half"):
        ladder.run("matmul", 0, a.half(), b.half())
    with pytest.raises(NotImplementedError, match="matmul: a must be of dtype .*Half, BFloat16.*, got Float"):
        ladder.run("matmul", "swizzled", a, b)
    with pytest.raises(RuntimeError, match="matmul: b must have the dtype of a: expected Half, got BFloat16"):
        ladder.run("matmul", "swizzled", a.half(), b.bfloat16())
    with pytest.raises(RuntimeError, match="matmul: b must have as many rows as a has columns: expected 12"):
        ladder.run("matmul", 0, a, b[:5])
    with pytest.raises(RuntimeError, match="matmul: a must be a matrix: expected 2 dimensions"):
        ladder.run("matmul", 0, a[0], b)
    for wrong in (b.t().contiguous().t(), b[:1].expand(12, 16)):
        with pytest.raises(RuntimeError, match="matmul: b must have rows of neighbouring elements"):
            ladder.run("matmul", 0, a, wrong)
    with pytest.raises(
        RuntimeError, match="step vectors: a must begin at a multiple of 16 bytes, got .* 4 bytes behind"
    ):
        ladder.run("matmul", "vectors", a[:, 1:], b[:11])
    for step in ("vectors", "bulk_copies"):
        with pytest.raises(RuntimeError, match=f"step {step}: b must have rows that begin at multiples of 16 bytes"):
            ladder.run("matmul", step, a, b.new_ones(12, 17)[:, :16])
    assert torch.equal(ladder.run("matmul", "double_buffer", a[:, 1:], b[1:, 3:]), a[:, 1:] @ b[1:, 3:])


@GPU
@pytest.mark.parametrize("step", ["three_tf32", "three_tf32_wgmma", "warp_tiles", "bulk_copies"])
def test_sums_of_float32_are_as_accurate(step):
    """As PyTorch's in 3xTF32. cuBLAS splits deep products, so chains of multiply-adds are compared with the first step's chains."""
    torch.manual_seed(0)
    usual = torch.mm if step.startswith("three") else functools.partial(ladder.run, "matmul", "naive")
    for shape in ((300, 256, 400), (256, 4096, 512)):
        a, b = torch.randn(shape[:2], device="cuda"), torch.randn(shape[1:], device="cuda")
        expected = a.double() @ b.double()
        own, others = ((out - expected).norm() for out in (ladder.run("matmul", step, a, b), usual(a, b)))
        assert own < 2 * others


@GPU
def test_matrix_products_with_nan_and_infinities():
    for step in ladder.steps("matmul")[:-1]:
        dtype = torch.float32 if step.name in FLOATS else torch.bfloat16
        a, b = torch.ones(40, 72, device="cuda", dtype=dtype), torch.ones(72, 48, device="cuda", dtype=dtype)
        a[3, 69], a[5, 7], b[2, 9], b[69, 8] = torch.inf, torch.nan, -torch.inf, 0
        expected = (a.double() @ b.double()).to(dtype)
        torch.testing.assert_close(ladder.run("matmul", step.name, a, b), expected, rtol=0, atol=0, equal_nan=True)


@GPU
def test_norms_of_what_the_steps_do_not_take():
    x, ones = torch.rand(6, 40, device="cuda"), torch.ones(40, device="cuda")
    mean, rstd = x.mean(1), torch.ones(6, device="cuda")
    with pytest.raises(NotImplementedError, match="layer_norm: input must be of dtype .*BFloat16.*, got Half"):
        ladder.run("layer_norm", 0, x.half(), ones.half(), ones.half())
    with pytest.raises(NotImplementedError, match="layer_norm: weight must be of dtype .*BFloat16.*, got Float"):
        ladder.run("layer_norm", 0, x.bfloat16(), ones, ones)
    with pytest.raises(RuntimeError, match=r"layer_norm: input must be \(rows, length\): expected 2 dimensions"):
        ladder.run("layer_norm", 0, x[0], ones, ones)
    with pytest.raises(RuntimeError, match="layer_norm: bias must have the length of rows: expected .40., got .39."):
        ladder.run("layer_norm", 0, x, ones, ones[1:])
    with pytest.raises(RuntimeError, match="layer_norm: input must be contiguous, got strides"):
        ladder.run("layer_norm", 0, x[:, ::2], ones[::2], ones[::2])
    with pytest.raises(RuntimeError, match="layer_norm_backward: input must have the shape of grad: expected .6, 40."):
        ladder.run("layer_norm_backward", 0, x, x[1:], mean, rstd, ones)
    with pytest.raises(
        RuntimeError, match="layer_norm_backward: rstd must have a value for each row: expected 6, got 5"
    ):
        ladder.run("layer_norm_backward", 0, x, x, mean, rstd[1:], ones)
    aten = torch.nn.functional.layer_norm(x.view(2, 3, 40), (40,))
    torch.testing.assert_close(ladder.run("layer_norm", "production", x.view(2, 3, 40), ones, 0 * ones), aten)


@GPU
def test_sparse_products_of_what_the_steps_do_not_take():
    ptr, index = torch.tensor([0, 2, 3], device="cuda").int(), torch.tensor([0, 1, 1], device="cuda").int()
    value, dense = torch.ones(3, device="cuda"), torch.ones(2, 4, device="cuda")
    with pytest.raises(NotImplementedError, match="spmm: ptr must be of dtype .*Int.*, got Long"):
        ladder.run("spmm", 0, ptr.long(), index.long(), value, dense)
    with pytest.raises(NotImplementedError, match="spmm: dense must be of dtype .*Float, BFloat16.*, got Half"):
        ladder.run("spmm", 0, ptr, index, value.half(), dense.half())
    with pytest.raises(RuntimeError, match="spmm: value must have the dtype of dense"):
        ladder.run("spmm", 0, ptr, index, value.bfloat16(), dense)
    with pytest.raises(RuntimeError, match="spmm: value must have one number for each entry"):
        ladder.run("spmm", 0, ptr, index, value[:2], dense)
    with pytest.raises(RuntimeError, match=r"spmm: dense must be \(columns, features\)"):
        ladder.run("spmm", 0, ptr, index, value, dense[0])
    with pytest.raises(RuntimeError, match="spmm: dense must be contiguous, got strides"):
        ladder.run("spmm", 0, ptr, index, value, dense[:, ::2])
    with pytest.raises(NotImplementedError, match="spmm: dense must be on a CUDA device"):
        ladder.run("spmm", 0, ptr, index, value, dense.cpu())
    out = ladder.run("spmm", "production", ptr.long(), index.long(), value.half(), dense.half())
    assert out.tolist() == [[2.0] * 4, [1.0] * 4]
