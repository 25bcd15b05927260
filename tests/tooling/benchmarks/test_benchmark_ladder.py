"""The benchmark of the ladders: its cases, tables and plots, without a GPU."""

from __future__ import annotations

import pytest
import torch

from benchmarks.harness import report
from benchmarks.harness.operands import Maker
from benchmarks.harness.room import relative_error
from benchmarks.harness.traffic import results
from benchmarks.ladder import cases as ladders
from benchmarks.ladder import in_flight, units
from benchmarks.ladder import measure as ladder
from benchmarks.ladder import profile as ladder_profile
from benchmarks.ladder import report as ladder_report
from benchmarks.publish import ladders as ladder_docs
from benchmarks.publish import pages, plots, show
from benchmarks.rooms.graphs import Graph, undirected
from benchmarks.rooms.norm import operands as norm_operands
from torch_ops import ladder as public

from ...support.benchmark_fakes import synthetic

ROOMS = ladders.rooms()
CASES = [case for room in ROOMS.values() for case in room.cases]


def test_every_step_of_every_ladder_is_measured():
    assert sorted(ROOMS) == public.ops()
    for op, room in ROOMS.items():
        measured = {peer.name for case in room.cases for peer in case.peers if peer.name.startswith(ladders.STEP)}
        assert measured == {ladders.step_name(step.number, step.name) for step in public.steps(op)[:-1]}


def smaller(case):
    """The operands of a case, in sizes that are fast on a CPU."""
    args = case.build("meta", 0)
    generator = torch.Generator().manual_seed(0)

    def cut(arg, shape):
        if arg.dtype == torch.int64:
            return torch.randint(0, 16, shape, generator=generator)
        return torch.rand(shape, generator=generator).to(arg.dtype)

    if case.op.startswith("upsample"):
        shape = [1, 2, 8, 8] if case.op == "upsample_nearest2d" else [1, 2, 16, 16]
        return (cut(args[0], shape), [16, 16], *([[1, 2, 8, 8]] if len(args) > 2 else []))
    if case.op == "index_add_":
        return cut(args[0], (16, 4)), cut(args[1], (100,)), cut(args[2], (100, 4))
    if case.op == "spmm":
        counts = torch.tensor([0, 3, 0, 20, 1])
        index = torch.randint(0, 6, (24,), generator=generator).int()
        return counts.cumsum(0).int(), index, cut(args[2], (24,)), cut(args[3], (6, 5))
    if case.op == "matmul":
        return cut(args[0], (8, 12)), cut(args[1], (12, 5))
    if case.op.startswith("layer_norm"):
        return norm_operands(case.op, (16, 12), "", Maker("cpu", args[0].dtype, 0, uniform=True))
    if case.op == "triangle_count":
        return *undirected(Graph("small", 16, 80), Maker("cpu", torch.int32, 0)), 16
    shapes = {"transpose2d": (8, 12), "conv1d": (1, 1, 200)}
    sizes = [arg.shape if case.op == "conv1d" and k else shapes.get(case.op, (64,)) for k, arg in enumerate(args)]
    return tuple(cut(arg, size) for arg, size in zip(args, sizes))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_pytorch_s_calls_and_ours_are_what_the_reference_says(case):
    call = ROOMS[case.op].calls()[case.call]
    references = results(call.reference(*(a.clone() if isinstance(a, torch.Tensor) else a for a in smaller(case))))
    for function in (call.ours, call.aten):
        for out, reference in zip(results(function(*smaller(case))), references, strict=True):
            assert out.shape == reference.shape
            assert relative_error(out, reference) <= (2e-2 if out.dtype != torch.float32 else 1e-5)


def made_up() -> dict:
    """A result of reduce_sum in which higher steps are faster and step 2 failed."""
    result = synthetic(room=ROOMS["reduce_sum"])
    (row,) = result["rows"]
    for position, name in enumerate(ladder_report.contenders(row)):
        us = 1000.0 / (position + 1)
        row["contenders"][name]["us"]["median"] = us
        row["contenders"][name]["gbps"] = (row["read_bytes"] + row["written_bytes"]) / us / 1e3
    row["contenders"]["step 2 sequential"] = {"status": "failed", "reason": "RuntimeError: no"}
    return result


