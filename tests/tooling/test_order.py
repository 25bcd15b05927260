"""What includes what in csrc, and what imports what in torch_ops and benchmarks: from top to bottom, and never in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import layout
from tools.native_build import ROOT

# From the bottom to the top. A folder includes only files of lower floors and its own.
CSRC = (
    {"common"},
    {"binding"},
    {"elementwise", "index_sort", "ladder", "matmul", "reduce", "rows", "triangle_count"},
    {"dot", "index_add", "norm", "pad", "scan", "segment", "selective_scan", "transpose", "upsample"},
    {"conv1d", "index_select"},
    {"scatter", "spmm"},
    {"graph_attention"},
    {"override", "tuning"},
)
# A module or a folder of torch_ops imports only lower floors. Imports inside functions count. A folder is a whole.
TORCH_OPS = (
    {"_deprecated", "_library", "_tracing", "ops"},
    {"_arguments", "_graph", "build", "info"},
    {
        "_conv1d", "_dot", "_elementwise", "_index_add", "_index_select", "_matmul", "_norm", "_override", "_pad", "_reduce", "_scan",
        "_scatter", "_segment", "_selective_scan",
    },
    {"_cuda_graph", "_transpose", "_upsample", "sparse"},
    {"_embedding_bag", "_spmm", "_triangle_count", "nn"},
    {"_graph_attention"},
    {"compat", "distributed", "layout", "trial"},
    {"ladder"},
)  # fmt: skip
# Each folder of benchmarks, and the ones that it may import besides itself.
BENCHMARKS = {
    "harness": set(),
    "references": set(),
    "rooms": {"harness", "references"},
    "random": {"harness", "references", "rooms"},
    "ladder": {"harness", "rooms"},
    "models": {"harness"},
    "partitioned": {"harness"},
    "distributed": {"harness"},
    "publish": {"harness", "rooms", "random", "ladder", "models", "partitioned", "distributed"},
}


def below(floors: tuple[set[str], ...]) -> dict[str, set[str]]:
    """What each name of the floors may use."""
    return {name: set().union(*floors[:number]) for number, floor in enumerate(floors) for name in floor}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports, wherever it does, as ``package.module``. ``from package import name`` gives both."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parts[: -node.level]
            module = ".".join((*package, *filter(None, [node.module])))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def used(path: Path, package: str) -> set[str]:
    """The modules and folders directly in a package that a file imports."""
    parts = [name.split(".") for name in imports(path)]
    names = {part[1] for part in parts if part[0] == package and len(part) > 1}
    return {name for name in names if (ROOT / package / name).is_dir() or (ROOT / package / f"{name}.py").exists()}


def test_folders_of_csrc_include_only_lower_floors():
    may = below(CSRC)
    assert sorted(may) == sorted(path.name for path in layout.CSRC.iterdir())
    wrong = set()
    for path in layout.CSRC.rglob("*"):
        if path.suffix in {".h", ".cuh", ".cu", ".cpp"}:
            folder = path.relative_to(layout.CSRC).parts[0]
            others = {name.split("/")[0] for name in layout.includes(path) if (layout.CSRC / name).is_file()}
            wrong |= {f"{path.relative_to(layout.CSRC)} includes {other}" for other in others - may[folder] - {folder}}
    assert wrong == set()


def test_modules_of_torch_ops_import_only_lower_floors():
    may, root = below(TORCH_OPS), ROOT / "torch_ops"
    found = {path.stem for path in root.glob("*.py")} | {path.parent.name for path in root.glob("*/__init__.py")}
    assert sorted(may) == sorted(found - {"__init__", "torch_ops"})
    wrong = set()
    for path in root.rglob("*.py"):
        unit = path.relative_to(root).parts[0].removesuffix(".py")
        if unit == "__init__":
            continue
        wrong |= {(unit, other) for other in used(path, "torch_ops") - may[unit] - {unit}}
    assert wrong == set()


@pytest.mark.parametrize("folder", ["compat", "distributed", "_graph", "_cuda_graph", "ladder", "trial"])
def test_modules_of_a_folder_import_each_other_in_no_circle(folder):
    root = ROOT / "torch_ops" / folder
    uses = {path: set() for path in root.rglob("*.py") if path.name != "__init__.py"}
    for path in uses:
        for name in imports(path):
            module = ROOT / Path(*name.split(".")).with_suffix(".py")
            uses[path] |= {module} & uses.keys()
    while ready := [path for path, others in uses.items() if not others & uses.keys()]:
        for path in ready:
            del uses[path]
    assert not uses


def test_folders_of_benchmarks_import_only_what_is_below_them():
    root = ROOT / "benchmarks"
    assert {path.parent.name for path in root.glob("*/__init__.py")} == set(BENCHMARKS)
    wrong = []
    for folder, may in BENCHMARKS.items():
        for path in (root / folder).rglob("*.py"):
            others = {other for other in used(path, "benchmarks") if (root / other).is_dir()}
            wrong += [f"{path.relative_to(root)} imports {other}" for other in others - may - {folder}]
    assert wrong == []


@pytest.mark.parametrize("part", ["benchmarks", "examples", "tools", "torch_ops"])
def test_nothing_imports_tests(part):
    importers = [path for path in (ROOT / part).rglob("*.py") if used(path, "tests")]
    assert importers == []
