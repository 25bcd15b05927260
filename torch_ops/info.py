"""Prints versions, architectures and GPUs, and what prevents operators from running here.

    python -m torch_ops.info

The exit status is 0 if operators can run on some device of this machine, else 1.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys

from torch_ops import _library

Capability = tuple[int, int]


def _has_image(arch: str, gpu: Capability) -> bool:
    """Whether code that was compiled for an architecture runs on a GPU.

    Args:
        arch: the architecture, such as 9.0, 9.0a or 12.0+PTX.
        gpu: the compute capability of the GPU.
    """
    parts = re.fullmatch(r"(\d+)\.(\d)([af]?)(\+PTX)?", arch)
    if parts is None:
        return False
    built = (int(parts[1]), int(parts[2]))
    if parts[3] == "a":  # for exactly this compute capability, PTX included
        return gpu == built
    # Machine code runs on later chips of the same major version. The driver compiles PTX for any later chip, except PTX of a
    # family ("f"), which stays within the major version.
    forward = parts[4] is not None and parts[3] != "f"
    return gpu >= built if forward else gpu[0] == built[0] and gpu >= built


def _gpus() -> dict[str, tuple[str, Capability]]:
    """The name and the compute capability of every GPU that torch sees, by device."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        f"cuda:{index}": (torch.cuda.get_device_name(index), torch.cuda.get_device_capability(index))
        for index in range(count)
    }


def _driver_cuda() -> tuple[int, int] | None:
    """The newest CUDA version that this machine's driver supports; None if there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) != 0:
        return None
    return version.value // 1000, version.value % 1000 // 10


def _driver_problem() -> str | None:
    """Why the driver is too old for the kernels; None if it is not. A driver supports every minor version of its major CUDA version."""
    driver, cuda = _driver_cuda(), _library.kernel_cuda()
    if driver is None or cuda is None or driver[0] >= int(cuda.split(".")[0]):
        return None
    return (
        f"GPU kernels: the driver serves CUDA {driver[0]}.{driver[1]} and gpuopt's kernels are for CUDA {cuda};"
        " install a newer driver, or build gpuopt from its source beside a torch for the older CUDA"
    )


def _report(reason: str | None) -> tuple[list[tuple[str, str]], bool]:
    """Collects what this module prints.

    Args:
        reason: why importing torch_ops failed, or None if it worked.

    Returns:
        Rows of a name and a value, and whether operators run on some device.
    """
    rows = [("Python", f"{sys.version.split()[0]} ({sys.executable})")]
    if importlib.util.find_spec("torch") is None:
        return [*rows, ("torch", "not installed"), ("problem", str(reason))], False
    import torch

    rows.append(("torch", f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"))
    path = _library.library_path()
    facts = _library.facts()
    rows.append(("bindings", f"{path}{'' if path.exists() else ' (missing)'}"))
    if facts.get("torch") and path.exists():
        rows.append(("", f"for torch {facts['torch']}, {facts['host_compiler']}, {facts['built']}"))
    if _library.kernel_cuda():
        rows.append(("kernels", str(_library.FOLDER / _library.KERNELS)))
        rows.append(("", f"nvcc {facts['nvcc']}, for compute capability {', '.join(facts['architectures'])}"))
    elif path.exists():
        rows.append(("kernels", "none: a library for the CPU"))
    if driver := _driver_cuda():
        rows.append(("driver", f"serves CUDA {driver[0]}.{driver[1]}"))

    runs, stops = ["cpu (through ATen)"], []
    present = _gpus()
    for device, (name, gpu) in present.items():
        rows.append(("GPU", f"{device} {name}, compute capability {gpu[0]}.{gpu[1]}"))
        if any(_has_image(arch, gpu) for arch in facts.get("architectures", [])):
            runs.append(device)
        elif _library.kernel_cuda():
            mend = f"build it from its source with TORCH_CUDA_ARCH_LIST={gpu[0]}.{gpu[1]}"
            stops.append(f"{device}: the library has no kernels for it; {mend}")
    if not present:
        stops.append(_driver_problem() or "GPU kernels: torch sees no GPU here")
    if not _library.kernel_cuda():
        stops.append("GPU kernels: the library was built without nvcc")

    if reason:
        return [*rows, ("problem", reason)], False
    return [*rows, *(("does not run", stop) for stop in stops), ("runs on", ", ".join(runs))], True


def main(reason: str | None = None) -> int:
    """Prints the report and returns the exit status. `reason` is why importing torch_ops failed, if it did."""
    rows, runs = _report(reason)
    for name, value in rows:
        print(f"{name:14} {value}")
    return 0 if runs else 1


if __name__ == "__main__":
    sys.exit(main())
