"""The benchmark of sharded tensors: its table, its page, and what it leaves out. The cases run in tests/distributed."""

from __future__ import annotations

import torch

from benchmarks.distributed import measure
from benchmarks.distributed import report as distributed
from benchmarks.distributed.cases import CASES
from benchmarks.harness import host, machine, report
from benchmarks.publish import distributed as page
from benchmarks.publish import show


def rows(ranks: int, slower: float = 1.0) -> list[dict]:
    """What a host would measure. The last rank is the slowest one."""
    each = [{"forward_s": 1e-4 * slower * (rank + 1) / ranks, "training_s": 2e-4 * slower} for rank in range(ranks)]
    return [{"case": case.name, "device": "cuda", "ranks": ranks, "each": each} for case in CASES]


def result(*of: list[dict]) -> dict:
    made = report.document("distributed", {"name": "Test GPU"}, {}, {"commit": "0" * 40, "dirty": False}, None, {})
    return made | {"rows": [row for each in of for row in each], "complete": True}


def test_table():
    text = distributed.text(result(rows(2, 1.25), rows(1)))
    assert "Measured on Test GPU" in text
    assert "| fma, rows | nothing | forward | 100.0 | 125.0 (80%) |" in text
    assert "| fma, rows | nothing | forward and backward | 200.0 | 250.0 (80%) |" in text
    assert text.count("(0.80 x)") == 2  # of the case that divides a sequence
    assert [line for line in text.split("\n") if line.count("|") not in (0, 6)] == []


def test_numbers_of_ranks_that_are_missing():
    alone = [row for row in rows(1) if row["case"] != "dot"]
    assert "| dot | all-reduce of a number | forward | - | 100.0 |" in distributed.text(result(alone, rows(2)))


def test_the_page_is_of_the_newest_result(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    assert "Not measured yet." in page.pages()[page.PAGE]
    report.save(tmp_path / "cpu" / page.FILE, result(rows(1)))
    assert "Not measured yet." in page.pages()[page.PAGE]
    path = tmp_path / "test-gpu" / page.FILE
    report.save(path, result(rows(1), rows(2)))
    after = page.pages()[page.PAGE]
    assert "Measured on Test GPU" in after and "Not measured yet." not in after
    assert show.main([str(path)]) == 0 and "Test GPU" in capsys.readouterr().out


def test_without_a_gpu_the_command_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert measure.main([]) == 2
    assert "--cpu measures processes on the CPU" in capsys.readouterr().err


def test_ranks_without_a_core_are_left_out(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "rows_of", lambda _, ranks, *settings: rows(ranks))
    monkeypatch.setattr(host.os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert measure.main(["--cpu", "--ranks", "1", "2", "4", "--out", str(tmp_path / "x.json")]) == 0
    found = report.load(tmp_path / "x.json")
    assert {row["ranks"] for row in found["rows"]} == {1, 2}
    assert found["left_out"] == ["4 ranks: this host has 3 cores"] and found["complete"]
