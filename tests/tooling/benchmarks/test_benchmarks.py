"""The measuring part of the benchmarks: checks of results, peers, rows, ceilings and, on a GPU, the clock."""

import dataclasses
import importlib.util
import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.harness import ceilings, report, timer
from benchmarks.harness.peers import CUPY, INDUCTOR, Missing, Peer, Setting
from benchmarks.harness.room import error_limit, relative_error, run_case
from benchmarks.rooms import elementwise as bench_elementwise
from benchmarks.rooms import index_add as bench_index_add
from benchmarks.rooms import reduce as bench_reduce
from benchmarks.rooms import upsample as bench_upsample

from ...support.benchmark_fakes import (
    CPU,
    ELEMENTWISE,
    TINY,
    TINY_CALL,
    FakeTimer,
    absent,
    rendered,
    synthetic,
    two_vectors,
)

REPOSITORY = Path(__file__).resolve().parents[3]

# ---------------------------------------------------------------- one row


def test_a_row_has_times_bandwidth_errors_and_ratio():
    row = run_case(TINY, TINY_CALL, (), CPU, synthetic([])["ceilings"])
    assert (row["read_bytes"], row["written_bytes"]) == (512, 256)
    assert row["contenders"]["gpuopt"]["gbps"] == pytest.approx(768 / 100 / 1e3)
    assert 0 < row["contenders"]["gpuopt"]["error"] < 1e-7
    assert report.best_peer(row) == ("ATen", pytest.approx(110.0))
    assert row["ceiling"]["pattern"] == "two reads, one write" and row["ceiling"]["size"] == "128 MiB"


def broken(call, case, setting):
    raise RuntimeError("first line\nsecond line")


def breaks_when_called(call, case, setting):
    def run(*args):
        raise ValueError("not this shape")

    return run, ""


PEERS = (
    Peer("absent", absent),
    Peer("broken", broken),
    Peer("breaks", breaks_when_called),
    Peer("off", lambda call, case, setting: (lambda x, y: x * y * 1.001, "")),
    Peer("nan", lambda call, case, setting: (lambda x, y: x * y * torch.nan, "")),
)


def test_a_peer_that_cannot_take_part_stays_in_the_row_and_the_table():
    result = synthetic([])
    row = run_case(TINY, TINY_CALL, PEERS, CPU, result["ceilings"])
    status = {name: entry["status"] for name, entry in row["contenders"].items()}
    assert status == {
        "gpuopt": "ok", "ATen": "ok", "absent": "missing", "broken": "failed", "breaks": "failed", "off": "wrong", "nan": "wrong",
    }  # fmt: skip
    assert report.best_peer(row)[0] == "ATen"
    result["rows"].append(row)
    text = rendered(result)
    for said in (
        "absent missing: it is not installed",
        "broken failed: RuntimeError: first line",
        "breaks failed: ValueError: not this shape",
        "off wrong: error 1.0e-03",
    ):
        assert said in text
    assert "second line" not in text


def test_a_wrong_or_failing_gpuopt_is_reported_as_failure():
    for ours in (lambda x, y: x + y, lambda x, y: x[:3] / y):
        result = synthetic([])
        result["rows"].append(run_case(TINY, dataclasses.replace(TINY_CALL, ours=ours), (), CPU, []))
        assert len(report.failures(result)) == 1 and "mul tiny f32" in report.failures(result)[0]
        rendered(result)
    assert report.failures(synthetic()) == []


def upsampling(op, *dtypes, **options):
    return bench_upsample._cases((2, 8, 12, 10), (23, 29), *dtypes, ops=(op,), **options)


def index_adding(*dtypes, mode="deterministic", what=None, **options):
    what = what or bench_index_add.Sum((300, 5), 4000)
    cases = bench_index_add._cases("index_add", what, *dtypes, mode=mode, **options)
    return [(case, bench_index_add._calls()[case.call]) for case in cases]


F32, BF16 = torch.float32, torch.bfloat16
ALL_EQUAL = bench_index_add.Sum((30, 50), 4000, bench_index_add.ALL_EQUAL, dim=1)
RIGHT = {
    "sum": lambda: bench_reduce._dense("sum", (300, 200), 0, F32, torch.complex64, torch.int8, torch.bool),
    "mean": lambda: bench_reduce._dense("mean", (300, 200), 0, F32, BF16),
    "max": lambda: bench_reduce._dense("max", (300, 200), None, F32, torch.uint8),
    "forward": lambda: upsampling(bench_upsample.FORWARD, F32, torch.uint8, layouts=tuple(bench_upsample.LAYOUTS)),
    "backward": lambda: upsampling(bench_upsample.BACKWARD, F32, BF16, layouts=tuple(bench_upsample.LAYOUTS)),
    "exact backward": lambda: upsampling(bench_upsample.BACKWARD, F32, exact=True),
    "index_add": lambda: [c for m in bench_index_add.MODES for c, _ in index_adding(F32, torch.float16, mode=m)],
    "index_add, all equal": lambda: [c for c, _ in index_adding(F32, torch.int64, what=ALL_EQUAL)],
}


