"""Runs the tests marked `sanitize` under each tool of compute-sanitizer: python -m tools.sanitize [pytest arguments].

A tool passes only if tests passed under it and it printed its own summary. Without this check, a tool that never ran
would pass, because it reports no errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from . import toolchain

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Watching torch's kernels is slow, and their errors are not ours. initcheck must watch them too, because it
# tracks which memory they initialise.
ONLY_OURS = ["--kernel-name", "kernel_substring=gpuopt"]


def find_sanitizer() -> str:
    torch = toolchain.find_torch()
    homes = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")), *(torch.cuda_wheels if torch else [])]
    folders = [os.environ.get("PATH", os.defpath), *(str(home / "bin") for home in homes)]
    found = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    if found is None:
        sys.exit(
            "gpuopt: compute-sanitizer was not found in CUDA_HOME or on PATH; it comes with the CUDA toolkit, and from"
            " PyPI as nvidia-cuda-sanitizer-api."
        )
    return found


def watch(sanitizer: str, tool: str, arguments: list[str]) -> str | None:
    """Runs the tests under one tool. Returns None if all is well, or a description of the failure."""
    pytest = [sys.executable, "-m", "pytest", "-m", "sanitize", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    options = ["--tool", tool, "--error-exitcode", "99", "--target-processes", "all"]
    if tool == "memcheck":
        # Packages that PyTorch's tests import ask the driver for functions that it lacks. Errors of our calls are exceptions.
        options += ["--report-api-errors", "no"]
    if tool != "initcheck":
        options += ONLY_OURS
    # torch's caching allocator takes tensors out of one large block, and memcheck sees no overrun inside it.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    process = subprocess.Popen(
        [sanitizer, *options, *pytest],
        cwd=ROOT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout
    lines = []
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    status = process.wait()
    text = "".join(lines)
    if status != 0:
        return f"ended with status {status}"
    if not re.search(r"\b[1-9]\d* passed", text):
        return "no test passed under it"
    if not re.search(r"(ERROR|RACECHECK) SUMMARY: 0 ", text):
        return "it did not close with a summary without errors"
    return None


def main() -> int:
    sanitizer = find_sanitizer()
    failures = {}
    for tool in TOOLS:
        print(f"gpuopt: {tool}", flush=True)
        if wrong := watch(sanitizer, tool, sys.argv[1:]):
            failures[tool] = wrong
    for tool in TOOLS:
        print(f"{tool:10} {failures.get(tool, 'no errors')}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
