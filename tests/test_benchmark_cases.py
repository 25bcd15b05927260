"""The cases of the benchmarks: their operands, the bytes that they are counted to move, and that the calls compared are the same call."""

import itertools
from pathlib import Path

import pytest
import torch

from benchmarks import (
    bench_conv1d,
    bench_dot,
    bench_elementwise,
    bench_index_add,
    bench_reduce,
    bench_transpose,
    bench_upsample,
    operands,
    timer,
)
from benchmarks.room import relative_error, rooms
from benchmarks.traffic import distinct_bytes, results, traffic

from .benchmark_fakes import (
    CONV1D,
    ELEMENTWISE,
    INDEX_ADD,
    REDUCE,
    UPSAMPLE,
    double_mul,
)

REPOSITORY = Path(__file__).resolve().parent.parent
ROOMS = tuple(
    bench.ROOM
    for bench in (
        bench_conv1d,
        bench_dot,
        bench_elementwise,
        bench_index_add,
        bench_reduce,
        bench_transpose,
        bench_upsample,
    )
)
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
        ("dot 2^30 bf16", 4 << 30, 2),
        ("dot x[::2], y, 2^25 f32", 8 << 25, 4),
        ("dot one column of (2^25,8), y, 2^25 bf16", 4 << 25, 2),
        ("dot x, (1) expanded, 2^25 f32", (4 << 25) + 4, 4),
        ("dot x, x, 2^25 bf16", 2 << 25, 2),
        ("dot vdot 2^25 c64", 16 << 25, 8),
        ("dot_rows (33554,1000) f32", 8 * 33554000, 4 * 33554),
        ("dot_rows x.t(), y.t() (32768,1024) bf16", 4 << 25, 2 << 15),
        ("dot_rows (32768,1024), (1024) expanded f32", (4 << 25) + (4 << 10), 4 << 15),
        ("index_add-fast (1024)+=(2^24) uniform f32", (8 + 4 << 24) + 4096, 4096),
        ("index_add-fast (169343,128)+=(2^20,128) all equal bf16", (8 + 256 << 20) + 256, 256),
        ("index_add-width (65536,1)+=(2^24,1) uniform bf16", (8 + 2 << 24) + (2 << 16), 2 << 16),
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


def test_counting_bytes_of_index_add_agrees_with_counted_indices():
    """Megabytes without the index, with the distinct entries of one index counted: the figures that the speed goals are
    stated in."""
    calls = bench_index_add._calls()
    for name, entries, megabytes in (
        ("(169343,128)+=(2^20,128) uniform", 1 << 20, 709.93),
        ("(50257,1024)+=(16384,1024) uniform", 1 << 14, 181.44),
        ("(4096,1024)+=(4096,8192) dim 1 uniform", 8192, 167.74),
        ("(32,2^20)+=(15,2^20) uniform", 15, 163.58),
    ):
        for mode in bench_index_add.MODES:
            case = INDEX_ADD[f"index_add-{mode} {name} f32"]
            found = sum(traffic(case, calls[case.call])) - 8 * entries
            assert found / 1e6 == pytest.approx(megabytes, rel=0.01)


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("title", CASES)
def test_our_call_and_atens_are_the_same_call(title):
    case, call = CASES[title]
    ours, atens, exact = (results(f(*case.build("meta", 0))) for f in (call.ours, call.aten, call.reference))
    for out, aten, reference in zip(ours, atens, exact, strict=True):
        assert (out.dtype, out.shape) == (aten.dtype, aten.shape) and out.shape == reference.shape
        # Convolutions have a rule of their own, which ATen's keep on the meta device as little as among themselves.
        assert out.stride() == aten.stride() or title in CONV1D
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
    assert bench_conv1d.ROOM.ops == [
        "conv1d-forward", "conv1d-backward", "conv1d_act", "update", "convolve", "conv1d-forward-small", "conv1d-backward-small",
        "conv1d-forward-sample", "conv1d-forward-sample-small", "conv1d-backward-sample", "conv1d-backward-sample-small", "convolve-taps", "convolve-taps-more",
    ]  # fmt: skip
    assert bench_transpose.ROOM.ops == ["transpose2d", "transpose2d-size"]
    assert bench_dot.ROOM.ops == ["dot", "dot_rows", "dot_fast_atomic", "dot-small", "dot-size"]
    assert bench_elementwise.ROOM.ops == ["mul", "axpy", "fma"]
    assert bench_index_add.ROOM.ops == [f"index_add-{op}" for op in ("fast", "deterministic", "skew", "width", "count")]
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


