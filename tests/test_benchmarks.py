"""Everything of the benchmarks but the clock, which needs a GPU: cases, counting bytes, checking results, peers, ceilings."""

import dataclasses
import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import bench_elementwise, bench_reduce, bench_upsample, ceilings, operands, report, timer
from benchmarks.peers import CUPY, INDUCTOR, Missing, Peer, Setting
from benchmarks.room import error_limit, relative_error, rooms, run_case
from benchmarks.traffic import distinct_bytes, traffic

from .benchmark_fakes import (
    CPU,
    ELEMENTWISE,
    REDUCE,
    TINY,
    TINY_CALL,
    UPSAMPLE,
    FakeTimer,
    absent,
    double_mul,
    rendered,
    synthetic,
    two_vectors,
)

REPOSITORY = Path(__file__).resolve().parent.parent
ROOMS = (bench_elementwise.ROOM, bench_reduce.ROOM, bench_upsample.ROOM)
CASES = {case.title: (case, calls[case.call]) for room in ROOMS for calls in [room.calls()] for case in room.cases}

# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.empty(8, 3), 96),
        (torch.empty(8, 3)[1:, :2], 56),
        (torch.empty(8, 3, dtype=torch.bfloat16).t(), 48),
        (torch.empty(3, 1).expand(3, 100), 12),
        (torch.empty(8)[::2], 16),
        (torch.empty(()), 4),
        (torch.empty(0, 5), 0),
        (torch.empty(5, dtype=torch.complex64), 40),
    ],
)
def test_distinct_bytes(tensor, expected):
    assert distinct_bytes(tensor) == expected


@pytest.mark.parametrize(
    ("title", "read", "written"),
    [
        ("mul 2^28 f32", 2 << 30, 1 << 30),
        ("mul NCHW*C bf16", 64 * 256 * 56 * 56 * 2 + 256 * 2, 64 * 256 * 56 * 56 * 2),
        ("mul x*y.t() 8192^2 f32", 2 * 8192**2 * 4, 8192**2 * 4),
        ("mul misaligned out= 2^26 f32", 2 << 28, 1 << 28),
        ("mul in-place 2^25 bf16", 2 << 26, 1 << 26),
        ("mul bf16*f32 2^25 bf16", (2 + 4) << 25, 4 << 25),
        ("mul 2.5*x 2^25 f32", 4 << 25, 4 << 25),
        ("mul x[:, ::2]*y f32", 2 * 8192 * 4096 * 4, 8192 * 4096 * 4),
        ("mul rows of a wider matrix, out= f32", 2 * 8192 * 4096 * 4, 8192 * 4096 * 4),
        ("fma 2^25 bf16", 3 << 26, 1 << 26),
        ("sum 2^30 f32", 4 << 30, 4),
        ("sum (262144,128) dim 1 bf16", 2 << 25, 2 << 18),
        ("sum dtype=f64, (32768,1024) dim 1 f32", 4 << 25, 8 << 15),
        ("sum (32768,1024) dim 1 bool", 1 << 25, 8 << 15),
        ("sum (32768,1) expanded to 1024 dim 1 f32", 4 << 15, 4 << 15),
        ("sum x[:, ::2] 8192^2 dim 0 f32", 4 << 25, 4 << 12),
        ("mean NHWC dim (0,2,3) f32", 4 * 64 * 256 * 56 * 56, 4 * 256),
        ("sum-grid 2^25 x 2^0 dim 1 f32", 4 << 25, 4 << 25),
        ("nearest2d (8,256,64,64)->(128,128) bf16", 2 << 23, 2 << 25),
        ("nearest2d-backward CL (8,256,64,64)->(128,128) bf16", 2 << 25, 2 << 23),
        ("nearest2d cropped CL (8,256,64,64)->(128,128) f32", 4 << 23, 4 << 25),
        ("nearest2d (16,64,200,200)->(77,93) f32", 4 * 16 * 64 * 77 * 93, 4 * 16 * 64 * 77 * 93),
        ("nearest2d-backward (16,64,200,200)->(77,93) f32", 4 * 16 * 64 * 77 * 93, 4 * 16 * 64 * 200 * 200),
        ("nearest2d (1,3,1080,1920)->(720,1280) u8", 3 * 720 * 1280, 3 * 720 * 1280),
    ],
)
def test_each_operand_is_counted_once(title, read, written):
    case, call = CASES[title]
    assert traffic(case, call) == (read, written)


