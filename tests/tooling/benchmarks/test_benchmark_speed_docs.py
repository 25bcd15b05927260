"""docs/speed.md, written from results without a GPU."""

from __future__ import annotations

import pytest

from benchmarks.harness import machine, report
from benchmarks.publish import age, page, pages
from benchmarks.publish import speed as speed_docs

from ...support.benchmark_fakes import GPU


def row(case: str, dtype: str, us: dict[str, float | None], op: str = "mul", point: dict | None = None) -> dict:
    """A row of results: 1 MB is moved, and the ceiling is 2000 GB/s. A contender without a time failed."""
    contenders = {
        name: {"status": "failed", "reason": "no"}
        if time is None
        else {"status": "ok", "us": {"median": time}, "gbps": 1e3 / time}
        for name, time in us.items()
    }
    return {
        "op": op, "case": case, "dtype": dtype, "headline": True, "point": point, "ceiling": {"gbps": 2e3},
        "contenders": contenders,
    }  # fmt: skip


def result(*rows: dict, room: str = "elementwise", day: int = 1, quick: bool = False) -> dict:
    source = {"commit": f"{day}23456789", "dirty": False}
    made = report.document(room, GPU, {"torch": "2.11.0"}, source, None, {"quick": quick})
    return made | {"date": f"2026-01-0{day}T00:00:00+00:00", "rows": list(rows)}


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_pages_are_as_results_are():
    """If this fails, run `python -m benchmarks pages`, which writes the pages."""
    assert pages.stale(speed_docs.pages()) == []


# ---------------------------------------------------------------- docs/speed.md


def test_a_case_beside_its_peers():
    cases = [
        row("a", "f32", {"gpuopt": 2.0, "ATen": 3.0, "CuPy": None, "Triton": None}),
        row("b", "bf16", {"gpuopt": 20.0, "ATen": 5000.0, "CuPy": 19.0}),
    ]
    text = speed_docs.parts({"elementwise.quick": result(*cases, quick=True)})["elementwise"]
    assert "### elementwise.quick\n\nTest GPU, torch 2.11.0, 2026-01-01, commit 1234567, a quick run: " in text
    assert "(../benchmarks/results/nvidia-h200/elementwise.quick.json)" in text and "#### mul" in text
    assert lines(text) == [
        "| case | dtype | us | GB/s | share of ceiling | speedup over ATen | speedup over CuPy |",
        "|---|---|---:|---:|---:|---:|---:|",
        "| a | f32 | 2.00 | 500 | 25% | 1.50 | - |",
        "| b | bf16 | 20.0 | 50 | 2% | 250 | 0.95 |",
    ]


def test_a_sample_is_shown_by_its_slowest():
    cases = []
    for number in range(12):
        point = {"curve": f"curve {number % 2}", "axis": "n", "x": number, "unit": report.RATIO}
        cases.append(row(f"case {number}", "f32", {"gpuopt": 10.0, "ATen": 9.0 + number / 2}, "some-sample", point))
    text = speed_docs.parts({"elementwise": result(*cases)})["elementwise"]
    assert lines(text)[2:4] == ["| curve 0 | 6 | 0.90 | 1.15 | 1.40 | 1 |", "| curve 1 | 6 | 0.95 | 1.20 | 1.45 | 1 |"]
    assert lines(text)[4] == "| problem | dtype | us | ATen (us) | speedup over ATen |"
    assert lines(text)[6] == "| case 0 | f32 | 10.0 | 9.00 | 0.90 |" and len(lines(text)) == 16


def test_an_operator_is_shown_from_its_newest_result():
    us = {"gpuopt": 2.0, "ATen": 3.0}
    found = {
        "late": result(row("new", "f32", us), day=3),
        "early": result(row("old", "f32", us), row("alone", "f32", us, op="fma"), day=1),
        "gone": result(row("older", "f32", us), day=2),
        "other": result(row("another's", "f32", us), room="reduce", day=1),
    }
    assert speed_docs.shown(found) == {"early": ["fma"], "other": ["mul"], "gone": [], "late": ["mul"]}
    parts = speed_docs.parts(found)
    assert list(parts) == ["elementwise", "reduce"]
    text = parts["elementwise"]
    assert text.index("### early") < text.index("| alone |") < text.index("### late") < text.index("| new |")
    assert "old" not in text and "gone" not in text and "another's" not in text and "another's" in parts["reduce"]


def test_headline_cases_are_summed_up():
    found = {
        "elementwise": result(
            row("a", "f32", {"gpuopt": 20.0, "ATen": 30.0, "Inductor": 10.0}),
            row("b", "bf16", {"gpuopt": 10.0, "ATen": 5.0, "Inductor mul+sum": 20.0}),
            row("c", "f32", {"gpuopt": 5.0, "ATen": 10.0}),
            row("d", "f32", {"gpuopt": 1.0, "ATen": 90.0}) | {"headline": False},
            row("alone", "f32", {"gpuopt": None, "ATen": 1.0}, op="fma"),
        )
    }
    assert lines(speed_docs.summary(found))[2:] == [
        "| mul | 3 | 5% | 1.50 | 0.50 | 1.25 | 0.50 |",
        "| fma | 1 | - | - | - | - | - |",
    ]


# ---------------------------------------------------------------- the command


@pytest.fixture
def committed(tmp_path, monkeypatch):
    """One result, and pages with hand-written text around their generated parts."""
    for module in (machine, speed_docs):
        monkeypatch.setattr(module, "REPOSITORY" if module is machine else "ROOT", tmp_path)
    monkeypatch.setattr(machine, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(speed_docs, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(speed_docs, "PAGE", tmp_path / "docs" / "speed.md")
    monkeypatch.setattr(age, "sentence", lambda result, path: "")
    report.save(speed_docs.RESULTS / "elementwise.json", result(row("a", "f32", {"gpuopt": 2.0, "ATen": 3.0})))
    speed_docs.PAGE.parent.mkdir()
    parts = "\n".join(page.part(name, "nothing yet") for name in (speed_docs.SPEED, "elementwise"))
    speed_docs.PAGE.write_text(f"Words before.\n\n{parts}\nWords after.\n")
    return tmp_path


def test_the_command_writes_what_is_out_of_date(committed, capsys):
    assert pages.main(["speed", "--check"]) == 1
    said = capsys.readouterr().err
    assert "docs/speed.md is out of date: python -m benchmarks pages" in said
    assert "nothing yet" in speed_docs.PAGE.read_text()
    assert pages.main(["speed"]) == 0 and "written: docs/speed.md" in capsys.readouterr().out
    text = speed_docs.PAGE.read_text()
    assert text.startswith("Words before.\n\n<!-- begin:") and text.endswith("-->\n\nWords after.\n")
    assert "| a | f32 | 2.00 |" in text and "| mul | 1 | 25% | 1.50 |" in text and "nothing yet" not in text
    assert pages.main(["speed", "--check"]) == 0 and not capsys.readouterr().err
    assert pages.main(["speed"]) == 0 and "all pages are up to date" in capsys.readouterr().out
