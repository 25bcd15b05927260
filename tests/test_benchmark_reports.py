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
from benchmarks import ceilings, machine, plots, report
from benchmarks.peers import Peer
from benchmarks.room import CallTime, Room

from .benchmark_fakes import ELEMENTWISE, GPU, TINY, TINY_CALL, FakeTimer, absent, operands, rendered, synthetic

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


def test_plots_come_from_the_json_alone(tmp_path):
    path = tmp_path / "elementwise.json"
    report.save(path, synthetic())
    assert command.main(["--plot-only", str(path)]) == 0
    pictures = sorted(p.name for p in tmp_path.glob("*.png"))
    assert pictures == ["elementwise-axpy.png", "elementwise-fma.png", "elementwise-mul.png"]
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in pictures)


def test_plot_survives_a_row_without_times(tmp_path):
    result = synthetic([ELEMENTWISE["mul 2^25 f32"]])
    result["rows"][0]["contenders"]["gpuopt"] = {"status": "failed", "reason": "no kernel"}
    result["rows"][0]["ceiling"] = None
    assert [p.name for p in plots.plot(result, tmp_path, "mul")] == ["mul.png"]


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
    assert all(title in listed for title in ELEMENTWISE)


@pytest.mark.parametrize("argv", [["nope"], ["--cases", "("], ["mul", "--cases", "no such case"]])
def test_bad_requests_are_refused(argv):
    with pytest.raises(SystemExit) as stopped:
        command.main(argv)
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    ("argv", "name", "wanted"),
    [
        ([], "elementwise", lambda case: True),
        (["elementwise"], "elementwise", lambda case: True),
        (["mul"], "mul", lambda case: case.op == "mul"),
        (["fma", "axpy"], "axpy-fma", lambda case: case.op in ("axpy", "fma")),
        (["mul", "--quick"], "mul.quick", lambda case: case.op == "mul" and case.headline),
        (["--cases", "NCHW.*bf16"], "elementwise.some", lambda case: "NCHW" in case.name and case.dtype == "bf16"),
    ],
)
def test_selection_and_name_of_the_result(argv, name, wanted):
    args = command.parse(argv)
    ((room, cases),) = args.chosen
    assert command.stem(room, args) == name
    assert cases == tuple(case for case in ELEMENTWISE.values() if wanted(case))


def test_a_run_from_start_to_files(tmp_path, monkeypatch):
    """The whole command on the CPU, with a made-up clock."""
    monkeypatch.setattr(machine, "gpu", lambda: GPU)
    monkeypatch.setattr(ceilings, "measure", lambda *args: synthetic([])["ceilings"])

    def too_large(device, seed):
        if device != "meta":
            raise torch.OutOfMemoryError("no")
        return operands(device, seed)

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
