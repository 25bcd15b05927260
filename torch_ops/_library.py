"""Finds and loads the native libraries. If that fails, says in one sentence why.

There are two kinds of library. The kernels do not depend on torch. The bindings do: there is one for each minor version of torch.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "lib"
KERNELS = "libgpuopt_kernels.so"
SOURCE_TREE = (FOLDER.parent.parent / "csrc").is_dir()
OLDEST_TORCH = (2, 11)
# `python -m torch_ops.info` and `python -m torch_ops.build` run although importing fails: they explain or fix the problem.
HELPERS = ("info", "build")


def load() -> None:
    """Loads the libraries, which registers torch.ops.gpuopt.*.

    Raises:
        ImportError: the libraries cannot be loaded. The message says why and what to do.
    """
    reason = problem() or _open()
    if reason is None:
        return
    for helper in HELPERS:
        if ("-m", f"torch_ops.{helper}") in zip(sys.orig_argv, sys.orig_argv[1:]):
            module = importlib.import_module(f"torch_ops.{helper}")
            sys.exit(module.main(reason))
    raise ImportError(f"{reason}. More: python -m torch_ops.info")


def problem() -> str | None:
    """Why the bindings for this Python's torch cannot be loaded, found without loading them; None if nothing is wrong."""
    return misfit() or _not_built()


def misfit() -> str | None:
    """Why no bindings can work with this Python's torch: it is missing, too old, or for another CUDA; None if they can."""
    if importlib.util.find_spec("torch") is None:
        return f"gpuopt needs PyTorch, and {sys.executable} has none: install torch {oldest_torch()} or newer"
    import torch

    if torch_version() < OLDEST_TORCH:
        return f"gpuopt needs torch {oldest_torch()} or newer, and this Python has torch {torch.__version__}"
    cuda = kernel_cuda()
    if cuda and torch.version.cuda is None:
        return (
            f"gpuopt's kernels are for CUDA {cuda}, but torch {torch.__version__} is CPU-only;"
            f" install a torch with CUDA, or {_from_source()}"
        )
    if cuda and cuda.split(".")[0] != str(torch.version.cuda).split(".")[0]:
        return (
            f"gpuopt's kernels are for CUDA {cuda}, but torch {torch.__version__} uses CUDA {torch.version.cuda};"
            f" install a torch for CUDA {cuda.split('.')[0]}, or {_from_source()}"
        )
    return None


def _not_built() -> str | None:
    import torch

    if library_path().is_file():
        return None
    if SOURCE_TREE and (installed := _installed()):
        return (
            f"gpuopt is installed in {installed}, but Python finds its sources in {FOLDER.parent}, which have no library for"
            f" torch {torch.__version__}; run Python in another folder than that of the sources"
        )
    others = sorted((_minor(other) for other in FOLDER.glob("libgpuopt-torch*.so")), key=_numbers)
    has = f"gpuopt was built for torch {', '.join(others)}" if others else "gpuopt's native library is not built"
    return f"{has}, and this Python has torch {torch.__version__}; {_build_bindings()}"


def _installed() -> Path | None:
    """The package of an installed gpuopt; None if there is none, or if it is this one."""
    for distribution in importlib.metadata.distributions(name="gpuopt"):
        package = Path(str(distribution.locate_file("torch_ops"))).resolve()
        if package.is_dir() and package != Path(__file__).resolve().parent:
            return package
    return None


def torch_version() -> tuple[int, ...]:
    import torch

    return _numbers(torch.__version__)[:2]


def oldest_torch() -> str:
    return ".".join(map(str, OLDEST_TORCH))


def library_path() -> Path:
    """Where the bindings for this Python's torch are, or would be: first choice torch_ops.build's folder, then the package."""
    name = f"libgpuopt-torch{'.'.join(map(str, torch_version()))}.so"
    made_here = user_folder() / name
    return made_here if made_here.is_file() and not SOURCE_TREE else FOLDER / name


def user_folder() -> Path:
    """The folder for bindings from torch_ops.build. Its name identifies the torch and the kernels that they are for."""
    import torch

    kernels = hashlib.sha256(json.dumps(_read(FOLDER / KERNELS)).encode()).hexdigest()[:16]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "gpuopt", f"torch-{torch.__version__}-kernels-{kernels}")


def facts() -> dict[str, Any]:
    """How the kernels and the bindings were built, from the JSON files beside them; empty if there are none."""
    return {**_read(FOLDER / KERNELS), **_read(library_path())}


def kernel_cuda() -> str | None:
    """The CUDA version that compiled the kernels, such as "13.0"; None for a CPU-only library, which has no kernels."""
    known = facts()
    if not known.get("nvcc") or known.get("cuda", "") is None:
        return None
    return ".".join(known["nvcc"].split(".")[:2])


def _read(library: Path) -> dict[str, Any]:
    try:
        return json.loads(library.with_suffix(".json").read_text())
    except (OSError, ValueError):
        return {}


def _open() -> str | None:
    import torch

    try:
        if kernel_cuda():
            # The bindings refer to the kernels by name. Loaded first, they are found wherever the bindings are.
            ctypes.CDLL(str(FOLDER / KERNELS))
        torch.ops.load_library(library_path())
    except OSError as error:
        return f"gpuopt's native library does not load with torch {torch.__version__} ({error}); {_build_bindings()}"
    return None


def _minor(library: Path) -> str:
    return library.stem.removeprefix("libgpuopt-torch")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))


def _build_bindings() -> str:
    """The command that builds bindings for another torch."""
    if SOURCE_TREE:
        return f"build it: {sys.executable} setup.py build_ext --inplace"
    return f"build the bindings for it: {sys.executable} -m torch_ops.build"


def _from_source() -> str:
    """The command that builds kernels for another CUDA."""
    if SOURCE_TREE:
        return f"rebuild it: {sys.executable} setup.py build_ext --inplace"
    return "build gpuopt from its source: pip install --no-build-isolation --force-reinstall --no-deps ."
