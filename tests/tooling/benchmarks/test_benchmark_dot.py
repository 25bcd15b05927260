"""The benchmark of dot products: operands, peers, and the detection of wrong results."""

import dataclasses
import itertools

import pytest
import torch

from benchmarks.harness import timer
from benchmarks.harness.peers import ATEN, OURS, Missing, Setting
from benchmarks.harness.room import run_case
from benchmarks.rooms import dot as bench_dot

from ...support.benchmark_fakes import CPU, DOT

REAL = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
NAMES = ("dot", "vdot of conjugated", "vdot", "dot_fast_atomic", "dot beside fast_atomic")


def vectors(n, *dtypes, op="dot", **options):
    return bench_dot._cases(op, f"{n}", n, lambda m: (m(n), m(n)), *dtypes, **options)


def rows_of(rows, n, *dtypes, **options):
    return bench_dot._cases("dot_rows", f"({rows},{n})", n, lambda m: (m(rows, n), m(rows, n)), *dtypes, **options)


def statuses(case, call, peers=()):
    row = run_case(case, call, peers, CPU, [])
    return {name: entry["status"] for name, entry in row["contenders"].items()}


# ---------------------------------------------------------------- operands


@pytest.mark.parametrize("power", [10, 17, 22])
def test_sums_fit_float16(power):
    (case,) = bench_dot._dense("dot", power, torch.float16)
    x, y = case.build("cpu", 0)
    assert x.dtype == y.dtype == torch.float16 and not torch.equal(x, y)
    exact = x.double().dot(y.double())
    assert 2**7 < exact < 2**12 and torch.dot(x, y).isfinite()


def test_operands_lie_as_their_case_says():
    n = 1 << 25
    strides = {
        "one misaligned": ((1, 0), (1, 1)), "both misaligned": ((1, 1), (1, 1)), "x[::2], y": ((2, 0), (1, 0)),
        "x[::2], y[::2]": ((2, 0), (2, 0)), "one column of (2^25,8), y": ((8, 0), (1, 0)),
        "x, (1) expanded": ((1, 0), (0, 0)), "x, x": ((1, 0), (1, 0)),
    }  # fmt: skip
    for (name, expected), dtype in itertools.product(strides.items(), ("f32", "bf16")):
        case = DOT[f"dot {name}, 2^25 {dtype}"]
        x, y = case.build("meta", 0)
        assert tuple((v.stride(0), v.storage_offset()) for v in (x, y)) == expected and len(x) == len(y) == n
        assert (x is y) == (name == "x, x")
    x, y = DOT["dot x.conj(), y, 2^25 c64"].build("meta", 0)
    assert x.is_conj() and not y.is_conj()


# ---------------------------------------------------------------- right and wrong


def test_the_reference_is_exact_in_parts(monkeypatch):
    monkeypatch.setattr(bench_dot, "CHUNK", 1000)
    for dtype in (*REAL, torch.complex64):
        (case,) = vectors(3333, dtype)
        x, y = case.build("cpu", 0)
        wide = torch.complex128 if dtype.is_complex else torch.float64
        found = bench_dot._reference(x, y)
        assert found.dtype == wide
        torch.testing.assert_close(found, torch.dot(x.to(wide), y.to(wide)), rtol=1e-13, atol=0)
    (case,) = vectors(3333, torch.int8)
    x, y = case.build("cpu", 0)
    assert torch.equal(bench_dot._reference(x, y), torch.dot(x, y))
    x, y = rows_of(7, 2500, torch.bfloat16)[0].build("cpu", 0)
    torch.testing.assert_close(bench_dot._reference(x, y), (x.double() * y.double()).sum(1))


@pytest.mark.parametrize("call", NAMES)
def test_right_dots_pass_beside_their_peers(call):
    dtypes = REAL if "fast_atomic" in call else (*REAL, torch.complex64, torch.int8, torch.int32, torch.int64)
    variants = {"dot_fast_atomic": (bench_dot.OURS_DOT,), "dot beside fast_atomic": (bench_dot.OURS_FAST_ATOMIC,)}
    peers = (bench_dot.MUL_SUM, *variants.get(call, ()))
    for case in vectors(5000, *dtypes, call=call):
        found = statuses(case, bench_dot._calls()[case.call], peers)
        assert found == dict.fromkeys(("gpuopt", "ATen", *(peer.name for peer in peers)), "ok"), case.title


