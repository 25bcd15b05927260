"""Documents: every snippet runs, every link leads somewhere, and prose keeps the rules of tools.words."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import torch

import torch_ops
from benchmarks.publish import plots
from tools import layout, stubs, toolchain, wheel, words
from torch_ops import ops

ROOT = words.ROOT
PAGES = [
    path
    for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *sorted(layout.CSRC.rglob("*.md"))]
    if "_build" not in path.parts
]
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROJECT = (ROOT / "pyproject.toml").read_text()


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", [path for path in PAGES if SNIPPET.search(path.read_text())], ids=name)
def test_snippets_run(page):
    """The snippets of a page, one after another in one namespace."""
    snippets = SNIPPET.findall(page.read_text())
    if any('device="cuda"' in snippet for snippet in snippets) and not torch.cuda.is_available():
        pytest.skip("a snippet needs a GPU")
    namespace: dict = {"__name__": "snippet"}
    for snippet in snippets:
        exec(compile(snippet, name(page), "exec"), namespace)


def test_the_cpp_program_is_the_example():
    """test_examples_cpp.py builds and runs it."""
    shown = re.search(r"^```cpp\n(.*?)^```", (ROOT / "docs/integration.md").read_text(), re.DOTALL | re.MULTILINE)[1]
    assert shown == (ROOT / "examples/cpp/operators.cpp").read_text()


def anchors(page: Path) -> set[str]:
    """The ids that GitHub and the site give to headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_marks_of_plots_name_what_is_drawn():
    """The site has a plot where a page has such a comment."""
    marks = [match for page in PAGES for match in plots.MARK.finditer(page.read_text())]
    assert len(marks) > 40
    files = {source: plots.files_of(source) for source in {match["source"] for match in marks}}
    assert [match[0] for match in marks if match["name"] not in files[match["source"]]] == []


@pytest.mark.parametrize("page", words.pages([]), ids=name)
def test_prose_keeps_the_rules(page):
    assert words.faults(page) == []


@pytest.mark.parametrize(
    "text, found",
    [
        ("# A page\n\nThe kernel pays.\n", ['"pays": is faster']),
        ("One `place` in code, and\n\n```\nplaces\n```\n", []),
        (" ".join(["word"] * 41) + ".\n", ["a sentence of 41 words: " + " ".join(["word"] * 12) + " ..."]),
        ("| " + " ".join(["cell"] * 60) + " |\n", []),
    ],
)
def test_rules_notice(tmp_path, monkeypatch, text, found):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text(text)
    assert [fault.partition(": ")[2] for fault in words.faults(page)] == found


SAYS = words.NAMES["own"]


@pytest.mark.parametrize(
    "path, text, found",
    [
        ("csrc/matmul/a.cuh", "int own_row = 0;  // own\n", [f'"own_row": {SAYS}']),
        ("csrc/matmul/a.h", "constexpr int kOwnRows = f(is_own);\n", [f'"is_own": {SAYS}', f'"kOwnRows": {SAYS}']),
        ("csrc/matmul/a.h", 'check(owner, kOwner, "own", /*own=*/1, Downsample());\n', []),
        ("torch_ops/a.py", 'own = "own"  # own\n', [f'"own": {SAYS}']),
        ("tests/a.py", "own = 0\n", []),
        (f"{words.NAMES_LEFT[0]}a.h", "int own = 0;\n", []),
    ],
)
def test_rules_of_names_notice(tmp_path, monkeypatch, path, text, found):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    source = tmp_path / path
    source.parent.mkdir(parents=True)
    source.write_text(text)
    assert [fault.partition(": ")[2] for fault in words.faults(source)] == found


def test_names_are_left_only_where_there_are_some():
    for left in words.NAMES_LEFT:
        checked = [p for p in words.pages([left]) if p.suffix != ".md"]
        reads = {".py": words._python_names}
        found = [n for p in checked for _, n in reads.get(p.suffix, words._native_names)(p.read_text())]
        assert any(words.words_of(name) & words.NAMES.keys() for name in found), f"{left} needs no exception"


def test_stubs_are_those_of_the_schemas():
    assert stubs.STUB.read_text() == stubs.formatted(stubs.stub()), "python -m tools.stubs"
    assert set(dir(ops)) == set(re.findall(r"^def (\w+)", stubs.STUB.read_text(), re.MULTILINE))
    assert ops.mul is torch.ops.gpuopt.mul


