"""Describes how a result was measured: the machine, versions, commit, and how the library was built."""

import json
import platform
import re
import subprocess
from pathlib import Path

import torch

REPOSITORY = Path(__file__).resolve().parent.parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"


def slug(gpu_name: str) -> str:
    """The folder name of a GPU: 'nvidia-h200' for 'NVIDIA H200'."""
    return re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-")


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _version(package: str) -> str | None:
    try:
        return __import__(package).__version__
    except ImportError:
        return None


def gpu() -> dict:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    # nvidia-smi ignores CUDA_VISIBLE_DEVICES, so its order differs. All GPUs have the same driver, so any line will do.
    drivers = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "memory_bytes": properties.total_memory,
        "driver": drivers.splitlines()[0] if drivers else None,
    }


def versions() -> dict:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": _version("triton"),
        "cupy": _version("cupy"),
    }


def commit(given: str | None) -> dict:
    """The commit that the caller names, or this checkout's."""
    head = _output("git", "rev-parse", "HEAD")
    if given or head is None:
        return {"commit": given, "dirty": None}
    return {"commit": head, "dirty": bool(_output("git", "status", "--porcelain", "--", ".", ":!benchmarks/results"))}


def library() -> dict | None:
    """How the loaded library was built, from the file beside it."""
    import torch_ops

    minor = ".".join(torch.__version__.split(".")[:2])
    facts = Path(torch_ops.__file__).parent / "lib" / f"libgpuopt-torch{minor}.json"
    return json.loads(facts.read_text()) if facts.exists() else None