def test_speedups_over_the_first_step_and_the_one_before():
    (row,) = made_up()["rows"]
    names = ladder_report.contenders(row)
    assert names[0] == "step 0 interleaved_modulo" and names[-2:] == ["gpuopt", "ATen"] and len(names) == 13
    gains = ladder_report.speedups(row)
    assert gains[names[0]] == (None, None) and gains[names[1]] == pytest.approx((2.0, 2.0))
    assert gains["step 2 sequential"] == (None, None)
    assert gains["step 3 first_add_on_load"] == pytest.approx((4.0, 2.0))  # the previous step with a time is step 1
    assert gains["gpuopt"] == pytest.approx((12.0, 12 / 11)) and gains["ATen"] == (pytest.approx(13.0), None)


def test_rows_that_arithmetic_limits_count_operations():
    (row,) = (
        row for row in synthetic(room=ROOMS["matmul"])["rows"] if (row["case"], row["dtype"]) == ("4096^3", "f32")
    )
    row |= {"flops": 2 * 4096**3, "ceiling": None}
    names = ladder_report.contenders(row)
    assert names[-3:] == ["gpuopt", "ATen", "PyTorch in TF32"] and ladder_report.speedups(row)[names[-1]][1] is None
    for name in names:
        row["contenders"][name]["us"]["median"] = 1000.0 if name == "ATen" else 4000.0
    assert ladder_report.case(row) == "4096^3 f32, 137 GFLOP:"
    heading, _, first, *_, last = ladder_report.table(row)
    assert "TFLOP/s | % of PyTorch" in heading and first.startswith("| 0 naive | 4000 | 34.4 | 25% |")
    assert last.startswith("| PyTorch in TF32 | 4000 | 34.4 | 25% |")


def test_commands_without_a_gpu(capsys, tmp_path):
    assert ladder.main(["--list", "dot"]) == 0
    assert "dot 2^20 f16: 0 half_atomic, 1 block_then" in capsys.readouterr().out
    assert ladder.main(["nothing"]) == 2 and "no ladder is called 'nothing'" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert ladder.main(["dot"]) == 2 and "nothing was measured" in capsys.readouterr().err
    path = tmp_path / "reduce_sum.json"
    report.save(path, made_up())
    assert show.main(["--plots", str(tmp_path), str(path)]) == 0 and (tmp_path / "reduce_sum.png").exists()


def test_the_graph_of_spmm_is_a_matrix_with_long_rows():
    ptr, index = ladders._edges(Maker("cpu", torch.float32, 0), 10, 20_000)
    counts = ptr.diff()
    assert ptr[0] == 0 and ptr[-1] == len(index) == 20_000 and ptr.dtype == index.dtype == torch.int32
    assert counts.min() >= 0 and counts.max() > 10 * counts.float().mean()
    assert index.min() >= 0 and index.max() < 1 << 10 and len(index.unique()) > 500


# ---------------------------------------------------------------- counters


def ncu_output(cases: list[list[str]]) -> str:
    """The output of ncu for two kernels per contender, where the second one is longer."""
    columns = ["ID", "Kernel Name", *ladder_profile.METRICS]
    lines = ["==PROF== Connected to process 1", ",".join(f'"{c}"' for c in columns), ",".join('""' for _ in columns)]
    for number in range(sum(map(len, cases))):
        for kernel, us in (("spin_kernel(long)", 1), ("first", 1_000 + number), ("second", 2_000 + number)):
            values = {ladder_profile.DURATION: f"{us:,}", ladder_profile.STALL.format("barrier"): f"{us / 100}"}
            cells = [
                str(number),
                kernel,
                *(values.get(metric, f"{us * 1.5:,}") for metric in ladder_profile.METRICS[:9]),
            ]
            cells += [values.get(metric, "n/a") for metric in ladder_profile.METRICS[9:]]
            lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join([*lines, "==PROF== Disconnected"])


