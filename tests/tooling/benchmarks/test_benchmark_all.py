"""``python -m benchmarks all`` and runs that continue, with made-up parts and a made-up clock."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import COMMANDS
from benchmarks.harness import ceilings, machine, report
from benchmarks.harness.peers import Peer, Setting
from benchmarks.harness.room import Room, run_room
from benchmarks.ladder import measure as ladder
from benchmarks.publish import age, published
from benchmarks.publish import all as everything
from benchmarks.publish.published import Part
from benchmarks.random import sweep
from benchmarks.rooms import measure as command

from ...support.benchmark_fakes import GPU, TINY, TINY_CALL, FakeTimer

SOURCE = {"commit": "abc", "dirty": None}
# A part of four rows. Its arguments: the file, the name, how it ends, the GPU and the commit.
SCRIPT = """
import json, sys, time
from pathlib import Path
from benchmarks.harness import report
path, name, end = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with open(path.parent / "log", "a") as log:
    log.write(name + " ")
if end == "fails":
    sys.exit(7)
fresh = report.document(name, json.loads(sys.argv[4]), {}, json.loads(sys.argv[5]), None, {})
result = report.resumed(path, fresh)
while len(result["rows"]) < 4:
    result["rows"].append({"at": len(result["rows"])})
    report.save(path, result)
    if end == "hangs" and len(result["rows"]) == 2:
        time.sleep(1000)