def test_counting_bytes_agrees_with_peers_of_record():
    """(8,4096,4096)*(4096) in f32 is 1073.74 MB and NCHW*C 411.04 MB: the figures that the speed goals are stated in."""
    calls = bench_elementwise._calls()
    for title, megabytes in (("mul BTD*D f32", 1073.76), ("mul NCHW*C f32", 411.04), ("mul 2^14 f32", 0.2)):
        assert sum(traffic(ELEMENTWISE[title], calls["mul"])) / 1e6 == pytest.approx(megabytes, abs=0.01)


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("title", CASES)
def test_our_call_and_atens_are_the_same_call(title):
    case, call = CASES[title]
    ours, aten = call.ours(*case.build("meta", 0)), call.aten(*case.build("meta", 0))
    assert (ours.dtype, ours.shape, ours.stride()) == (aten.dtype, aten.shape, aten.stride())
    assert call.reference(*case.build("meta", 0)).shape == ours.shape
    expects_argument = {"new": None, "inplace": 0, "out": -1}[call.kind]
    if expects_argument is not None:
        args = case.build("meta", 0)
        assert call.ours(*args) is args[expects_argument]


def test_misaligned_cases_are_misaligned_by_one_element():
    for dtype in ("f32", "bf16"):
        for tensor in ELEMENTWISE[f"mul misaligned out= 2^26 {dtype}"].build("meta", 0):
            assert tensor.storage_offset() == 1 and tensor.is_contiguous()


@pytest.mark.parametrize("dtype", list(operands.DTYPE_NAMES))
def test_operands_are_fresh_and_their_products_exact_in_range(dtype):
    a, b = (operands.Maker("cpu", dtype, seed)(1000) for seed in (0, 1))
    assert a.dtype == dtype and not torch.equal(a, b) and a.count_nonzero() > 400
    product = torch.mul(a, b)
    assert relative_error(product, double_mul(a, b) if not dtype.is_complex else a.to(torch.complex128) * b) < 4e-3


def test_in_place_operands_keep_their_size():
    signs = operands.Maker("cpu", torch.bfloat16, 0).signs(1000)
    assert signs.dtype == torch.bfloat16 and set(signs.tolist()) == {-1.0, 1.0}


def test_rooms_are_found_by_their_file_name():
    assert rooms() == {room.name: room for room in ROOMS}
    assert bench_elementwise.ROOM.ops == ["mul", "axpy", "fma"]
    assert bench_reduce.ROOM.ops == ["sum", "max", "mean", "min", "sum-grid"]
    assert bench_upsample.ROOM.ops == [*bench_upsample.BOTH, "nearest2d-scales", "nearest2d-backward-scales"]


def test_case_titles_are_unique():
    assert len(CASES) == sum(len(room.cases) for room in ROOMS)


def test_the_grid_has_every_power_of_two():
    grid = [case for case in REDUCE.values() if case.op == "sum-grid"]
    assert {(case.point.x, case.point.curve) for case in grid} == {
        (power, f"dim {dim} {dtype}") for power in range(26) for dim in (0, 1) for dtype in ("f32", "bf16")
    }
    for case in grid:
        x, dim = case.build("meta", 0)
        assert x.shape == (1 << case.point.x, 1 << 25 - case.point.x)
        assert case.point.curve == f"dim {dim} {case.dtype}" and case.peers == () and not case.headline


@pytest.mark.parametrize("op", bench_upsample.BOTH)
def test_the_sweep_over_scales_has_the_same_points_on_every_curve(op):
    sweep = [case for case in UPSAMPLE.values() if case.op == f"{op}-scales"]
    factors = {case.point.x for case in sweep}
    assert {0.25, 0.5, 1, 1.5, 2, 8} <= factors and max(factors) == 8 and min(factors) == 0.25
    curves = ("f32", "f32 CL", "bf16", "bf16 CL")
    assert {(case.point.x, case.point.curve) for case in sweep} == set(itertools.product(factors, curves))
    for case in sweep:
        small, large = (9, 64, *2 * [240 / case.point.x]), (9, 64, 240, 240)
        args = case.build("meta", 0)
        assert args[0].shape == (small if op == bench_upsample.FORWARD else large) and args[1] == (240, 240)
        assert args[0].is_contiguous(memory_format=torch.channels_last) == ("CL" in case.point.curve)
        assert case.peers == () and not case.headline


def test_upsampling_reads_the_layout_that_its_case_names():
    for title, case in UPSAMPLE.items():
        x = case.build("meta", 0)[0]
        assert x.stride(1) == 1 if " CL " in title else x.stride(3) == 1
        assert x.storage_offset() == 1 if " misaligned " in title else x.storage_offset() == 0 or "cropped" in title
        assert x.is_contiguous() or " CL " in title or "cropped" in title


def test_sums_are_of_values_that_do_not_cancel():
    (ours,) = bench_reduce._dense("sum", (4096,), None, torch.float32)
    (other,) = bench_reduce._dense("max", (4096,), None, torch.float32)
    x, y = ours.build("cpu", 0)[0], other.build("cpu", 0)[0]
    assert x.min() >= 0 and 0.4 < x.mean() < 0.6 and y.min() < -2 and y.max() > 2


