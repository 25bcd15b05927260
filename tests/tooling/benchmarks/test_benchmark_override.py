"""``python -m benchmarks override`` and its tables, on the CPU with made-up times."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses

import pytest
import torch

import torch_ops
from benchmarks.harness import machine, report
from benchmarks.publish import override as page
from benchmarks.random import aten_problems, override_report, override_sweep
from benchmarks.random.problems import Draw

from ...support.benchmark_fakes import GPU, FakeTimer
from ...support.overriding import nothing_is_left  # noqa: F401

FAMILIES = ["dot", "mul", "index_put"]


class Watched(FakeTimer):
    """Notes for each contender which operators were taken while it ran."""

    def __init__(self):
        self.taken = []

    def compare(self, contenders, build, case_bytes):
        def noted(name, call):
            def run(*args):
                torch_ops.override_report(reset=True)
                call(*args)
                self.taken.append((name, override_sweep.taken_of(torch_ops.override_report().calls)))

            return run

        return super().compare({name: noted(name, call) for name, call in contenders.items()}, build, case_bytes)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Runs the part 0/1 of the command and returns its result and its timer."""
    monkeypatch.setattr(machine, "gpu", lambda: GPU)
    monkeypatch.setattr(machine, "library", lambda: None)
    monkeypatch.setattr(Draw, "largest", 1 << 20)

    def run(timer=None, **options) -> tuple[dict, Watched]:
        timer = timer or Watched()
        monkeypatch.setattr(override_sweep, "DeviceTimer", lambda budget_s: timer)
        given = {"families": FAMILIES, "count": 4, "seeds": [0, 1], "part": "0/1", "commit": "abc", "resume": False}
        given |= {"minutes": 10.0, "out": tmp_path / "override.json"} | options
        override_sweep.measure(argparse.Namespace(**given), "cpu")
        return report.load(tmp_path / "override.0.json"), timer

    return run


def test_only_taken_problems_are_timed(measure):
    result, timer = measure()
    assert result["complete"] and {row["op"] for row in result["rows"]} == set(FAMILIES)
    assert [row["op"] for row in result["rows"][:3]] == FAMILIES  # families take turns
    taken = [row for row in result["rows"] if row["taken"]]
    assert {row["op"] for row in taken} == {"dot", "index_put"} and len(taken) < len(result["rows"])
    for row in result["rows"]:
        assert ("aten_us" in row) == ("override_us" in row) == ("args" in row) == bool(row["taken"])
    assert timer.taken == [part for row in taken for part in (("aten", []), ("override", row["taken"]))]


def test_a_run_continues(measure):
    before, _ = measure(minutes=-1.0)
    assert before["rows"] == [] and not before["complete"]
    all_rows, _ = measure(resume=True)
    again, timer = measure(resume=True)
    assert again["rows"] == all_rows["rows"] and timer.taken == []


def test_problems_that_fail_are_named(measure, monkeypatch):
    def fails(*args):
        raise RuntimeError("no kernel for this dtype")

    monkeypatch.setitem(aten_problems.CALLS, "index_put", fails)
    result, _ = measure(families=["index_put"], seeds=[0])
    assert len(override_report.failures(result)) == 4
    assert "no kernel for this dtype" in override_report.tables(result)
    monkeypatch.setitem(aten_problems.CALLS, "index_put", lambda *args: (_ for _ in ()).throw(torch.OutOfMemoryError()))
    result, _ = measure(families=["index_put"], seeds=[0])
    assert result["rows"] == [] and len(result["left_out"]) == 4


def row(op: str, taken: str, aten: float, ours: float) -> dict:
    times = {"aten_us": aten, "override_us": ours} if taken else {}
    return {"op": op, "call": op, "case": f"case {aten}", "dtype": "f32", "taken": taken.split()} | times


def test_tables():
    result = {"rows": [row("a", "sum", 200.0, 100.0), row("a", "", 1, 1), row("b", "sum dot", 93.0, 100.0)]}
    assert override_report.by_family(result).splitlines()[2:] == [
        "| a | 2 | 1 | 2.00 | 0.0% | 2.00 |",
        "| b | 1 | 1 | 0.93 | 100.0% | 0.93 |",
        "| all | 3 | 2 | 1.47 | 50.0% | 0.93 |",
    ]
    assert "| `dot` | 1 | 0.93 | 100.0% | 0.93 |" in override_report.by_operator(result)
    assert "| `sum` | 2 | 1.47 | 50.0% | 0.93 |" in override_report.by_operator(result)
    assert "| b | case 93.0 | f32 | sum, dot | 93.0 | 100.0 | 0.93 |" in override_report.losses(result)
    assert "NOT kept" in override_report.tables(result)


@pytest.mark.parametrize("losses, kept", [([], True), ([0.94], True), ([0.94, 0.94], False), ([0.84], False)], ids=str)
def test_the_promise(losses, kept):
    rows = [row("a", "sum", 100.0, 100.0)] * (100 - len(losses))
    assert override_report.is_kept([*rows, *(row("a", "sum", 100 * r, 100.0) for r in losses)]) == kept


def test_nothing_measured_keeps_no_promise():
    assert not override_report.is_kept([row("a", "", 1, 1)])


def test_the_page_without_and_with_a_result(tmp_path, monkeypatch, measure):
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    assert "python -m benchmarks override" in page.parts(None)["evidence"]
    result, _ = measure()
    report.save(tmp_path / "test-gpu" / "override.json", result)
    ((path, text),) = page.pages().items()
    assert path == page.PAGE and "| `dot` |" in text and "Test GPU" in text


def test_names_of_calls_differ():
    """A row names its call, which is one of this module or of a room."""
    shared = set(aten_problems.CALLS) & set(aten_problems._calls_of_rooms())
    assert shared == {"vdot"}


def test_a_gradient_of_a_family_has_the_shape_of_its_result():
    for family in ("mul backward", "cumsum backward"):
        for case in aten_problems.draw_cases(family, 20, 0):
            *args, grad = case.build("meta", 0)
            function = aten_problems.function(family.removesuffix(" backward"), family.removesuffix(" backward"))
            assert function(*args).shape == grad.shape, dataclasses.asdict(case)


def test_the_command_line(capsys):
    with pytest.raises(SystemExit), contextlib.redirect_stderr(None):
        override_sweep.main(["no such family"])
    if not torch.cuda.is_available():
        assert override_sweep.main(["dot"]) == 2 and "no CUDA device" in capsys.readouterr().err
