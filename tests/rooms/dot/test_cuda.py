"""Dot products on a GPU: overlapping calls give the same bits, the memory that a call allocates, and dot_fast_atomic.

test_accuracy.py tests errors.
"""

from __future__ import annotations

import functools
import warnings

import pytest
import torch

import torch_ops

from ...cases import tensors
from ...cases.dot import CASES
from ...support.compare import Failures, different_bits
from ...support.overlap import Calls
from ...support.runtime import captured, deterministic_algorithms, peak

pytestmark = pytest.mark.gpu
CASE = {case.name: case for case in CASES}


# ---------------------------------------------------------------- calls for ../test_overlap.py


@functools.cache
def _given() -> dict:
    """Operands of every kind: for one block and for many, vectors and rows, in several layouts."""
    generator = torch.Generator("cuda").manual_seed(3)

    def make(*shape, dtype=torch.float32):
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, device="cuda", dtype=wide).to(dtype)

    pairs = {}
    for name, shape, dtype in (
        ("2^22", (2**22,), torch.float32), ("2^18+13", (2**18 + 13,), torch.float32), ("2^14", (2**14,), torch.float32),
        ("1000", (1000,), torch.float32), ("bfloat16", (2**21 + 5,), torch.bfloat16), ("float16", (2**20,), torch.float16),
        ("float64", (2**20,), torch.float64), ("complex64", (2**19,), torch.complex64),
        ("rows (3, 1000003)", (3, 1_000_003), torch.float32), ("rows (4099, 513)", (4099, 513), torch.float32),
        ("rows (70001, 5)", (70_001, 5), torch.float32), ("rows (100, 2^14)", (100, 2**14), torch.bfloat16),
        ("rows, complex", (129, 4097), torch.complex64),
    ):  # fmt: skip
        pairs[name] = make(*shape, dtype=dtype), make(*shape, dtype=dtype)
    x, y = pairs["2^22"]
    pairs["misaligned"], pairs["step 2"], pairs["steps 3 and 2"] = (
        (x[1:-4], y[3:-2]),
        (x[::2], y[::2]),
        (x[: 2**20 : 3], y[:699_052:2]),
    )
    pairs["with itself"] = x, x
    x, y = pairs["complex64"]
    pairs["conjugated"] = x.conj(), y
    pairs["rows across memory"] = make(1000, 2000).mT, make(1000, 2000).mT
    pairs["rows, one across memory"] = make(3000, 700).mT, make(700, 3000)
    pairs["rows, one for all"] = make(1, 2**12).expand(500, 2**12), make(500, 2**12)
    return pairs


@functools.cache
def overlapping() -> Calls:
    """The calls, as functions without arguments."""
    calls = {}
    for name, (x, y) in _given().items():
        ops = (torch_ops.dot_rows,) if x.dim() == 2 else (torch_ops.dot, torch_ops.vdot)
        calls.update({f"{op.__name__}, {name}": functools.partial(op, x, y) for op in ops})
    return Calls(calls)


def test_graphs_take_new_values():
    """Inputs change between replays, so a graph must hold only the addresses and sizes of a call."""
    failures = Failures()
    for name, (x, y) in _given().items():
        x, y = tensors.twin(x), tensors.twin(y)
        if 0 in (*x.stride(), *y.stride()):
            continue  # these inputs cannot be written
        op = torch_ops.dot_rows if x.dim() == 2 else torch_ops.dot
        graph, result = captured(functools.partial(op, x, y))
        for k in range(3):
            with failures.sample(f"{name}, replay {k}"):
                x.copy_(x.flip(-1) + k)
                y.mul_(1.25)
                result.fill_(7)
                graph.replay()
                failures.add(f"{name}, replay {k}", different_bits(result, op(x, y)))
    failures.check(at_least=40)


# ---------------------------------------------------------------- memory