@pytest.mark.parametrize(
    "row", [row for room in ROOMS for row in room.call_times], ids=lambda row: f"{row.op} {row.name}"
)
def test_call_time_statements_run_and_agree(row):
    variables = row.variables("cpu")
    results = []
    for statement in row.statements.values():
        fresh = {name: v.detach().clone().requires_grad_(v.requires_grad) if isinstance(v, torch.Tensor) else v
                 for name, v in variables.items()}  # fmt: skip
        value = eval(statement, fresh)
        results.append(value if isinstance(value, tuple) else (value,))
    for result in results[1:]:
        for ours, theirs in zip(results[0], result, strict=True):
            torch.testing.assert_close(ours, theirs)
    if row.name == "building a graph":
        assert all(value.requires_grad for result in results for value in result)


def test_call_times_merge_their_rounds():
    times = timer.call_times({"a": "x + x", "b": "x * 2"}, {"x": torch.ones(4)}, "label", "sub", seconds=0.03)
    assert set(times) == {"a", "b"} and all(1e-8 < m.median < 1e-2 and len(m.times) >= 3 for m in times.values())


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


def test_a_case_may_have_other_peers_than_its_room():
    row = run_case(dataclasses.replace(TINY, peers=(Peer("absent", absent),)), TINY_CALL, PEERS[1:], CPU, [])
    assert list(row["contenders"]) == ["gpuopt", "ATen", "absent"]


REAL = (torch.float32, torch.bfloat16, torch.float64)
REDUCED = {
    "sum": (*REAL, torch.complex64, torch.int8, torch.bool),
    "mean": (*REAL, torch.complex64),
    "max": (*REAL, torch.uint8, torch.bool),
    "min": (*REAL, torch.int64),
}


@pytest.mark.parametrize("dim", [None, 0, 1])
@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op, dtypes in REDUCED.items() for dtype in dtypes])
def test_right_reductions_pass(op, dim, dtype):
    (case,) = bench_reduce._dense(op, (300, 200), dim, dtype)
    row = run_case(case, bench_reduce._calls()[op], (), CPU, [])
    assert [entry["status"] for entry in row["contenders"].values()] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("op", "wrong"),
    [
        ("sum", lambda x, dim: torch.sum(x[1:], dim)),
        ("mean", lambda x, dim: torch.mean(x[1:], dim)),
        ("max", lambda x, dim: torch.nextafter(torch.amax(x, dim), torch.tensor(torch.inf))),
        ("min", lambda x, dim: torch.amin(x[1:], dim)),
    ],
)
def test_wrong_reductions_are_found(op, wrong):
    (case,) = bench_reduce._dense(op, (300, 2000), 0, torch.float32)
    row = run_case(case, dataclasses.replace(bench_reduce._calls()[op], ours=wrong), (), CPU, [])
    assert [entry["status"] for entry in row["contenders"].values()] == ["wrong", "ok"]


def test_sums_may_differ_in_the_order_of_additions():
    f32 = torch.finfo(torch.float32).eps
    assert bench_reduce.sum_limit(torch.float32, 1e-9) == bench_reduce.sum_limit(torch.complex64, 0.0) == 32 * f32
    assert bench_reduce.sum_limit(torch.float32, 1e-4) == 4e-4
    assert bench_reduce.sum_limit(torch.bfloat16, 0.0) == torch.finfo(torch.bfloat16).eps
    assert bench_reduce.sum_limit(torch.int64, 0.0) == 0.0


def upsampling(op, *dtypes, **options):
    return bench_upsample._cases((2, 8, 12, 10), (23, 29), *dtypes, ops=(op,), **options)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("op", bench_upsample.BOTH)
def test_right_upsampling_passes(op, exact):
    dtypes = (torch.float32, torch.bfloat16, torch.float64, *([torch.uint8] if op == bench_upsample.FORWARD else []))
    for case in upsampling(op, *dtypes, exact=exact, layouts=tuple(bench_upsample.LAYOUTS)):
        row = run_case(case, bench_upsample._calls()[case.call], (), CPU, [])
        assert [entry["status"] for entry in row["contenders"].values()] == ["ok", "ok"], case.title


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("op", bench_upsample.BOTH)
def test_wrong_upsampling_is_found(op, exact):
    """Other pixels than the mode's, and a gradient whose last column is lost."""
    calls = bench_upsample._calls()
    (case,) = upsampling(op, torch.float32, exact=exact, layouts=("",))
    (other,) = upsampling(op, torch.float32, exact=not exact, layouts=("",))
    wrong = [calls[other.call].aten]
    if op == bench_upsample.BACKWARD:
        wrong.append(lambda g, *sizes: calls[case.call].aten(g.index_fill(3, torch.tensor(28), 0), *sizes))
    for ours in wrong:
        row = run_case(case, dataclasses.replace(calls[case.call], ours=ours), (), CPU, [])
        assert [entry["status"] for entry in row["contenders"].values()] == ["wrong", "ok"]


