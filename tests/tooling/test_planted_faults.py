"""The list of planted faults agrees with the sources. `python -m tools.planted_faults` checks that tests catch each fault."""

from __future__ import annotations

import pytest

from tools import layout, planted_faults
from tools.planted_faults import Outcome, outcome_of

pytest.importorskip("tomllib", reason="the list is TOML, which Python reads since 3.11")
FAULTS = planted_faults.read_list()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_can_be_planted(fault):
    assert fault.problems() == []
    assert fault.old != fault.new and fault.tests


def test_every_room_has_faults():
    assert {*layout.rooms(), *layout.SHARED, "torch_ops"} == {fault.room for fault in FAULTS}


def test_a_file_is_put_back(tmp_path, monkeypatch):
    source = tmp_path / "kernel.cuh"
    source.write_text("one two\n")
    monkeypatch.setattr(planted_faults, "ROOT", tmp_path)
    fault = planted_faults.Fault("name", "room", "kind", "kernel.cuh", "two", "three", ("kernel.cuh",))
    before = source.stat().st_mtime_ns
    with pytest.raises(KeyboardInterrupt), planted_faults.planted(fault):
        assert source.read_text() == "one three\n"
        raise KeyboardInterrupt
    assert source.read_text() == "one two\n" and source.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "returncode, stdout, stderr, outcome",
    [
        (0, "3 passed in 1s", "", Outcome(False, "3 passed in 1s")),
        (1, "FAILED tests/a.py::test_b[(1, 2)] - assert", "", Outcome(True, "tests/a.py::test_b[(1, 2)]")),
        (1, "ERROR tests/a.py::test_b - no compiler", "", Outcome(False, "ERROR tests/a.py::test_b - no compiler")),
        (5, "9 deselected in 1s", "", Outcome(False, "9 deselected in 1s")),
        (
            -6,
            "..",
            'Fatal Python error: Aborted\n  File "/x/tests/emulation/test_a.py", line 3 in test_b\n',
            Outcome(True, "tests/emulation/test_a.py::test_b, which died: Fatal Python error: Aborted"),
        ),
    ],
    ids=["passed", "failed", "broken", "nothing ran", "died"],
)
def test_outcomes(returncode, stdout, stderr, outcome):
    assert outcome_of(returncode, stdout, stderr) == outcome