# What a room with operators has beside its README.
PARTS = (
    "csrc/{}/{}.h", "csrc/{}/ladder/{}_ladder.cu", "tests/cases/{}.py", "tests/emulation/{}/{}_shim.cpp",
    "benchmarks/rooms/{}.py", "torch_ops/_{}.py",
)  # fmt: skip
# What a room lacks, and why.
LACKING = {
    "csrc/index_select/ladder/index_select_ladder.cu": "one kernel, whose idea is one sentence of the README",
    "csrc/pad/ladder/pad_ladder.cu": "the kernel's steps, aligned vectors and few instructions, are those of transpose's ladder",
    "csrc/graph_attention/ladder/graph_attention_ladder.cu": "rows are walked as in spmm, which has a ladder",
    "tests/emulation/graph_attention/graph_attention_shim.cpp": "spmm_shim.cpp has its kernels and those of rows",
    "benchmarks/rooms/graph_attention.py": "spmm.py measures attention",
    "csrc/segment/ladder/segment_ladder.cu": "the kernels are those of spmm, which has a ladder",
    "csrc/selective_scan/ladder/selective_scan_ladder.cu": "no step between a loop and the kernel is worth a measurement",
    "benchmarks/rooms/index_select.py": "index_add.py measures gathers",
    "csrc/scatter/ladder/scatter_ladder.cu": "one kernel; the ladder of index_add has the steps of additions",
    "benchmarks/rooms/scatter.py": "segment.py measures reductions at an index",
}


def test_rooms_are_complete():
    parts = [part.replace("{}", room) for room in layout.rooms() if room not in layout.ENGINES for part in PARTS]
    assert {part for part in parts if not (ROOT / part).exists()} == set(LACKING)


# The files of tests/rooms/<room>, and files that only one room has, each about one topic.
ROOM_TESTS = {"test_use", "test_accuracy", "test_cuda", "test_large", "test_random"}
TOPICS = {
    "conv1d": {"test_choice", "test_convolve", "test_corners", "test_image", "test_modules", "test_transposed"},
    "norm": {"test_channels", "test_fused", "test_modules"},
    "spmm": {"test_csr", "test_embedding_bag", "test_structures", "test_tracing"},
    "triangle_count": {"test_distributed"},
}


def test_tests_of_rooms_have_the_same_names():
    files: dict[str, set[str]] = {room: set() for room in layout.rooms()}
    for path in (ROOT / "tests" / "rooms").glob("*/test_*.py"):
        files[path.parent.name].add(path.stem)
    assert {room: found - ROOM_TESTS for room, found in files.items() if found - ROOM_TESTS} == TOPICS


def test_every_function_is_documented():
    """On a page with its signature, and operators in the README's table."""
    readme = (ROOT / "README.md").read_text()
    pages = "".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    for function in torch_ops.__all__:
        assert f":: torch_ops.{function}\n" in pages, function
        if hasattr(torch.ops.gpuopt, function) and not function.endswith(("_backward", "_")):
            assert f"`{function}`" in readme, function


def test_every_replaced_operator_is_named():
    named = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "override.md").read_text()))
    assert set(torch_ops.override.operators) <= named


@pytest.mark.parametrize("page", ["README.md", "docs/installation.md"])
def test_installing_from_source_begins_with_what_the_build_requires(page):
    """``--no-build-isolation`` installs none of it. A new environment of Python 3.11 has setuptools 65, one of 3.12 has none."""
    (block,) = [found for found in SHELL.findall((ROOT / page).read_text()) if "--no-build-isolation" in found]
    installed = shlex.split(block.partition("--no-build-isolation")[0], comments=True)
    requires = ast.literal_eval(re.search(r"^requires = (\[.*\])$", PROJECT, re.MULTILINE)[1])
    assert {*requires, f"cuda-toolkit[{toolchain.NVCC_PARTS}]"} <= set(installed)
    assert f"pip install '{requires[0]}'" in (ROOT / "setup.py").read_text()


def test_supported_pythons_are_the_same_everywhere():
    listed = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    assert f'requires-python = ">={listed[0]}"' in PROJECT
    for page in ("README.md", "CONTRIBUTING.md", "docs/installation.md"):
        found = re.findall(r"Python[ |]+(3\.\d+) to (3\.\d+)", (ROOT / page).read_text())
        assert found == [(listed[0], listed[-1])], page


def test_the_changelog_has_this_version():
    """With its date, and the name of its wheel."""
    version = torch_ops.__version__
    changes = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)^###", changes, re.DOTALL | re.MULTILINE
    )
    assert section and f"`gpuopt-{version}-py3-none-{wheel.PLATFORM}.whl`" in section[1]
