"""What a result was measured with: machine, versions, commit, and how the library was built."""

import json
import platform
import re
import subprocess
from pathlib import Path

import torch

REPOSITORY = Path(__file__).resolve().parent.parent


def slug(gpu_name: str) -> str:
    """'NVIDIA H200' as a folder name: 'nvidia-h200'."""
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
    # nvidia-smi numbers GPUs without regard to CUDA_VISIBLE_DEVICES, but one driver serves them all.
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
    """The commit that the caller names, else this checkout's."""
    head = _output("git", "rev-parse", "HEAD")
    if given or head is None:
        return {"commit": given, "dirty": None}
    return {"commit": head, "dirty": bool(_output("git", "status", "--porcelain", "--", ".", ":!benchmarks/results"))}


def library() -> dict | None:
    """The build facts that lie beside the shared object in use."""
    import torch_ops

    minor = ".".join(torch.__version__.split(".")[:2])
    facts = Path(torch_ops.__file__).parent / "lib" / f"libgpuopt-torch{minor}.json"
    return json.loads(facts.read_text()) if facts.exists() else None
