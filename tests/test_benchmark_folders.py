"""The folders of benchmarks/: which one imports which."""

import ast

from benchmarks.harness import machine

# Each folder, and the ones that it may import besides itself. The imports of a function count, too.
BELOW = {
    "harness": set(),
    "rooms": {"harness"},
    "random": {"harness", "rooms"},
    "ladder": {"harness", "rooms"},
    "models": {"harness"},
    "partitioned": {"harness"},
    "distributed": {"harness"},
    "publish": {"harness", "rooms", "random", "ladder", "models", "partitioned", "distributed"},
}


def test_folders_import_only_what_is_below_them():
    root = machine.REPOSITORY / "benchmarks"
    assert {path.parent.name for path in root.glob("*/__init__.py")} == set(BELOW)
    wrong = []
    for folder, below in BELOW.items():
        for path in (root / folder).rglob("*.py"):
            imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
            used = {node.module.split(".")[1] for node in imports if node.module.startswith("benchmarks.")}
            wrong += [f"{path.relative_to(root)} imports {other}" for other in used - below - {folder}]
    assert wrong == []
