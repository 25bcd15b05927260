"""The numbers of README.md, written from results without a GPU."""

from __future__ import annotations

import pytest

from benchmarks.harness import report
from benchmarks.publish import pages, readme
from benchmarks.random import report as sweep

from ...support.benchmark_fakes import GPU


def result(*rows: dict, gpu: str = "Test GPU", commit: str = "1234567890", day: int = 1) -> dict:
    made = report.document("room", GPU | {"name": gpu}, {"torch": "2.11.0"}, {"commit": commit}, None, {"seed": 7})
    return made | {"date": f"2026-01-0{day}T00:00:00+00:00", "rows": list(rows)}


def test_the_pages_are_as_the_results_are():
    """If this fails, run `python -m benchmarks pages`."""
    assert pages.stale(readme.pages()) == []


def test_all_numbers_are_of_one_gpu():
    """Commits may differ: the page names the one of each result."""
    found = [origin for path in readme.sources().values() for origin in readme.origins(report.load(path))]
    assert len({(origin.gpu, origin.torch) for origin in found}) == 1


# ---------------------------------------------------------------- origins

ONE = {"models": result({}, {}), "random problems": result({"commit": "1234567"})}


def test_results_of_one_origin_are_named_once(tmp_path, monkeypatch):
    monkeypatch.setattr(readme.machine, "REPOSITORY", tmp_path)
    assert readme.mixture(ONE) == []
    text = readme.measured(ONE, {"models": tmp_path / "a.json", "random problems": tmp_path / "b.json"})
    assert text == (
        "All speeds on this page are of one Test GPU, torch 2.11.0, 2026-01-01, commit 1234567: "
        "[models](a.json), [random problems](b.json)."
    )


@pytest.mark.parametrize(
    "other, said",
    [
        (result({}, gpu="Other GPU"), "Other GPU, torch 2.11.0, 2026-01-01, commit 1234567"),
        (result({}, commit="7654321"), "Test GPU, torch 2.11.0, 2026-01-01, commit 7654321"),
        (result({}, day=2), "Test GPU, torch 2.11.0, 2026-01-02, commit 1234567"),
        (result({}, {"commit": "7654321"}), "Test GPU, torch 2.11.0, 2026-01-01, commit 1234567, 7654321"),
    ],
    ids=["gpu", "commit", "day", "commit of a row"],
)
def test_a_mixture_is_listed(other, said, tmp_path, monkeypatch):
    monkeypatch.setattr(readme.machine, "REPOSITORY", tmp_path)
    mixed = ONE | {"random problems": other}
    assert readme.mixture(mixed) == [
        "models: Test GPU, torch 2.11.0, 2026-01-01, commit 1234567",
        f"random problems: {said}",
    ]
    text = readme.measured(mixed, {"models": tmp_path / "a.json", "random problems": tmp_path / "b.json"})
    assert text.endswith(f". [random problems](b.json): {said}.")


# ---------------------------------------------------------------- random problems


def problem(op: str, aten: float | None) -> dict:
    """A row whose time is 2 us, and ATen's so many times that."""
    contenders = {"gpuopt": 2.0, "ATen": aten and 2 * aten}
    entries = {
        name: {"status": "ok", "us": {"median": us}, "gbps": 1.0} for name, us in contenders.items() if us is not None
    }
    return {"op": op, "contenders": entries, "ceiling": None, "read_bytes": 1, "written_bytes": 1}


def test_a_sentence_about_all_random_problems():
    rows = [problem("mul", 2.0), problem("dot", 0.5), problem("dot", 4.0), problem("index_select", None)]
    text = " ".join(readme.random(result(*rows)).split())
    assert text.startswith("On 3 random problems of [3 operators]") and "(seed 7)" in text
    assert text.endswith("is 2.00 in the median. 33% are below 0.95, the worst 0.50 (dot).")


def test_the_whole_table_counts_every_operator():
    """All problems of the random page are in its table, and so in its counts."""
    made = report.load(report.newest("sweep.json"))
    counts = [int(line.split(" | ")[1]) for line in sweep.table(made).splitlines()[2:]]
    assert sum(counts) == len(made["rows"])
