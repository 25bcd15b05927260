"""Formatting, lint, types and prose: ``python -m tools.style check`` reports, ``python -m tools.style format`` repairs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools import words

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = {".h", ".hpp", ".cuh", ".cpp", ".cu"}


def _types_are_wrong(bin_folder: Path) -> bool:
    """Runs pyright, as pyproject.toml configures it. An environment that is older than this check may lack it."""
    tool = shutil.which("pyright", path=str(bin_folder)) or shutil.which("pyright")
    if tool is None:
        print("gpuopt: types are not checked, because pyright is not installed: pip install -r tools/requirements.txt")
        return False
    quiet = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    return subprocess.run([tool, "--pythonpath", sys.executable], cwd=ROOT, env=quiet).returncode != 0


def main() -> int:
    if sys.argv[1:] not in (["check"], ["format"]):
        sys.exit("usage: python -m tools.style check|format")
    fix = sys.argv[1] == "format"
    native = [
        str(p) for top in ("csrc", "examples", "tests") for p in sorted((ROOT / top).rglob("*")) if p.suffix in SUFFIXES
    ]
    bin_folder = Path(sys.executable).parent
    commands = [
        ["ruff", "check", "--no-cache", *(["--fix"] if fix else [])],
        ["ruff", "format", "--no-cache", *([] if fix else ["--check"])],
        ["clang-format", *(["-i"] if fix else ["--dry-run", "--Werror"]), *native],
    ]
    failed = False
    for name, *rest in commands:
        tool = shutil.which(name, path=str(bin_folder)) or shutil.which(name)
        if tool is None:
            sys.exit(f"gpuopt: {name} is not installed for {sys.executable}: pip install -r tools/requirements.txt")
        failed |= subprocess.run([tool, *rest], cwd=ROOT).returncode != 0
    if not fix:
        failed |= _types_are_wrong(bin_folder)
        failed |= words.main([]) != 0
    if failed:
        print(
            "gpuopt: some sources have faults of format, lint, types or prose; make format repairs the format.",
            file=sys.stderr,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