def test_gradients_may_differ_in_the_order_of_additions_whatever_atens_error():
    f32, bf16 = torch.finfo(torch.float32).eps, torch.finfo(torch.bfloat16).eps
    assert bench_upsample.adjoint_limit(torch.float32, 1.0) == 32 * f32
    assert bench_upsample.adjoint_limit(torch.bfloat16, 1.0) == bf16


def test_error_limit_allows_rounding_only():
    assert error_limit(torch.float32, 2.5e-8) == torch.finfo(torch.float32).eps
    assert error_limit(torch.bfloat16, 0.1) == 0.4
    assert error_limit(torch.int32, 0.0) == 0.0
    assert relative_error(torch.tensor([3, 4]), torch.tensor([3, 0])) == pytest.approx(4 / 3)


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


def test_inductor_says_where_it_only_calls_aten():
    (case,) = upsampling(bench_upsample.BACKWARD, torch.float32, exact=True, layouts=("",))
    compiled, how = INDUCTOR.prepare(bench_upsample._calls()[case.call], case, CPU)
    assert how == "default, with ATen's kernels alone"
    args = case.build("cpu", 0)
    assert torch.equal(compiled(*args), torch.ops.aten._upsample_nearest_exact2d_backward(*args))


# ---------------------------------------------------------------- timer and ceilings


def test_timing_is_median_and_quartiles():
    timing = timer.summarise([1.0, 2.0, 3.0, 4.0, 100.0], "events")
    assert (timing.median, timing.q1, timing.q3, timing.fastest, timing.samples) == (3.0, 2.0, 4.0, 1.0, 5)
    assert timer.summarise([7.0], "events").median == 7.0


def test_inputs_rotate_through_twice_the_cache():
    assert timer.copies_to_fill(120 << 20, 12 << 20) == 10
    assert timer.copies_to_fill(120 << 20, 1 << 30) == 1
    assert timer.copies_to_fill(120 << 20, 16) == timer.MAX_COPIES


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


def test_ceilings_are_measured_only_where_needed_and_where_they_fit():
    assert ceilings.classes_for([3 << 30, 1 << 20], 1 << 40) == ["128 MiB", "4 GiB"]
    assert ceilings.classes_for([3 << 30], 2 << 30) == ["512 MiB"]
    assert ceilings.classes_for([3 << 30], 1 << 20) == ["128 MiB"]


def test_ceiling_kernels_move_what_they_say(monkeypatch):
    monkeypatch.setitem(ceilings.SIZES, "128 MiB", 1 << 20)
    monkeypatch.setattr(ceilings, "_triton_contenders", lambda *args: {})
    measured = ceilings.measure(FakeTimer(), ["128 MiB"], "cpu", quick=True, progress=lambda text: None)
    assert [entry["pattern"] for entry in measured] == list(ceilings.READ_SHARE)
    for entry in measured:
        assert 0.9 * (1 << 20) < entry["bytes"] <= 1 << 20
        assert entry["gbps"] == pytest.approx(entry["bytes"] / 100 / 1e3)


CHECK_KERNELS = """
import torch
from benchmarks import ceilings
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
def test_device_timer_times_the_device():
    """A copy of 1 GiB takes at least what 20 TB/s would, long and short calls are timed by their methods, and failures stay."""
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
        )  # no random numbers: a failed capture spoils their generator

    short = clock.compare({"neg": torch.neg, "syncs": lambda t: t.sum().item()}, small, 1 << 17)
    assert short["neg"].median < 10 and "cold" in short["neg"].method
    assert "not capturable" in str(short["syncs"])
    # A capture that failed leaves nothing behind.
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
)


@pytest.mark.gpu
@pytest.mark.parametrize(("room", "case"), SMALL, ids=lambda value: getattr(value, "title", ""))
def test_a_small_case_runs_with_all_peers(room, case):
    setting = Setting(timer.DeviceTimer(budget_s=0.005), "cuda", tune=False)
    row = run_case(case, room.calls()[case.call], room.peers, setting, [])
    for name, entry in row["contenders"].items():
        assert entry["status"] == "ok" or entry["status"] == "missing" and name.startswith("CuPy"), (name, entry)
        if entry["status"] == "ok":
            assert 0.2 < entry["us"]["median"] < 200