@pytest.mark.parametrize("cases", RIGHT)
def test_right_results_pass(cases):
    calls = bench_reduce._calls() | bench_upsample._calls() | bench_index_add._calls()
    added = (bench_index_add.ATEN_DETERMINISTIC, bench_index_add.OURS_DETERMINISTIC) if "add" in cases else ()
    for case in RIGHT[cases]():
        row = run_case(dataclasses.replace(case, peers=None), calls[case.call], added, CPU, [])
        assert [entry["status"] for entry in row["contenders"].values()] == ["ok"] * (2 + len(added)), case.title


def test_error_limits_allow_rounding_and_another_order_of_additions():
    f32, bf16 = torch.finfo(F32).eps, torch.finfo(BF16).eps
    assert [error_limit(F32, 2.5e-8), error_limit(BF16, 0.1), error_limit(torch.int32, 0.0)] == [f32, 0.4, 0.0]
    assert [bench_reduce.sum_limit(F32, error) for error in (1e-9, 1e-4)] == [32 * f32, 4e-4]
    assert [bench_reduce.sum_limit(dtype, 0.0) for dtype in (BF16, torch.int64)] == [bf16, 0.0]
    assert [bench_upsample.adjoint_limit(dtype, 1.0) for dtype in (F32, BF16)] == [32 * f32, bf16]
    assert relative_error(torch.tensor([3, 4]), torch.tensor([3, 0])) == pytest.approx(4 / 3)


def _aten_of(op, exact):
    return bench_upsample._calls()[upsampling(op, F32, exact=exact)[0].call].aten


# Wrong results: a shortened operand, a wrong bit in the largest value, the other mode's pixels, a gradient without its last column,
# a missing entry, a missing bin, and no sum.
WRONG = {
    "sum": ("sum", lambda x, dim: torch.sum(x[1:], dim)),
    "mean": ("mean", lambda x, dim: torch.mean(x[1:], dim)),
    "max": ("max", lambda x, dim: torch.nextafter(torch.amax(x, dim), torch.tensor(torch.inf))),
    "forward": ("forward", _aten_of(bench_upsample.FORWARD, True)),
    "backward": ("backward", _aten_of(bench_upsample.BACKWARD, True)),
    "last column": (
        "backward",
        lambda g, *sizes: _aten_of(bench_upsample.BACKWARD, False)(g.index_fill(3, torch.tensor(28), 0), *sizes),
    ),
    "an entry left out": ("index_add", lambda into, dim, index, source: into.index_add_(dim, index[:-1], source[:-1])),
    "a bin missed": ("index_add", lambda into, dim, i, source: into.index_add_(dim, i.clamp(max=298), source)),
    "no sum": ("index_add", lambda into, dim, index, source: into.index_copy_(dim, index, source)),
}


@pytest.mark.parametrize(("cases", "wrong"), WRONG.values(), ids=WRONG)
def test_wrong_results_are_found(cases, wrong):
    calls = bench_reduce._calls() | bench_upsample._calls() | bench_index_add._calls()
    case = RIGHT[cases]()[0]
    row = run_case(
        dataclasses.replace(case, peers=None), dataclasses.replace(calls[case.call], ours=wrong), (), CPU, []
    )
    assert [entry["status"] for entry in row["contenders"].values()] == ["wrong", "ok"]


def test_only_fast_index_add_may_round_after_each_addition():
    """Bins of 4000 values each, in bfloat16. Rows have one value, because ATen sums longer rows in float32 on the CPU."""
    status = {}
    for mode in bench_index_add.MODES:
        what = bench_index_add.Sum((5,), 20000)
        ((case, call),) = index_adding(torch.bfloat16, mode=mode, what=what)
        row = run_case(case, dataclasses.replace(call, ours=torch.Tensor.index_add_), (), CPU, [])
        status[mode] = [entry["status"] for entry in row["contenders"].values()]
    assert status == {"fast": ["ok", "ok"], "deterministic": ["wrong", "ok"]}