DRAWS = [getattr(bench_index_add, name) for name in ("UNIFORM", "SORTED", "ZIPF", "ALL_EQUAL", "ONE_HOT_BIN")]


def drawn(draw, seed, entries=20000, bins=5000, dtype=torch.int64):
    maker = operands.Maker("cpu", torch.float32, seed)
    return bench_index_add.draw_index(maker, draw, entries, bins, dtype)


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.name)
def test_an_index_meets_as_many_bins_as_are_counted(draw):
    first, second = drawn(draw, 0), drawn(draw, 1, dtype=torch.int32)
    assert (first.dtype, second.dtype) == (torch.int64, torch.int32)
    for index in (first, second):
        assert len(index) == 20000 and index.min() >= 0 and index.max() < 5000
        assert len(index.unique()) == pytest.approx(bench_index_add.touched(draw, 20000, 5000), rel=0.03)
    assert torch.equal(first, second) == (draw is bench_index_add.ALL_EQUAL)
    assert torch.equal(first, first.sort().values) == (draw in (bench_index_add.SORTED, bench_index_add.ALL_EQUAL))


@pytest.mark.parametrize(("draw", "share"), [(bench_index_add.ONE_HOT_BIN, 0.5), (bench_index_add.zipf(2), 0.61)])
def test_the_fullest_bin_is_the_same_for_every_seed(draw, share):
    counts = [drawn(draw, seed).bincount(minlength=5000) for seed in (0, 1)]
    assert counts[0].argmax() == counts[1].argmax()
    for count in counts:
        assert count.max() / 20000 == pytest.approx(share, rel=0.03)


def test_zipf_frequencies_fall_by_the_power_of_the_rank():
    counts = drawn(bench_index_add.zipf(1.1), 0, entries=1000000).bincount().sort(descending=True).values
    for rank in (1, 3, 15):
        assert counts[rank] / counts[0] == pytest.approx((rank + 1) ** -1.1, rel=0.05)


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.name)
def test_sums_repeated_in_place_stay_finite(draw):
    what = bench_index_add.Sum((64, 8), 1 << 16, draw)
    into, dim, index, source = what.build(torch.float16, "cpu", 0)
    added = torch.zeros(64, 8).index_add_(dim, index, source.float())
    assert 0.2 < added.abs().max() < 8 and (into.abs().max() + 8000 * added.abs().max()).half().isfinite()


def test_index_add_is_called_with_what_its_case_names():
    for title, case in INDEX_ADD.items():
        into, dim, index, source = case.build("meta", 0)
        assert dim == (1 if " dim 1 " in title else 0) and index.shape == (source.shape[dim],)
        assert index.dtype == (torch.int32 if " int32 " in title else torch.int64)
        for tensor in (into, source):
            assert tensor.is_contiguous() and tensor.storage_offset() == (1 if " misaligned " in title else 0)
        assert case.call == bench_index_add.CALLS["deterministic" if "-deterministic" in case.op else "fast"]


def points(op):
    return {(case.point.curve, case.point.x): case for case in INDEX_ADD.values() if case.op == op}


def test_sweeps_of_index_add_have_the_same_points_on_every_curve():
    exponents = [n / 4 for n in range(9)] + [2.5]
    assert set(points("index_add-skew")) == set(itertools.product(("f32", "bf16"), exponents))
    width = points("index_add-width")
    assert set(width) == set(itertools.product(("2^24 values f32", "2^24 values bf16"), range(13)))
    for (_, power), case in width.items():
        into, _, _, source = case.build("meta", 0)
        assert into.shape == (1 << 16, 1 << power) and source.numel() == 1 << 24
    count = points("index_add-count")
    for (curve, power), case in count.items():
        into, _, _, source = case.build("meta", 0)
        assert source.shape == (1 << power, into.shape[1]) and curve.startswith(f"(n,{into.shape[1]}) ")
    assert {curve: max(x for other, x in count if other == curve) for curve, _ in count} == {
        f"(n,{width}) {draw}": most for width, most in ((1, 24), (16, 24), (128, 20)) for draw in ("uniform", "Zipf")
    }


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