def _large_operands() -> dict:
    """Operands of 64 MiB or more, in layouts that a kernel for dense vectors would copy first."""

    def make(*shape, dtype=torch.float32):
        return torch.ones(shape, dtype=dtype, device="cuda")

    def conjugated(*shape):
        return make(*shape, dtype=torch.complex64).conj()

    n = 2**24
    return {
        "contiguous": lambda: (make(n), make(n)),
        "misaligned": lambda: (make(n + 1)[1:], make(n + 3)[3:]),
        "step 2": lambda: (make(2 * n)[::2], make(n)),
        "steps 3 and 2": lambda: (make(3 * n)[::3], make(2 * n)[::2]),
        "columns": lambda: (make(n, 5)[:, 2], make(n, 3)[:, 1]),
        "one value": lambda: (make(1).expand(n), make(n)),
        "bfloat16": lambda: (make(2 * n, dtype=torch.bfloat16), make(4 * n, dtype=torch.bfloat16)[::2]),
        "int8": lambda: (make(4 * n, dtype=torch.int8), make(4 * n, dtype=torch.int8)),
        "conjugated self": lambda: (conjugated(n // 2), make(n // 2, dtype=torch.complex64)),
        "conjugated tensor": lambda: (make(n // 2, dtype=torch.complex64), conjugated(n // 2)),
        "conjugated both, step 2": lambda: (conjugated(n)[::2], conjugated(n)[::2]),
        "rows": lambda: (make(2**12, 2**12), make(2**12, 2**12)),
        "rows, misaligned": lambda: (make(2**12, 2**12 + 1)[:, 1:], make(2**12, 2**12 + 1)[:, :-1]),
        "rows across memory": lambda: (make(2**12, 2**12).mT, make(2**12, 2**12).mT),
        "rows, one across memory": lambda: (make(2**12, 2**12).mT, make(2**12, 2**12)),
        "rows, one for all": lambda: (make(1, 2**12).expand(2**12, 2**12), make(2**12, 2**12)),
        "rows, conjugated": lambda: (conjugated(2**11, 2**12), conjugated(2**12, 2**11).mT),
        "rows, few": lambda: (make(3, 2**22), make(3, 2**23)[:, ::2]),
        "rows, many": lambda: (make(2**21, 8), make(2**21, 9)[:, :-1]),
    }  # fmt: skip


@pytest.mark.parametrize("what", _large_operands())
def test_never_copies_an_operand(what):
    """A call allocates only its result and a workspace for partial sums."""
    x, y = _large_operands()[what]()
    names = ["dot_rows"] if x.dim() == 2 else ["dot", "vdot"] + ["dot_fast_atomic"] * (x.dtype in tensors.FLOATS)
    size = x.numel() * x.element_size()
    for name in names:
        case = CASE[name]
        result = case.op(x, y)
        calls = {name: functools.partial(case.op, x, y)}
        if case.out is not None:
            calls["out"] = functools.partial(case.op, x, y, out=torch.empty_like(result))
        for form, call in calls.items():
            beside = peak(call) - result.nbytes
            assert beside <= 2**20, f"{name}, {form}: {beside} bytes beside the result, an operand has {size}"


def test_vmap_never_copies_an_operand():
    x, y = torch.ones(2**12, 2**12, device="cuda"), torch.ones(2**12, device="cuda")
    for dims, given in (((0, None), (x, y)), ((1, 0), (x, x)), ((None, 1), (y, x))):
        assert peak(lambda d=dims, g=given: torch.vmap(torch_ops.dot, in_dims=d)(*g)) <= 2**20


def test_backward_takes_its_gradients_alone():
    x, y = (torch.ones(2**24, device="cuda", requires_grad=True) for _ in range(2))
    for op, given in ((torch_ops.dot, (x, y)), (torch_ops.vdot, (x, y))):
        result = op(*given)
        weight = torch.ones_like(result)
        most = peak(lambda r=result, w=weight: torch.autograd.grad(r, (x, y), w, retain_graph=True))
        assert most <= 2 * x.nbytes + 2**20, f"{most} bytes, two gradients have {2 * x.nbytes}"


# ---------------------------------------------------------------- dot_fast_atomic


def test_deterministic_algorithms_refuse_the_atomic_product(capfd):
    """use_deterministic_algorithms refuses dot_fast_atomic, or warns if requested. It does not change other dot products, nor
    dot_fast_atomic under vmap."""
    calls = overlapping()
    x, y = torch.arange(12.0, device="cuda").view(3, 4).unbind()[:2]
    with deterministic_algorithms():
        for given in ((x, y), (x[:0], y[:0]), (x.half(), y.half())):
            with pytest.raises(RuntimeError, match="gpuopt::dot_fast_atomic.*deterministic"):
                torch_ops.dot_fast_atomic(*given)
        assert torch.vmap(torch_ops.dot_fast_atomic)(x[None], y[None]).tolist() == [38]
        calls.repeat(1)
    with deterministic_algorithms(warn_only=True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch_ops.dot_fast_atomic(x, y).item() == 38
    # A warning from C++ is a Python warning or text on stderr.
    said = "\n".join([str(w.message) for w in caught]) + capfd.readouterr().err
    assert "gpuopt::dot_fast_atomic" in said and "deterministic" in said
    assert torch_ops.dot_fast_atomic(x, y).item() == 38


def test_atomic_product_writes_its_result_alone():
    """Many calls without synchronisation, with results in memory that was used before."""
    x, y = torch.ones(2, 2**16, dtype=torch.bfloat16, device="cuda")
    torch.full((2**16,), 7.0, dtype=torch.bfloat16, device="cuda")
    results = [torch_ops.dot_fast_atomic(x[:n], y[:n]) for n in range(1, 257) for _ in range(3)]
    assert torch.stack(results).tolist() == [float(n) for n in range(1, 257) for _ in range(3)]
    for result in results[:9]:
        assert result.dim() == 0 and result.is_contiguous()


def test_graphs_of_the_atomic_product_start_from_zero():
    x, y = torch.ones(2**18, device="cuda"), torch.ones(2**18, device="cuda")
    graph, result = captured(lambda: torch_ops.dot_fast_atomic(x, y))
    for k in range(1, 5):
        x.fill_(k)
        result.fill_(-1)
        graph.replay()
        assert result.item() == k * 2**18