def test_atens_deterministic_sums_are_left_out_where_they_take_long(monkeypatch):
    ((case, call),) = index_adding(torch.float32)
    seen = []

    def aten(*args):
        seen.append((torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory))
        return torch.Tensor.index_add_(*args)

    call = dataclasses.replace(call, aten=aten)
    run, _ = bench_index_add.ATEN_DETERMINISTIC.prepare(call, case, CPU)
    torch.testing.assert_close(run(*case.build("cpu", 0)), call.reference(*case.build("cpu", 0)).float())
    assert set(seen) == {(True, False)} and not torch.are_deterministic_algorithms_enabled()
    assert torch.utils.deterministic.fill_uninitialized_memory
    monkeypatch.setattr(bench_index_add, "LONGEST_S", 0.0)
    with pytest.raises(Missing, match="takes about"):
        bench_index_add.ATEN_DETERMINISTIC.prepare(call, case, CPU)


def test_cupy_says_why_it_cannot():
    with pytest.raises(Missing, match="no such operation"):
        CUPY.prepare(TINY_CALL, TINY, CPU)
    if importlib.util.find_spec("cupy") is None:
        for peer in (CUPY, bench_reduce.CUB):
            with pytest.raises(Missing, match="not installed"):
                peer.prepare(dataclasses.replace(TINY_CALL, cupy="multiply"), TINY, CPU)


def test_inductor_is_compiled_before_it_is_timed():
    compiled, how = INDUCTOR.prepare(TINY_CALL, TINY, CPU)
    torch._dynamo.utils.counters.clear()
    x, y = two_vectors("cpu", 3)
    torch.testing.assert_close(compiled(x, y), x * y)
    assert how == "default"
    assert not torch._dynamo.utils.counters["stats"], "the timed call compiled again"


# ---------------------------------------------------------------- timer and ceilings


def test_timing_is_median_and_quartiles():
    timing = timer.summarise([1.0, 2.0, 3.0, 4.0, 100.0], "events")
    assert (timing.median, timing.q1, timing.q3, timing.fastest, timing.samples) == (3.0, 2.0, 4.0, 1.0, 5)
    assert timer.summarise([7.0], "events").median == 7.0


def test_inputs_rotate_through_twice_the_cache():
    assert timer.copies_to_fill(120 << 20, 12 << 20) == 10
    assert timer.copies_to_fill(120 << 20, 1 << 30) == 1
    assert timer.copies_to_fill(120 << 20, 16) == timer.MAX_COPIES
    assert timer.copies_to_fill(120 << 20, 16, 1 << 30) == timer.MAX_COPIED_BYTES >> 30
    assert timer.copies_to_fill(120 << 20, 16, 1 << 40) == 1
    assert timer.held_bytes((torch.empty(1024)[:4], 0, torch.empty(16, dtype=torch.int64))) == 4096 + 128


def test_ceiling_follows_size_and_share_of_reads():
    measured = synthetic([])["ceilings"]

    def chosen(read, written):
        ceiling = ceilings.pick(measured, read, written)
        return ceiling["size"], ceiling["pattern"]

    assert chosen(2 << 30, 1 << 30) == ("4 GiB", "two reads, one write")
    assert chosen(200 << 20, 200 << 20) == ("512 MiB", "copy")
    assert chosen(3 << 20, 1 << 20) == ("128 MiB", "two reads, one write")
    assert chosen(4 << 30, 4) == ("4 GiB", "read")
    assert chosen(4, 100 << 20) == ("128 MiB", "write")
    assert ceilings.pick(measured, 0, 0) is None
    # The case is equally far from both size classes. The choice must not depend on their order.
    assert chosen(128 << 20, 128 << 20) == ("512 MiB", "copy")
    assert ceilings.pick(measured[::-1], 128 << 20, 128 << 20)["size"] == "512 MiB"


def test_ceiling_kernels_move_what_they_say(monkeypatch):
    monkeypatch.setitem(ceilings.SIZES, "128 MiB", 1 << 20)
    monkeypatch.setattr(ceilings, "_triton_contenders", lambda *args: {})
    measured = ceilings.measure(FakeTimer(), ["128 MiB"], "cpu", quick=True)
    assert [entry["pattern"] for entry in measured] == list(ceilings.READ_SHARE)
    for entry in measured:
        assert 0.9 * (1 << 20) < entry["bytes"] <= 1 << 20
        assert entry["gbps"] == pytest.approx(entry["bytes"] / 100 / 1e3)


