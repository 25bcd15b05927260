"""Benchmark results as JSON, tables and pictures, and the command that makes them."""

import dataclasses
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import __main__ as command
from benchmarks import (
    bench_conv1d,
    bench_dot,
    bench_index_add,
    bench_reduce,
    bench_upsample,
    ceilings,
    machine,
    plots,
    report,
)
from benchmarks.peers import Peer
from benchmarks.room import CallTime, Room, rooms

from .benchmark_fakes import (
    CONV1D,
    DOT,
    ELEMENTWISE,
    GPU,
    INDEX_ADD,
    REDUCE,
    TINY,
    TINY_CALL,
    TRANSPOSE,
    UPSAMPLE,
    FakeTimer,
    absent,
    rendered,
    synthetic,
    two_vectors,
)

REPOSITORY = Path(__file__).resolve().parent.parent

# ---------------------------------------------------------------- JSON, tables, pictures


def test_json_round_trip(tmp_path):
    result = synthetic()
    path = tmp_path / "deep" / "elementwise.json"
    report.save(path, result)
    assert report.load(path) == result
    assert [p.name for p in path.parent.iterdir()] == ["elementwise.json"]
    assert {
        "schema",
        "date",
        "gpu",
        "versions",
        "source",
        "library",
        "settings",
        "ceilings",
        "rows",
        "call_times",
    } <= set(result)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 0}', None])