@pytest.mark.parametrize(
    ("call", "dtype", "wrong"),
    [
        ("dot", torch.float32, lambda x, y: torch.dot(x[1:], y[1:])),
        ("dot", torch.int64, lambda x, y: torch.dot(x, y) + 1),
        ("vdot", torch.complex64, torch.dot),
        ("dot", torch.complex64, torch.vdot),
    ],
)
def test_wrong_dots_are_found(call, dtype, wrong):
    (case,) = vectors(5000, dtype, call=call)
    found = statuses(case, dataclasses.replace(bench_dot._calls()[call], ours=wrong), (bench_dot.MUL_SUM,))
    assert found == {"gpuopt": "wrong", "ATen": "ok", "mul+sum": "ok"}


def rounded_after_each(x, y, parts=132):
    """The dot product as 132 blocks compute it that add their sums to a result in fp16 or bf16."""
    total = torch.zeros((), dtype=x.dtype)
    for a, b in zip(x.chunk(parts), y.chunk(parts)):
        total += torch.dot(a.float(), b.float()).to(x.dtype)
    return total


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_only_fast_atomic_may_round_after_each_addition(dtype):
    n = 132 * 100
    calls = bench_dot._calls()
    for call, expected in (("dot_fast_atomic", "ok"), ("dot", "wrong")):
        # Equal products, whose sums round to the same side many times.
        (case,) = bench_dot._cases("dot", "alike", n, lambda m: (m(n).fill_(0.25), m(n).fill_(0.37)), dtype, call=call)
        found = statuses(case, dataclasses.replace(calls[call], ours=rounded_after_each))
        assert found == {"gpuopt": expected, "ATen": "ok"}
    (case,) = vectors(n, dtype, op="dot_fast_atomic")
    half = dataclasses.replace(calls["dot_fast_atomic"], ours=lambda x, y: rounded_after_each(x, y) / 4)
    assert statuses(case, half) == {"gpuopt": "wrong", "ATen": "ok"}


# ---------------------------------------------------------------- peers


def test_cub_is_left_out_where_it_cannot_run():
    (case,) = vectors(100, torch.bfloat16)
    with pytest.raises(Missing, match="not installed|bfloat16"):
        bench_dot.CUB.prepare(bench_dot._calls()["dot"], case, CPU)
    with pytest.raises(Missing, match="no such operation"):
        bench_dot.CUB.prepare(bench_dot._calls()["vdot"], case, CPU)


SMALL = [
    *vectors(5000, torch.float32, torch.float16, torch.bfloat16, peers=bench_dot.PEERS),
    *vectors(5000, torch.float64, torch.complex64, torch.int32),
    *vectors(5000, torch.complex64, call="vdot"),
    *rows_of(64, 500, torch.float32, torch.bfloat16, peers=bench_dot.ROW_PEERS),
    *vectors(5000, torch.float16, torch.bfloat16, op="dot_fast_atomic", peers=(bench_dot.OURS_DOT,)),
    *vectors(5000, torch.float32, call="dot beside fast_atomic", peers=(bench_dot.OURS_FAST_ATOMIC,)),
]


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.title} {case.call}")
def test_a_small_dot_runs_with_all_peers(case):
    setting = Setting(timer.DeviceTimer(budget_s=0.005), "cuda", tune=False)
    row = run_case(case, bench_dot._calls()[case.call], bench_dot.ROOM.peers, setting, [])
    for name, entry in row["contenders"].items():
        refused = name == ATEN.name and case.dtype == "i32" or name == bench_dot.CUB.name
        assert entry["status"] == "ok" or refused and name != OURS.name, (name, entry)
        if entry["status"] == "ok":
            assert 0.2 < entry["us"]["median"] < 200