def test_counters_are_the_longest_kernel_s():
    cases = [ladder_profile.contenders_of(case) for case in ROOMS["mul"].cases]
    assert cases[0] == ["step 0 one_a_thread", "step 1 grid_stride", "step 2 vectors", "gpuopt"]
    counters = ladder_profile.assign(cases, ladder_profile.read(ncu_output(cases)))
    assert [list(of_case) for of_case in counters] == cases
    entry = counters[1]["gpuopt"]  # the eighth contender of all
    assert entry["kernels"] == 2 and entry["sectors a load"] == 2007 * 1.5
    assert (entry["waits for"], entry["cycles waited an instruction"]) == ("a barrier", 20.07)
    (first, *_), *_ = ladder_profile.assign(
        cases, ladder_profile.read(ncu_output(cases).replace("stalled_drain", "stalled_other"))
    )
    assert first == cases[0][0]  # a reason that ncu does not report is left out
    with pytest.raises(ladder_profile.NoProfiler, match="launched no kernel"):
        ladder_profile.summary([])
    with pytest.raises(ladder_profile.NoProfiler, match="ncu saw 8 contenders, expected 4"):
        ladder_profile.assign(cases[:1], ladder_profile.read(ncu_output(cases)))
    result = synthetic(room=ROOMS["mul"])
    for row, found in zip(result["rows"], counters):
        for name, entry in found.items():
            row["contenders"][name]["counters"] = entry
    tables = [ladder_report.counters_table(row, "README.md#counters") for row in result["rows"]]
    assert str(tables).count("a barrier") == 8
    assert "Counters of each step's longest kernel" in ladder_docs.page_of("mul", None, result)


# ---------------------------------------------------------------- bytes in flight


def a_memory(latency_us: float, gbps: float) -> dict:
    """A result of copies by a memory with this latency and this bandwidth."""
    result = synthetic(room=in_flight.room())
    result["gpu"] = result["gpu"] | {"multiprocessors": 100}
    for row in result["rows"]:
        row["ceiling"]["gbps"] = gbps
        under_way = in_flight.bytes_in_flight(*in_flight._shape(row))
        row["contenders"]["gpuopt"]["gbps"] = min(2 * 100 * under_way / (latency_us * 1e3), gbps)
    return result


def test_latency_and_knee():
    result = a_memory(0.8, 4000.0)
    assert in_flight.latency_us(result) == pytest.approx(0.8)
    assert in_flight.knee(result) == pytest.approx(0.8e-6 * 2000e9 / 100)
    for under_way, gbps, _ in in_flight.measured(result):
        assert in_flight.predicted(result, under_way) == pytest.approx(gbps)
    assert "take 800 ns" in in_flight.sentence(result) and "need 15.6 KiB" in in_flight.sentence(result)
    assert "first reached with 16.0 KiB" in in_flight.sentence(result)


# ---------------------------------------------------------------- docs


def test_pages_are_as_sources_and_results_are():
    """`python -m benchmarks pages` writes them."""
    assert pages.stale(ladder_docs.pages()) == []


def test_the_roofline_has_every_step_of_matmul(tmp_path):
    assert set(units.TILES) == {step.name for step in public.steps("matmul")[:-1]}
    assert units.intensity("bulk_copies", 4) == pytest.approx(2 * 128 * 256 / (384 * 4))
    rates = [{"unit": unit, "tflops": 60.0, "ghz": 1.7} for unit in units.UNITS]
    result = synthetic(room=ROOMS["matmul"]) | {"units": rates}
    drawn = plots.draw(result, tmp_path, "matmul")
    assert [path.name for path in drawn] == ["matmul.png", "matmul-roofline.png"]
    assert all(path.stat().st_size > 10_000 for path in drawn)
    table = ladder_docs._units(rates)
    assert table[-1] == "| bf16 | 60 | 1.70 |" and len(table) == 2 + len(rates)