def test_what_is_not_a_result_is_refused_with_a_sentence(tmp_path, text, capsys):
    path = tmp_path / "x.json"
    if text is not None:
        path.write_text(text)
    assert command.main(["--plot-only", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_tables_show_every_case_and_call():
    result = synthetic()
    text = rendered(result)
    lines = [line.strip() for line in text.splitlines()]
    for case in ELEMENTWISE.values():
        assert any(line.startswith(case.name) and f" {case.dtype} " in line for line in lines), case.title
    for row in result["call_times"]:
        assert any(line.startswith(row["op"]) and row["name"] in line and "-1.00" in line for line in lines)
    assert "CuPy missing: CuPy has no bfloat16" in text and "missing 1" in text
    assert "…" not in text, "a column was cut short"


def test_a_sweep_is_a_table_of_curves_and_its_worst_point():
    result = synthetic([case for case in REDUCE.values() if case.op == "sum-grid"], bench_reduce.ROOM)
    slow = result["rows"][30]["contenders"]["gpuopt"]
    slow["us"]["median"] *= 3
    result["rows"][40]["contenders"]["gpuopt"] = {"status": "failed", "reason": "no kernel"}
    text = rendered(result)
    lines = [line.split() for line in text.splitlines()]
    beside = [result["rows"][3 + 26 * curve]["contenders"] for curve in range(4)]
    expected = [f"{row['ATen']['us']['median'] / row['gpuopt']['us']['median']:.2f}" for row in beside]
    assert [line[2::3] for line in lines if line[:1] == ["3"]] == [expected]
    assert all(any(line[:1] == [str(power)] for line in lines) for power in range(26))
    assert "sum-grid beside ATen: worst 0.33 (2^4 x 2^21 dim 1 bf16), below 0.99 in 1 of 103 cases" in text
    assert "gpuopt failed: no kernel" in text and "…" not in text


def test_tables_of_upsampling_fit_the_page():
    text = rendered(synthetic(room=bench_upsample.ROOM))
    lines = [line.split() for line in text.splitlines()]
    assert all(sum(line[:1] == [factor] for line in lines) == 2 for factor in ("0.25", "1.5", "8"))
    assert "…" not in text, "a column was cut short"


def test_tables_of_dot_fit_the_page():
    text = rendered(synthetic(room=bench_dot.ROOM))
    assert "…" not in text, "a column was cut short"
    lines = [line.split() for line in text.splitlines()]
    assert all(sum(line[:1] == [str(power)] for line in lines) == 1 + (power in (18, 19, 20)) for power in range(8, 29))


def test_tables_of_conv1d_fit_the_page():
    text = rendered(synthetic(room=bench_conv1d.ROOM))
    assert "…" not in text, "a column was cut short"


def a_sample() -> dict:
    return synthetic([case for case in CONV1D.values() if case.op == "conv1d-forward-sample"], bench_conv1d.ROOM)


def test_of_a_sample_the_worst_are_listed():
    result = a_sample()
    rows = result["rows"]
    for place, row in enumerate(rows):
        row["contenders"]["ATen"]["us"]["median"] = (place + 10) / 40 * row["contenders"]["gpuopt"]["us"]["median"]
    rows[149]["contenders"]["gpuopt"] = {"status": "failed", "reason": "no kernel"}
    text = rendered(result)
    cases = [line.strip() for line in text.splitlines()]
    listed = [row for row in rows if any(line.startswith(f"{row['case']} ") for line in cases)]
    assert listed == [*rows[: report.LISTED], rows[149]] and "gpuopt failed: no kernel" in text
    assert f"worst 0.25 ({rows[0]['case']} f32), below 0.99 in 30 of 149 cases" in text
    assert rows[0]["point"]["curve"] == "depthwise f32"
    alike = sum(row["point"]["curve"] == "depthwise f32" for row in rows)
    assert f"depthwise f32: {alike} cases, 0.25 to" in text and "few channels f16: " in text


def test_a_sample_is_drawn_as_points(tmp_path):
    paths = plots.plot(a_sample(), tmp_path, "conv1d")
    assert [path.name for path in paths] == ["conv1d-forward-sample.png"] and paths[0].stat().st_size > 10_000


def test_tables_of_index_add_fit_the_page():
    text = rendered(synthetic(room=bench_index_add.ROOM))
    assert "…" not in text, "a column was cut short"
    assert any(line.split()[:2] == ["all", "equal"] for line in text.splitlines())


def test_a_variant_of_gpuopt_is_no_peer_but_may_fail():
    case = next(case for case in INDEX_ADD.values() if case.op == "index_add-skew")
    result = synthetic([case], bench_index_add.ROOM)
    (row,) = result["rows"]
    variant = row["contenders"]["gpuopt deterministic"]
    variant["us"]["median"] = 0.125
    assert report.best_peer(row)[0] == "ATen" and "0.12" in rendered(result) and report.failures(result) == []
    row["contenders"]["gpuopt deterministic"] = {"status": "wrong", "reason": "error 1"}
    (failure,) = report.failures(result)
    assert failure == f"{case.title}: gpuopt deterministic: error 1" and "wrong 1" in rendered(result)


def test_a_sweep_in_time_is_drawn_beside_the_time_at_the_ceiling():
    cases = [case for case in INDEX_ADD.values() if case.op == "index_add-skew"]
    rows = synthetic(cases, bench_index_add.ROOM)["rows"]
    for axes, curve in zip(plots._curves(rows).axes, ("f32", "bf16"), strict=True):
        points = [row for row in rows if row["dtype"] == curve]
        *lines, bound = axes.get_lines()
        assert [len(line.get_xdata()) for line in lines] == [10, 10, 10] and axes.get_yscale() == "log"
        times = [row["contenders"]["gpuopt"]["us"]["median"] for row in points]
        assert lines[-1].get_ydata().tolist() == pytest.approx(times)
        bytes_moved = [row["read_bytes"] + row["written_bytes"] for row in points]
        gbps = [row["ceiling"]["gbps"] for row in points]
        assert bound.get_ydata().tolist() == pytest.approx([n / rate / 1e3 for n, rate in zip(bytes_moved, gbps)])
        assert axes.get_ylabel() == "us" and [t.get_text() for t in axes.get_xticklabels()][::9] == ["0", "all equal"]


def test_results_from_before_sweeps_are_shown(tmp_path):
    result = synthetic([TINY])
    del result["rows"][0]["point"]
    assert "mul beside ATen: worst 1.00 (tiny f32), below 0.99 in 0 of 1 cases" in rendered(result)
    assert len(plots.plot(result, tmp_path, "mul")) == 1


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (rooms()["dot"], ["dot", "dot_fast_atomic", "dot_rows", "size", "small"]),
        (rooms()["elementwise"], ["axpy", "fma", "mul"]),
        (
            rooms()["index_add"],
            ["count", "deterministic", "deterministic-more", "fast", "fast-more", "skew", "width"],
        ),
        (rooms()["reduce"], ["max", "mean", "min", "sum", "sum-grid", "sum-more"]),
        (
            rooms()["upsample"],
            [f"nearest2d{op}{part}" for op in ("", "-backward") for part in ("", "-more", "-scales")],
        ),
    ],
    ids=["dot", "elementwise", "index_add", "reduce", "upsample"],
)
def test_plots_come_from_the_json_alone(tmp_path, room, expected):
    path = tmp_path / f"{room.name}.json"
    report.save(path, synthetic(room=room))
    assert command.main(["--plot-only", str(path)]) == 0
    pictures = {p.stem.removeprefix(f"{room.name}-"): p for p in tmp_path.glob("*.png")}
    assert sorted(pictures) == sorted(expected)
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in pictures.values())


def test_many_cases_are_split_by_dtype():
    sums = [case for case in REDUCE.values() if case.op == "sum" and case.headline]
    rows = synthetic(sums, bench_reduce.ROOM)["rows"]
    (left, f32), (right, bf16) = plots._columns("headline cases", rows)
    assert (left, right) == ("headline cases: f32", "headline cases: bf16")
    assert [row["case"] for row in f32] == [row["case"] for row in bf16] and len(f32) == 19
    assert plots._columns("headline cases", rows[:20]) == [("headline cases", rows[:20])]


@pytest.mark.parametrize(
    ("room", "title"),
    [
        (bench_reduce.ROOM, "sum 2^25 f32"),
        (bench_reduce.ROOM, "sum-grid 2^3 x 2^22 dim 1 f32"),
        (bench_index_add.ROOM, "index_add-skew (169343,128)+=(2^20,128) all equal f32"),
        (bench_dot.ROOM, "dot-small 2^8 f16"),
    ],
)
def test_plot_survives_a_row_without_times(tmp_path, room, title):
    result = synthetic([case for case in room.cases if case.title == title], room)
    for entry in result["rows"][0]["contenders"].values():
        entry.clear()
        entry.update(status="failed", reason="no kernel")
    result["rows"][0]["ceiling"] = None
    op = result["rows"][0]["op"]
    assert [p.name for p in plots.plot(result, tmp_path, op)] == [f"{op}.png"]


