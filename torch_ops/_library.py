"""Finds and loads the native library, and says in one sentence why it cannot."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "lib"
SOURCE_TREE = (FOLDER.parent.parent / "csrc").is_dir()


def load() -> None:
    """Registers torch.ops.gpuopt.*; ImportError with the reason if that cannot be."""
    reason = problem() or _open()
    # `python -m torch_ops.info` imports this package first. It is there to explain what is wrong,
    # so it must get its turn also when the import is about to fail.
    if reason and ("-m", "torch_ops.info") in zip(sys.orig_argv, sys.orig_argv[1:]):
        from torch_ops import info

        sys.exit(info.main(reason))
    if reason:
        raise ImportError(f"{reason}. More: python -m torch_ops.info")


def problem() -> str | None:
    """Why the library for this Python's torch cannot be loaded, as far as the files can tell."""
    if importlib.util.find_spec("torch") is None:
        return f"gpuopt needs PyTorch, and {sys.executable} has none: install torch 2.11 or newer"
    import torch

    path = library_path()
    if not path.is_file():
        others = [_minor(other) for other in sorted(FOLDER.glob("libgpuopt-torch*.so"))]
        if others:
            return (
                f"gpuopt was built for torch {' and '.join(others)}, but this Python has torch {torch.__version__};"
                f" {_rebuild()}"
            )
        return f"gpuopt's native library is not built for torch {torch.__version__}; {_rebuild()}"
    cuda = facts().get("cuda")
    if cuda and torch.version.cuda is None:
        return (
            f"gpuopt was built with CUDA {cuda}, but torch {torch.__version__} is CPU-only;"
            f" install a torch with CUDA, or {_rebuild()}"
        )
    if cuda and cuda.split(".")[0] != torch.version.cuda.split(".")[0]:
        return (
            f"gpuopt was built with CUDA {cuda}, but torch {torch.__version__} uses CUDA {torch.version.cuda};"
            f" {_rebuild()}"
        )
    return None


def library_path() -> Path:
    """The library for the torch of this Python, whether it exists or not."""
    import torch

    minor = re.match(r"\d+\.\d+", torch.__version__)
    return FOLDER / f"libgpuopt-torch{minor[0] if minor else torch.__version__}.so"


def facts() -> dict[str, Any]:
    """How the library was built, as the build wrote it down; empty if it did not."""
    try:
        return json.loads(library_path().with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}


def _open() -> str | None:
    import torch

    try:
        torch.ops.load_library(library_path())
    except OSError as error:
        return f"gpuopt's native library does not load with torch {torch.__version__} ({error}); {_rebuild()}"
    return None


def _minor(library: Path) -> str:
    return library.stem.removeprefix("libgpuopt-torch")


def _rebuild() -> str:
    if SOURCE_TREE:
        return f"rebuild it: {sys.executable} setup.py build_ext --inplace"
    return "rebuild it from gpuopt's source: pip install --no-build-isolation --force-reinstall --no-deps ."
