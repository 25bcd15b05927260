"""The age of results, and pages that refuse old ones, in a small repository."""

from __future__ import annotations

import subprocess

import pytest

from benchmarks.harness import machine, report
from benchmarks.ladder import in_flight
from benchmarks.publish import age, page, pages, published
from benchmarks.publish import ladders as ladder_docs
from benchmarks.publish import models as of_models
from benchmarks.publish import random as of_problems
from benchmarks.publish import speed as speed_docs

from ...support.benchmark_fakes import GPU

SOURCES = {
    "csrc/common/vec.cuh": "int vec;\n",
    "csrc/dot/dot.cu": '#include "dot/dot.h"\nint f() { return 1; }\n',
    "csrc/dot/dot_op.cpp": "int op;\n",
    "csrc/dot/dot_ops.h": "#include <ATen/ATen.h>\nint ops;\n",
    "csrc/dot/dot_ladder.cu": "int ladder;\n",
    "csrc/reduce/reduce.cu": "int sum;\n",
}


class Repository:
    def __init__(self, root):
        self.root = root
        self.git("init", "-q")
        self.first = self.commit(SOURCES)

    def git(self, *arguments: str) -> str:
        name = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        return subprocess.run(
            ["git", "-C", str(self.root), *name, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    def commit(self, files: dict[str, str]) -> str:
        for path, text in files.items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "REPOSITORY", tmp_path)
    return Repository(tmp_path)


def result(commit: str | None, room: str = "dot", rows: list[dict] | None = None, dirty: bool | None = None) -> dict:
    made = report.document(room, GPU, {"torch": "2.11.0"}, {"commit": commit, "dirty": dirty}, None, {})
    return made | {"rows": rows or []}


def age_of(repository, commit: str | None, room: str = "dot", file: str = "dot.json", **more) -> str:
    return age.sentence(result(commit, room, **more), repository.root / file)


# ---------------------------------------------------------------- what makes a result old


@pytest.mark.parametrize("path", ["csrc/dot/dot.cu", "csrc/common/vec.cuh", "csrc/dot/new.h"])
def test_a_change_of_a_kernel_makes_its_room_old(repository, path):
    assert age_of(repository, repository.first) == ""
    repository.commit({path: "int changed;\n"})
    last = repository.commit({path: "int changed_again;\n"})
    folder = path.rpartition("/")[0]
    assert age_of(repository, repository.first) == (
        f"measured at {repository.first[:7]}; 2 commits up to {last[:7]} changed {folder}"
    )
    assert (age_of(repository, repository.first, "reduce") == "") == (folder != "csrc/common")
    assert age_of(repository, last) == ""


@pytest.mark.parametrize(
    "path, text",
    [
        ("csrc/dot/dot_op.cpp", "int changed;\n"),
        ("csrc/dot/dot_ops.h", "#include <ATen/ATen.h>\nint changed;\n"),
        ("csrc/dot/README.md", "changed\n"),
        ("csrc/dot/dot_ladder.cu", "int changed;\n"),
        ("csrc/dot/dot.cu", '#include "dot/other.h"\n// words\nint f() {\n  return 1; /* a\n b */ }\n'),
    ],
)
def test_bindings_prose_and_ladders_make_no_room_old(repository, path, text):
    repository.commit({path: text})
    assert age_of(repository, repository.first) == ""
    assert bool(age_of(repository, repository.first, file="ladder/dot.json")) == ("ladder" in path)


def test_a_moved_room_is_as_old_as_its_code(repository):
    repository.git("mv", "csrc/dot", "csrc/moved")
    repository.commit({"csrc/moved/dot.cu": SOURCES["csrc/dot/dot.cu"].replace("dot/dot.h", "moved/dot.h")})
    assert age_of(repository, repository.first, "moved") == ""
    repository.commit({"csrc/moved/dot.cu": "int changed;\n"})
    assert "2 commits" in age_of(repository, repository.first, "moved")


def test_rows_have_their_own_commits_and_rooms(repository):
    second = repository.commit({"csrc/dot/dot.cu": "int changed;\n"})
    assert age_of(repository, repository.first, "sweep", rows=[{"op": "reduce"}]) == ""
    rows = [{"op": "reduce"}, {"op": "dot_rows", "commit": second}]
    assert age_of(repository, repository.first, "sweep", rows=rows) == ""
    assert "csrc/dot" in age_of(repository, repository.first, "sweep", rows=[*rows, {"op": "dot"}])
    assert "csrc/dot" in age_of(repository, repository.first, "models", rows=[{"model": "gcn"}])


def test_costs_are_fitted_to_older_evidence(repository):
    repository.commit({"csrc/dot/costs_h100.h": "int cost;\n"})
    assert age_of(repository, repository.first) and not age_of(repository, repository.first, file="dot.jsonl")


def test_what_cannot_be_told_is_old(repository, tmp_path_factory, monkeypatch):
    assert age_of(repository, None) == "measured at an unknown commit"
    assert age_of(repository, repository.first, dirty=True) == "measured with uncommitted changes"
    assert "git does not know this commit" in age_of(repository, 40 * "1")
    monkeypatch.setattr(machine, "REPOSITORY", tmp_path_factory.mktemp("sources"))
    assert "no git checkout" in age_of(repository, repository.first)


# Parts of newer rooms, which no GPU has measured yet.
NOT_MEASURED: set[str] = set()


def test_every_published_file_has_rooms_that_exist():
    if not (machine.REPOSITORY / ".git").exists():
        pytest.skip("the sources are no git checkout")
    kernels = age._kernels(machine.REPOSITORY, "HEAD")
    folders = {age.room_of(path) for path in kernels}
    for part in published.PARTS:
        found = sorted((machine.REPOSITORY / "benchmarks" / "results").glob(f"*/{part.file}"))
        assert bool(found) != (part.file in NOT_MEASURED), part.file
        if not found:
            continue
        loaded = report.load(found[0])
        for row in loaded["rows"]:
            rooms = age._rooms(loaded, row, part.file.startswith("ladder/"))
            assert rooms is None or folders.issuperset(rooms), part.file
    assert in_flight.OP in published.LADDERS and set(ladder_docs.LESSONS) < set(published.LADDERS)


# ---------------------------------------------------------------- pages


def row(us: float) -> dict:
    contenders = {"gpuopt": {"status": "ok", "us": {"median": us}, "gbps": 1.0}}
    return {
        "op": "dot", "case": "a", "dtype": "f32", "headline": True, "point": None, "ceiling": None,
        "contenders": contenders,
    }  # fmt: skip


def test_a_page_refuses_an_old_result(repository, monkeypatch, capsys):
    root = repository.root
    monkeypatch.setattr(machine, "RESULTS", root / "results")
    for name, value in {"ROOT": root, "RESULTS": root / "results", "PAGE": root / "speed.md"}.items():
        monkeypatch.setattr(speed_docs, name, value)
    report.save(speed_docs.RESULTS / "dot.json", result(repository.first, rows=[row(2.0)]))
    speed_docs.PAGE.write_text("".join(page.part(name, "") for name in (speed_docs.SPEED, "dot")))
    last = repository.commit({"csrc/dot/dot.cu": "int changed;\n"})
    before = speed_docs.PAGE.read_text()
    assert pages.main(["speed"]) == 1 and speed_docs.PAGE.read_text() == before
    text = f"measured at {repository.first[:7]}; 1 commit up to {last[:7]} changed csrc/dot"
    assert f"results/dot.json: {text}; python -m benchmarks all dot\n" in capsys.readouterr().err
    assert pages.main(["speed", "--old"]) == 0
    assert f"\n\nOld: dot.json was {text}.\n\n#### dot" in speed_docs.PAGE.read_text()
    assert pages.main(["speed", "--check"]) == 0  # text of figures, whatever their age
    report.save(speed_docs.RESULTS / "dot.json", result(last, rows=[row(2.0)]))
    assert pages.main(["speed"]) == 0 and "Old: " not in speed_docs.PAGE.read_text()
    report.save(speed_docs.RESULTS / "dot.json", result(last, rows=[row(3.0)]))
    assert pages.main(["speed", "--check"]) == 1


def test_pages_of_models_and_random_problems_refuse_old_results(repository, monkeypatch):
    repository.commit({"csrc/dot/dot.cu": "int changed;\n"})
    monkeypatch.setattr(machine, "RESULTS", repository.root)
    monkeypatch.setattr(report, "newest", lambda pattern: repository.root / "gpu" / pattern)
    made = result(repository.first, "models") | {"gpu": GPU, "versions": {"torch": "2", "cuda": "13"}}
    for name in ("models.json", "models-graph.json"):
        report.save(report.newest(name), made)
    report.save(report.newest("sweep.json"), result(repository.first, "sweep", [{"op": "dot"}]))
    for maker, part in ((of_models, "models"), (of_problems, "sweep")):
        with pytest.raises(age.Old, match=rf"{part}\.json: measured at .*; python -m benchmarks all {part}\n"):
            maker.pages(told=False)
    (text,) = of_models.pages(told=True).values()
    assert "Old: models.json was measured at" in text
