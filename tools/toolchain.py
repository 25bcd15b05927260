"""Finds torch, the compilers and the GPU architectures to build for.

This module never imports torch, which takes seconds: a build with nothing to do should return at once.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OLDEST_TORCH = (2, 11)
DEFAULT_ARCHS = ("9.0",)
NEWEST_TORCH = (2, 15)
# As in PyTorch's wheels for CUDA 13. Ada (8.9) runs the image of 8.6. PTX would be for GPUs that PyTorch has no kernels for.
RELEASE_ARCHS = ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
# The parts of PyPI's cuda-toolkit that a build needs. nvvm is named too: otherwise pip installs a newer one, whose PTX this
# version's assembler rejects.
NVCC_PARTS = "nvcc,nvvm,crt,cccl,cudart"


class BuildError(RuntimeError):
    """An error that the user can repair. Its message is one sentence that says how."""


def output_of(*command: str | Path) -> str:
    """The standard output of the command, or an empty string if it cannot run or fails."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


@dataclass(frozen=True)
class Torch:
    root: Path  # .../site-packages/torch
    version: str  # 2.11.0+cu130
    cuda: str | None  # 13.0; None for a CPU-only torch

    @property
    def release(self) -> str:
        return self.version.partition("+")[0]

    @property
    def minor(self) -> str:
        return ".".join(self.release.split(".")[:2])

    @property
    def cuda_major(self) -> str | None:
        return self.cuda.split(".")[0] if self.cuda else None

    @property
    def cuda_wheels(self) -> list[Path]:
        """The folders of PyPI's CUDA packages beside this torch: one for CUDA 13, one per part for CUDA 12."""
        nvidia = self.root.parent / "nvidia"
        return [nvidia / f"cu{self.cuda_major}", nvidia / "cuda_runtime", nvidia / "cuda_nvcc"]


def read_torch(root: Path) -> Torch:
    text = (root / "version.py").read_text()

    def field(name: str) -> str | None:
        found = re.search(rf"^{name}\b[^=\n]*=\s*'([^']*)'", text, re.MULTILINE)
        return found[1] if found else None

    version = field("__version__")
    if version is None:
        raise BuildError(f"{root / 'version.py'} names no version of torch: reinstall torch.")
    torch = Torch(root, version, field("cuda"))
    if tuple(int(part) for part in re.findall(r"\d+", torch.release)[:2]) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise BuildError(f"gpuopt needs torch {oldest} or newer, and the one in {root.parent} is {version}.")
    return torch


def find_torch() -> Torch | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return None
    return read_torch(Path(spec.submodule_search_locations[0]))


@dataclass(frozen=True)
class HostCompiler:
    command: tuple[str, ...]  # several words if CXX has a wrapper: "ccache g++"

    @cached_property
    def version(self) -> str:
        return output_of(*self.command, "-dumpfullversion", "-dumpversion").strip() or "unknown"


def find_host_compiler() -> HostCompiler:
    named = os.environ.get("CXX", "").strip()
    command = shlex.split(named) or ["g++"]
    if not all(shutil.which(word) for word in command):
        where = f"CXX={named} is not there" if named else "g++ was not found"
        raise BuildError(
            f"No C++ compiler: {where}; install g++ 11 or newer (Debian, Ubuntu: apt-get install g++)"
            " or set CXX to a compiler."
        )
    compiler = HostCompiler(tuple(command))
    if "clang" not in command[-1] and re.match(r"\d\.|10\.", compiler.version):
        name = " ".join(command)
        raise BuildError(f"{name} is version {compiler.version}, and torch's headers need g++ 11 or newer.")
    return compiler


@dataclass(frozen=True)
class Nvcc:
    path: Path
    version: str  # 13.0.88

    @property
    def major(self) -> str:
        return self.version.split(".")[0]

    @property
    def root(self) -> Path:
        return self.path.parent.parent

    @cached_property
    def targets(self) -> set[str]:
        """The architectures that it compiles for, such as 'sm_90'."""
        return set(output_of(self.path, "--list-gpu-code").split())

    def compiles_for(self, arch: str) -> bool:
        return not self.targets or f"sm_{''.join(filter(str.isdigit, arch))}" in self.targets


def read_nvcc(path: Path) -> Nvcc | None:
    found = re.search(r"\bV(\d+\.\d+\.\d+)", output_of(path, "--version"))
    if not found:
        return None
    # nvcc on PATH is often a link to the real one, or a script that calls it. Headers lie beside the real one, whose
    # folder nvcc prints as TOP.
    if not (path.resolve().parent.parent / "include" / "cuda_runtime_api.h").exists():
        plan = subprocess.run([str(path), "--dryrun", "-x", "cu", "-c", os.devnull], capture_output=True, text=True)
        top = re.search(r"^#\$ TOP=(.+)$", plan.stderr, re.MULTILINE)
        real = Path(top[1].strip(), "bin", "nvcc") if top else path
        path = real if real.exists() else path
    return Nvcc(path.resolve(), found[1])


def _misfit(torch: Torch, nvcc: Nvcc, place: str) -> BuildError:
    return BuildError(
        f"torch {torch.version} was built with CUDA {torch.cuda}, but nvcc {place} ({nvcc.path}) is CUDA"
        f" {nvcc.version}: set CUDA_HOME to a CUDA {torch.cuda_major} toolkit."
    )


