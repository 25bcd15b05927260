"""The cases of the benchmarks: their operands, the bytes that they move, and that all contenders compute the same."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from benchmarks.harness import operands, report
from benchmarks.harness.traffic import distinct_bytes, results, traffic
from benchmarks.rooms import index_add as bench_index_add
from benchmarks.rooms import reduce as bench_reduce
from benchmarks.rooms import rooms

from ...support.benchmark_fakes import CONV1D, INDEX_ADD, UPSAMPLE

REPOSITORY = Path(__file__).resolve().parents[3]
ROOMS = tuple(rooms().values())
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
        ("mul misaligned out= 2^26 f32", 2 << 28, 1 << 28),
        ("mul in-place 2^25 bf16", 2 << 26, 1 << 26),
        ("mul bf16*f32 2^25 bf16", (2 + 4) << 25, 4 << 25),
        ("mul x[:, ::2]*y f32", 2 * 8192 * 4096 * 4, 8192 * 4096 * 4),
        ("fma 2^25 bf16", 3 << 26, 1 << 26),
        ("sum (32768,1024) dim 1 bool", 1 << 25, 8 << 15),
        ("sum (32768,1) expanded to 1024 dim 1 f32", 4 << 15, 4 << 15),
        ("mean NHWC dim (0,2,3) f32", 4 * 64 * 256 * 56 * 56, 4 * 256),
        ("nearest2d-backward CL (8,256,64,64)->(128,128) bf16", 2 << 25, 2 << 23),
        ("nearest2d (16,64,200,200)->(77,93) f32", 4 * 16 * 64 * 77 * 93, 4 * 16 * 64 * 77 * 93),
        ("nearest2d-backward (16,64,200,200)->(77,93) f32", 4 * 16 * 64 * 77 * 93, 4 * 16 * 64 * 200 * 200),
        ("dot 2^30 bf16", 4 << 30, 2),
        ("dot x, (1) expanded, 2^25 f32", (4 << 25) + 4, 4),
        ("dot x, x, 2^25 bf16", 2 << 25, 2),
        ("dot vdot 2^25 c64", 16 << 25, 8),
        ("dot_rows (32768,1024), (1024) expanded f32", (4 << 25) + (4 << 10), 4 << 15),
        ("conv1d-backward (1,1,2^24) k5 p2 bf16", 2 * (2 << 24) + 10, (2 << 24) + 10),
        ("update (256,4096) k4 bias, silu f32", 4 * (5 * 256 + 5) * 4096, 4 * 5 * 256 * 4096),
        ("index_add-fast (1024)+=(2^24) uniform f32", (8 + 4 << 24) + 4096, 4096),
        ("index_add-fast (169343,128)+=(2^20,128) all equal bf16", (8 + 256 << 20) + 256, 256),
    ],
)
def test_each_operand_is_counted_once(title, read, written):
    case, call = CASES[title]
    assert traffic(case, call) == (read, written)


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("title", CASES)
def test_our_call_and_atens_are_the_same_call(title):
    case, call = CASES[title]
    ours, atens, exact = (results(f(*case.build("meta", 0))) for f in (call.ours, call.aten, call.reference))
    for out, aten, reference in zip(ours, atens, exact, strict=True):
        assert (out.dtype, out.shape) == (aten.dtype, aten.shape) and out.shape == reference.shape
        # Strides of convolutions follow a rule of gpuopt's. ATen's differ on the meta device, and between its own algorithms.
        # A gradient may be a slice of a tensor.
        assert out.stride() == aten.stride() or title in CONV1D or case.op.endswith("-step")
    expects_argument = {"new": None, "inplace": 0, "out": -1}[call.kind]
    if expects_argument is not None:
        args = case.build("meta", 0)
        assert call.ours(*args) is args[expects_argument]


def test_a_row_has_the_arguments_of_its_case():
    """As JSON, from which tests make them again."""

    def facts(arg):
        if isinstance(arg, torch.Tensor):
            return arg.shape, arg.stride(), arg.storage_offset(), arg.dtype
        return operands.DTYPE_NAMES[arg] if isinstance(arg, torch.dtype) else arg

    for case, _ in CASES.values():
        args = json.loads(json.dumps(operands.described(case.build("meta", 0), case.dtype)))
        found = operands.restored({"dtype": case.dtype, "args": args})
        wanted = json.loads(json.dumps([facts(arg) for arg in case.build("meta", 0)], default=str))
        assert json.loads(json.dumps([facts(arg) for arg in found], default=str)) == wanted, case.title


def test_rooms_are_found_and_their_cases_have_different_titles():
    names = "conv1d dot elementwise index_add matmul norm norm_channels pad reduce scan segment selective_scan spmm transpose triangle_count upsample"
    assert sorted(rooms()) == names.split()
    assert len(CASES) == sum(len(room.cases) for room in ROOMS)


ENDING = ("index_add-count", "convolve-taps", "convolve-taps-more")


def test_sweeps_have_the_same_points_on_every_curve():
    """Random samples are left out, and two sweeps that end early because their operands would be too large."""
    points = defaultdict(lambda: defaultdict(set))
    for case, _ in CASES.values():
        if case.point and case.point.unit != report.RATIO and case.op not in ENDING:
            points[case.op][case.point.curve].add(case.point.x)
    assert len(points) >= 8
    for op, curves in points.items():
        assert len(curves) > 1 and len({frozenset(xs) for xs in curves.values()}) == 1, op


SWEPT_SHAPES = {
    "sum-grid": lambda x: (1 << x, 1 << 25 - x),
    "nearest2d-scales": lambda x: (9, 64, 240 / x, 240 / x),
    "index_add-width": lambda x: (1 << 16, 1 << x),
    "dot-small": lambda x: (1 << x,),
    "dot-size": lambda x: (1 << x,),
}


@pytest.mark.parametrize("op", SWEPT_SHAPES)
def test_operands_are_as_large_as_their_point_says(op):
    for case in (case for case, _ in CASES.values() if case.op == op):
        assert case.build("meta", 0)[0].shape == SWEPT_SHAPES[op](case.point.x)


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