CHECK_KERNELS = """
import torch
from benchmarks.harness import ceilings
streams = {"read": 1, "write": 1, "copy": 2, "two reads, one write": 3}
for pattern, count in streams.items():
    buffers = [torch.randn(2 * ceilings.LARGEST_BLOCK) for _ in range(count)]
    for who, launch in ceilings._triton_contenders(pattern, buffers, ceilings.SHAPES[::3]).items():
        if pattern != "read":
            buffers[-1].fill_(7)
        launch()
        first, second, target = buffers[0], buffers[1 % count], buffers[-1]
        if pattern != "read":
            expected = {"write": torch.full_like(first, 1.5), "copy": first, "two reads, one write": first * second}
            assert torch.equal(target, expected[pattern]), who
        print(pattern, who)
"""


def test_triton_ceiling_kernels_in_triton_s_interpreter():
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-c", CHECK_KERNELS],
        cwd=REPOSITORY,
        env={**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4 * 2 * 2


# ---------------------------------------------------------------- the clock


@pytest.mark.gpu
@pytest.mark.alone
def test_device_timer_times_the_device():
    """A copy of 1 GiB must not be faster than 20 TB/s. Long and short calls use their own methods. Failures are reported."""
    clock = timer.DeviceTimer(budget_s=0.01)
    x = torch.randn(1 << 27, device="cuda")

    def fails():
        raise RuntimeError("no")

    times = clock.compare(
        {"copy": x.clone, "twice": lambda: (x.clone(), x.clone()), "fails": fails}, lambda seed: (), 1 << 30
    )
    assert times["copy"].median > (1 << 30) / 20e6 and times["copy"].method == "events, L2 flushed"
    assert times["twice"].median == pytest.approx(2 * times["copy"].median, rel=0.1)
    assert isinstance(times["fails"], RuntimeError)

    def small(seed):
        return (
            torch.full((1 << 14,), 1.5, device="cuda"),
        )  # no random numbers, because a failed capture breaks their generator

    short = clock.compare({"neg": torch.neg, "syncs": lambda t: t.sum().item()}, small, 1 << 17)
    assert short["neg"].median < 10 and "cold" in short["neg"].method
    assert "not capturable" in str(short["syncs"])
    # A failed capture must leave no state behind.
    clock.release_memory()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert clock.compare({"neg": torch.neg}, small, 1 << 17)["neg"].median < 10


SMALL = (
    [(bench_elementwise.ROOM, case) for case in ELEMENTWISE.values() if case.name == "2^14"]
    + [
        (bench_reduce.ROOM, case)
        for op, dim in (("sum", None), ("sum", 1), ("sum", 0), ("mean", 1), ("max", None), ("min", 0))
        for case in bench_reduce._dense(op, (128, 256), dim, torch.float32, torch.bfloat16)
    ]
    + [
        (bench_upsample.ROOM, case)
        for op, exact in itertools.product(bench_upsample.BOTH, (False, True))
        for case in upsampling(op, torch.float32, torch.bfloat16, exact=exact)
    ]
    + [
        (bench_index_add.ROOM, case)
        for mode in bench_index_add.MODES
        for case, _ in index_adding(torch.float32, torch.bfloat16, mode=mode, peers=(INDUCTOR,))
    ]
)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize(("room", "case"), SMALL, ids=lambda value: getattr(value, "title", ""))
def test_a_small_case_runs_with_all_peers(room, case):
    setting = Setting(timer.DeviceTimer(budget_s=0.005), "cuda", tune=False)
    row = run_case(case, room.calls()[case.call], room.peers, setting, [])
    for name, entry in row["contenders"].items():
        assert entry["status"] == "ok" or entry["status"] == "missing" and name.startswith("CuPy"), (name, entry)
        if entry["status"] == "ok":
            assert 0.2 < entry["us"]["median"] < 200


def test_errors_of_results_beyond_the_range_of_a_dtype():
    """A sum that float16 can't hold is an infinity, and only an infinity of its sign is right."""
    want = torch.tensor([1.0, 138e3, -138e3], dtype=torch.float64)
    assert relative_error(want.half(), want) == 0
    assert relative_error(torch.tensor([1.0, 4096.0, -math.inf]).half(), want) > 0.5
    assert relative_error(torch.tensor([1.0, math.inf, math.inf]).half(), want) > 0.5
    assert math.isnan(relative_error(torch.tensor([1.0, math.nan, -math.inf]).half(), want))