def named_nvcc(torch: Torch) -> Nvcc | None:
    """The nvcc in CUDA_HOME. The user named it, so another CUDA major version than torch's is an error."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = read_nvcc(Path(home, "bin", "nvcc")) if home else None
    if nvcc and nvcc.major != torch.cuda_major:
        raise _misfit(torch, nvcc, "in CUDA_HOME")
    return nvcc


def find_nvcc(torch: Torch) -> Nvcc | None:
    """The CUDA compiler for this torch: from CUDA_HOME, else from PATH, else PyPI's beside torch.

    nvcc must have the CUDA major version of torch, because the bindings use torch's CUDA runtime. An nvcc on PATH with another
    major version is passed over for PyPI's.
    """
    if torch.cuda is None:
        return None
    if nvcc := named_nvcc(torch):
        return nvcc
    on_path = shutil.which("nvcc")
    system = read_nvcc(Path(on_path)) if on_path else None
    if system and system.major == torch.cuda_major:
        return system
    for folder in torch.cuda_wheels:
        if (nvcc := read_nvcc(folder / "bin" / "nvcc")) and nvcc.major == torch.cuda_major:
            return nvcc
    if system:
        raise _misfit(torch, system, "on PATH")
    return None


def choose_nvcc(torch: Torch) -> Nvcc | None:
    """The CUDA compiler to build with. None, for a library without GPU kernels, if torch has no CUDA or GPUOPT_CPU_ONLY is set."""
    if torch.cuda is None or os.environ.get("GPUOPT_CPU_ONLY", "0") not in ("", "0"):
        return None
    nvcc = find_nvcc(torch)
    if nvcc is None:
        raise BuildError(
            f"torch {torch.version} needs nvcc for CUDA {torch.cuda_major}, and none was found in CUDA_HOME, on PATH or beside"
            f' torch: pip install "cuda-toolkit[{NVCC_PARTS}]=={torch.cuda}.*", or set GPUOPT_CPU_ONLY=1 to build without GPU'
            " kernels."
        )
    return nvcc


def _cuda_file(torch: Torch, nvcc: Nvcc | None, name: str, *folders: str, nvcc_first: bool = False) -> Path:
    """Finds a file of the CUDA toolkit in one of these folders, beside torch or near nvcc."""
    near = [nvcc.root, nvcc.root / "targets" / f"{os.uname().machine}-linux"] if nvcc else []
    roots = [*near, *torch.cuda_wheels] if nvcc_first else [*torch.cuda_wheels, *near]
    for path in (root / folder / name for root in roots for folder in folders):
        if path.exists():
            return path
    where = f" or near {nvcc.path}" if nvcc else ""
    raise BuildError(f"{name} was not found beside torch{where}: reinstall torch or the CUDA toolkit.")


def cuda_include(torch: Torch, nvcc: Nvcc | None) -> Path:
    return _cuda_file(torch, nvcc, "cuda_runtime_api.h", "include", nvcc_first=True).parent


def cuda_runtime(torch: Torch, nvcc: Nvcc | None) -> Path:
    """The shared runtime that torch itself loads. The file is named in full, because PyPI's package has no link libcudart.so."""
    return _cuda_file(torch, nvcc, f"libcudart.so.{torch.cuda_major}", "lib", "lib64")


def static_cuda_runtime(torch: Torch, nvcc: Nvcc) -> Path:
    """The static runtime that comes with nvcc, for the library of kernels."""
    return _cuda_file(torch, nvcc, "libcudart_static.a", "lib", "lib64", nvcc_first=True)


def parse_archs(text: str) -> tuple[str, ...]:
    """Splits '8.0;9.0+PTX' (or with spaces or commas) into ('8.0', '9.0+PTX'), in order and without duplicates."""
    archs = [word for word in re.split(r"[;,\s]+", text) if word]
    for word in archs:
        if not re.fullmatch(r"\d{1,2}\.\d[af]?(\+PTX)?", word):
            raise BuildError(
                f"TORCH_CUDA_ARCH_LIST={text!r}: {word!r} is not a compute capability like 9.0, 9.0a or 9.0+PTX."
            )
    return tuple(dict.fromkeys(archs))


def present_archs() -> tuple[str, ...]:
    """The compute capabilities of this machine's GPUs, as reported by the driver."""
    listed = output_of("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader").split()
    found = {word for word in listed if re.fullmatch(r"\d+\.\d", word)}
    return tuple(sorted(found, key=lambda arch: [int(part) for part in arch.split(".")]))


def choose_archs(nvcc: Nvcc, without_gpu: tuple[str, ...] = DEFAULT_ARCHS) -> tuple[str, ...]:
    """TORCH_CUDA_ARCH_LIST, else this machine's GPUs, else all of `without_gpu` that nvcc compiles for."""
    chosen = parse_archs(os.environ.get("TORCH_CUDA_ARCH_LIST", "")) or present_archs()
    return chosen or tuple(arch for arch in without_gpu if nvcc.compiles_for(arch))


def may_overlap_launches(archs: tuple[str, ...]) -> bool:
    """Whether launches may overlap the previous kernel (programmatic dependent launch, compute capability 9.0).

    A kernel whose launch overlaps must itself wait for the previous one. PTX for less than 9.0 has no instruction for that, and a
    newer GPU would run such PTX if the build holds none for 9.0.
    """
    old = any(arch.endswith("+PTX") and int(arch.partition(".")[0]) < 9 for arch in archs)
    return not old or "9.0+PTX" in archs


def gencode(archs: tuple[str, ...], nvcc: Nvcc) -> list[str]:
    flags = []
    for arch in archs:
        number, _, ptx = arch.partition("+")
        number = number.replace(".", "")
        if not nvcc.compiles_for(arch):
            raise BuildError(
                f"nvcc {nvcc.version} ({nvcc.path}) does not compile for compute capability {arch};"
                " set TORCH_CUDA_ARCH_LIST to what it knows or use another nvcc."
            )
        flags.append(f"-gencode=arch=compute_{number},code=sm_{number}")
        if ptx:
            flags.append(f"-gencode=arch=compute_{number},code=compute_{number}")
    return flags