report.save(path, result | {"complete": True})
"""


def part(name: str, end: str = "ends", minutes: float = 0.001, resumes: bool = True) -> Part:
    return Part(name, f"{name}.json", (name, end), minutes, resumes)


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Makes the parts of a run in a folder without committed results."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine, "gpu", lambda: GPU)
    monkeypatch.setattr(everything, "RESULTS", tmp_path / "committed")
    monkeypatch.setattr(everything, "LEAST_MINUTES", 0.0)

    def command_of(part, folder, commit):
        folder.mkdir(exist_ok=True)
        options = [*part.command, json.dumps(GPU), json.dumps({"commit": commit, "dirty": None})]
        return [sys.executable, "-c", SCRIPT, str(folder / part.file), *options]

    def use(*made: Part):
        monkeypatch.setattr(everything, "PARTS", list(made))

    monkeypatch.setattr(everything, "command_of", command_of)
    return use


def run(folder: Path, *arguments: str) -> tuple[int, list[str]]:
    """The exit code of the command, and the parts that it began."""
    (folder / "log").unlink(missing_ok=True)
    code = everything.main(["--out", str(folder), "--commit", "abc", *arguments])
    log = folder / "log"
    return code, log.read_text().split() if log.exists() else []


def test_a_part_that_fails_costs_no_other(parts, tmp_path, capsys):
    parts(part("one"), part("two", "fails"), part("three"))
    earlier = report.document("two", GPU, {}, {"commit": "earlier", "dirty": None}, None, {}) | {"complete": True}
    report.save(tmp_path / "two.json", earlier)
    assert run(tmp_path) == (1, ["one", "two", "three"])
    assert "failed: two" in capsys.readouterr().err and report.load(tmp_path / "two.json") == earlier
    parts(part("one"), part("two"), part("three"))
    assert run(tmp_path) == (0, ["two"])  # the others are complete
    assert everything.main(["--out", str(tmp_path), "--commit", "another", "one"]) == 0
    assert report.load(tmp_path / "one.json")["source"]["commit"] == "another"
    assert report.load(tmp_path / "one.json")["seconds"] > 0


def test_a_run_stops_in_time_and_continues(parts, tmp_path, capsys):
    parts(part("one"), part("two", minutes=30.0, resumes=False), part("three"))
    assert run(tmp_path, "--minutes", "1") == (3, ["one"]) and "left: two, three" in capsys.readouterr().out
    parts(part("four", "hangs", minutes=30.0), part("one"))
    assert run(tmp_path, "--minutes", "0.1") == (3, ["four"]) and "left: four\n" in capsys.readouterr().out
    result = report.load(tmp_path / "four.json")
    assert len(result["rows"]) == 2 and not result["complete"]
    parts(part("four"), part("one"))
    assert run(tmp_path) == (0, ["four"])
    result = report.load(tmp_path / "four.json")
    assert result["complete"] and [row["at"] for row in result["rows"]] == [0, 1, 2, 3]
    assert result["seconds"] > 6  # of both runs


def test_the_list_says_minutes_and_age(parts, tmp_path, monkeypatch, capsys):
    parts(part("one", minutes=5.0), part("two", minutes=7.0), part("three x"), part("three y"))
    old = report.document("dot", GPU, {}, SOURCE, None, {}) | {"complete": True, "rows": [{}, {}], "seconds": 120}
    report.save(everything.RESULTS / "gpu" / "one.json", old)
    report.save(everything.RESULTS / "gpu" / "three x.json", old)
    monkeypatch.setattr(age, "sentence", lambda result, path: "measured long ago" if path.stem == "one" else "")
    assert run(tmp_path, "--list") == (0, [])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert lines[0][1] == "2.0 min  measured long ago" and lines[1][1] == "7.0 min  not measured yet"
    assert "as new as its kernels" in lines[2][1] and lines[-1][1].startswith("parts, 11 minutes: ")
    begun = old | {"complete": False, "rows": [{}]}
    report.save(tmp_path / "one.json", begun)
    assert run(tmp_path, "--list", "--stale") == (0, [])
    out = capsys.readouterr().out
    assert "1.0 min  measured long ago" in out and "three x" not in out  # half of the rows are there
    assert run(tmp_path, "--list", "three") == (0, []) and "2 parts, " in capsys.readouterr().out


def test_what_cannot_be_measured(parts, tmp_path, monkeypatch, capsys):
    parts(part("one"))
    monkeypatch.setattr(machine, "commit", lambda given: {"commit": "abc", "dirty": True})
    assert everything.main(["--out", str(tmp_path)]) == 2 and "without changes" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert everything.main(["--out", str(tmp_path), "--commit", "abc"]) == 2
    assert "nothing was measured" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        everything.main(["four"])
    assert "no part is called 'four'" in capsys.readouterr().err


def test_the_commands_of_parts_are_understood(tmp_path):
    """The parts name rooms, operators, families and ladders that exist, and files that their commands write."""
    for found in published.PARTS:
        assert everything.command_of(found, tmp_path, "abc")[1:3] == ["-m", "benchmarks"]
        words = everything.command_of(found, tmp_path, "abc")[3:]
        if words[0] not in COMMANDS:
            args = command.parse(words)
            ((room, _),) = args.chosen
            assert args.out / f"{command.stem(room, args)}.json" == tmp_path / found.file and args.resume
    rooms = dict.fromkeys(published.LADDERS)
    assert all(len(ladder.choose(rooms, [op])) == 1 for op in published.LADDERS)


# ---------------------------------------------------------------- rooms and random problems continue


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(machine, "gpu", lambda: GPU)
    monkeypatch.setattr(machine, "library", lambda: None)
    monkeypatch.setattr(ceilings, "measure", lambda *args: [])


class Stopped(Exception):
    pass


class Stops(FakeTimer):
    """A timer that stops the run at its third case."""

    count = 0

    def compare(self, *arguments):
        self.count += 1
        if self.count == 3:
            raise Stopped
        return super().compare(*arguments)


CASES = [dataclasses.replace(TINY, name=f"tiny {number}") for number in range(4)]


def test_a_room_continues_after_its_last_row(tmp_path, clock):
    room = Room("elementwise", CASES, lambda: {"mul": TINY_CALL}, [], ())
    path = tmp_path / "elementwise.quick.json"

    def measure(timer, *options: str) -> tuple[list, list]:
        args = command.parse(["elementwise", "--quick", *options])
        options = {"quick": True, "commit": args.commit, "resume": args.resume}
        run_room(room, tuple(CASES), timer, path, "cpu", **options)
        return [row["case"] for row in report.load(path)["rows"]]

    with pytest.raises(Stopped):
        measure(Stops(), "--commit", "abc")
    before = report.load(path)
    assert len(before["rows"]) == 2 and not before["complete"]
    timer = Stops()
    assert measure(timer, "--commit", "abc", "--resume") == [case.name for case in CASES] and timer.count == 2
    assert report.load(path)["rows"][:2] == before["rows"] and report.load(path)["complete"]
    report.save(path, before)
    with pytest.raises(Stopped):
        measure(Stops(), "--commit", "another", "--resume")  # begins anew


def test_code_of_inductor_is_compiled_ahead(monkeypatch, tmp_path):
    """Processes share the problems that have Inductor as a peer. One that fails does not stop the others."""
    prepared = []

    def prepare(call, case, setting):
        prepared.append(case.name)
        raise RuntimeError

    peers = (Peer("Inductor", prepare), Peer("another", prepare))
    cases = [dataclasses.replace(CASES[0], name=str(k), peers=peers if k % 2 else ()) for k in range(8)]
    monkeypatch.setattr(sweep, "rooms", lambda: {"elementwise": Room("", [], lambda: {"mul": TINY_CALL}, [], ())})
    monkeypatch.setattr(sweep, "chosen", lambda arguments: [("elementwise", case) for case in cases])
    for part_of, names in (("0/3", ["1", "7"]), ("1/3", ["3"]), ("2/3", ["5"])):
        assert sweep.main(["--part", part_of, "--compile-ahead", "--out", str(tmp_path / "sweep.json")]) == 0
        assert prepared == names
        prepared.clear()
    assert not list(tmp_path.iterdir())


def test_random_problems_continue(tmp_path, clock, monkeypatch):
    """Runs that are stopped keep their part file, from which the next run continues."""
    monkeypatch.setattr(sweep, "rooms", lambda: {"elementwise": Room("", [], lambda: {"mul": TINY_CALL}, [], ())})
    monkeypatch.setattr(sweep, "chosen", lambda arguments: [("elementwise", case) for case in CASES])
    timers = [Stops(), Stops()]
    for timer in timers:
        timer.budget_us = 1.0
    monkeypatch.setattr(sweep, "DeviceTimer", lambda budget_s: timers.pop(0))
    monkeypatch.setattr(sweep, "Setting", lambda timer, device, tune: Setting(timer, "cpu", tune))
    command_line = ["--part", "0/1", "--out", str(tmp_path / "sweep.json"), "--commit", "abc", "--resume"]
    with pytest.raises(Stopped):
        sweep.main(command_line)
    assert len(report.load(tmp_path / "sweep.0.json")["rows"]) == 2
    assert everything.begun(part("sweep"), tmp_path).name == "sweep.0.json"
    assert sweep.main(command_line) == 0
    result = report.load(tmp_path / "sweep.0.json")
    assert result["complete"] and [row["case"] for row in result["rows"]] == [case.name for case in CASES]