# ---------------------------------------------------------------- the command


def test_without_a_gpu_it_says_so_in_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "mul"],
        cwd=REPOSITORY,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.strip() == command.NO_GPU


def test_list_names_every_case(capsys):
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(title in listed for title in (*DOT, *ELEMENTWISE, *INDEX_ADD, *REDUCE, *UPSAMPLE))


@pytest.mark.parametrize("argv", [["nope"], ["--cases", "("], ["mul", "--cases", "no such case"]])
def test_bad_requests_are_refused(argv):
    with pytest.raises(SystemExit) as stopped:
        command.main(argv)
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    ("argv", "names", "wanted"),
    [
        ([], ["conv1d", "dot", "elementwise", "index_add", "reduce", "transpose", "upsample"], lambda case: True),
        (["conv1d-forward-sample"], ["conv1d-forward-sample"], lambda case: case.op == "conv1d-forward-sample"),
        (["dot"], ["dot"], lambda case: case.title in DOT),
        (["dot_rows"], ["dot_rows"], lambda case: case.op == "dot_rows"),
        (["index_add"], ["index_add"], lambda case: case.title in INDEX_ADD),
        (["index_add-skew"], ["index_add-skew"], lambda case: case.op == "index_add-skew"),
        (["elementwise"], ["elementwise"], lambda case: case.title in ELEMENTWISE),
        (["reduce"], ["reduce"], lambda case: case.title in REDUCE),
        (["upsample"], ["upsample"], lambda case: case.title in UPSAMPLE),
        (["mul"], ["mul"], lambda case: case.op == "mul"),
        (["fma", "axpy"], ["axpy-fma"], lambda case: case.op in ("axpy", "fma")),
        (["mul", "sum"], ["mul", "sum"], lambda case: case.op in ("mul", "sum")),
        (["sum-grid"], ["sum-grid"], lambda case: case.op == "sum-grid"),
        (["nearest2d"], ["nearest2d"], lambda case: case.op == "nearest2d"),
        (["reduce", "--quick"], ["reduce.quick"], lambda case: case.title in REDUCE and case.headline),
        (["mul", "--quick"], ["mul.quick"], lambda case: case.op == "mul" and case.headline),
        (["--cases", "NHWC.*bf16"], ["elementwise.some", "reduce.some", "transpose.some"],
         lambda case: "NHWC" in case.name and case.dtype == "bf16"),
    ],
)  # fmt: skip
def test_selection_and_name_of_the_result(argv, names, wanted):
    args = command.parse(argv)
    assert [command.stem(room, args) for room, _ in args.chosen] == names
    chosen = [case for _, cases in args.chosen for case in cases]
    cases = (
        *CONV1D.values(),
        *DOT.values(),
        *ELEMENTWISE.values(),
        *INDEX_ADD.values(),
        *REDUCE.values(),
        *TRANSPOSE.values(),
        *UPSAMPLE.values(),
    )
    assert chosen == [case for case in cases if wanted(case)]


def test_a_run_from_start_to_files(tmp_path, monkeypatch):
    """The whole command on the CPU, with a made-up clock."""
    monkeypatch.setattr(machine, "gpu", lambda: GPU)
    monkeypatch.setattr(ceilings, "measure", lambda *args: synthetic([])["ceilings"])

    def too_large(device, seed):
        if device != "meta":
            raise torch.OutOfMemoryError("no")
        return two_vectors(device, seed)

    statements = {"gpuopt": "x * 2", "ATen": "x + x"}
    room = Room(
        name="elementwise",
        cases=[TINY, dataclasses.replace(TINY, name="huge", build=too_large)],
        calls=lambda: {"mul": TINY_CALL},
        call_times=[CallTime("mul", "no grad", statements, lambda device: {"x": torch.ones(4, device=device)})],
        peers=(Peer("absent", absent),),
    )
    args = command.parse(["elementwise", "--quick"])
    console = Console(width=command.PIPE_WIDTH, file=io.StringIO())
    command.run_room(room, tuple(room.cases), FakeTimer(), args, tmp_path, console, device="cpu")
    result = json.loads((tmp_path / "elementwise.quick.json").read_text())
    assert result["complete"] and [row["case"] for row in result["rows"]] == ["tiny"]
    assert set(result["call_times"][0]["contenders"]) == {"gpuopt", "ATen"}
    assert result["left_out"] == ["mul huge f32: this GPU has too little memory"]
    text = console.file.getvalue()
    assert "left out: mul huge f32" in text and "absent missing: it is not installed" in text and "call time" in text
    assert (tmp_path / "elementwise.quick-mul.png").exists()


def test_machine_slug():
    assert machine.slug("NVIDIA GeForce RTX 4090 (Laptop)") == "nvidia-geforce-rtx-4090-laptop"
