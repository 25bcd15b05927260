"""Loads a learner's kernel: a ``.cu`` file, compiled by nvcc, or a function of a ``.py`` file."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torch_ops.ladder.problems import Problem, as_results
from torch_ops.ladder.zones import Fresh, Zone

__all__ = ["BuildFailed", "Build", "Kernel", "located", "load"]

# What a .cu file returns to decline operands: cudaErrorNotSupported.
_DECLINED = 801
# Errors after which the GPU runs nothing of this process any more.
STICKY = {700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720}
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)
_SHOWN_LINES = 12


class BuildFailed(Exception):
    """The file can't be loaded. ``kind`` is "compile error" or "no entry point"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Crashed(RuntimeError):
    """A CUDA error after which this process can't use the GPU."""


@dataclass(frozen=True)
class Build:
    """What the compiler says of a kernel: its name, its registers, and the bytes that it spills to memory."""

    kernel: str
    registers: int
    spilled: int


@dataclass
class Kernel:
    """A kernel that can be called.

    Args:
        name: What tables call it.
        call: A function of the operands and the expected results. ``zones`` is None where time counts: then nothing is guarded.
            Otherwise the zones of new tensors are added to it.
        is_native: Whether it gets addresses, and so contiguous operands.
        builds: What the compiler says.
    """

    name: str
    call: Callable[[tuple[Any, ...], tuple[Tensor, ...], list[Zone] | None], tuple[Any, ...]]
    is_native: bool
    builds: list[Build]


def located(caller: str, kernel: Any) -> tuple[Path, str | None]:
    """The file of a kernel, and the name of its function if the kernel is one.

    Args:
        caller: The function whose argument it is, for messages.

    Raises:
        TypeError: it is neither a function nor a path.
        ValueError: the function has no file that another process could load.
        FileNotFoundError: there is no such file.
    """
    if isinstance(kernel, (str, os.PathLike)):
        path = Path(kernel).resolve()
        if path.suffix not in (".cu", ".py"):
            raise ValueError(f"{caller}: kernel must be a .cu or a .py file, got {path.name}")
        if not path.is_file():
            raise FileNotFoundError(f"{caller}: kernel must be a file that exists, got {kernel}")
        return path, None
    if not callable(kernel):
        raise TypeError(f"{caller}: kernel must be a function or the path of a file, got {type(kernel).__name__}")
    name = getattr(kernel, "__qualname__", "<without a name>")
    try:
        file = Path(inspect.getsourcefile(inspect.unwrap(kernel)) or "")
    except TypeError:
        file = Path()
    if not name.isidentifier() or not file.is_file():
        raise ValueError(
            f"{caller}: kernel must be a function at the top level of a file, because another process loads it: got {name}. In a"
            " notebook, write the cell to a file with %%writefile, and pass the path of the file"
        )
    return file.resolve(), name


def load(problem: Problem, path: Path, function: str | None, folder: Path) -> Kernel:
    """Compiles or imports a file. ``folder`` is for what the compiler writes.

    Raises:
        BuildFailed: the file does not compile, or has no entry point.
    """
    if path.suffix == ".cu":
        return _native(problem, path, folder)
    return _python(problem, path, function or problem.op)


def _python(problem: Problem, path: Path, name: str) -> Kernel:
    spec = importlib.util.spec_from_file_location("practise_kernel", path)
    assert spec is not None and spec.loader is not None  # as for every .py file
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f", line {frames[-1].lineno}" if frames else ""
        raise BuildFailed("compile error", f"{path.name}{where}: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        raise BuildFailed("no entry point", f"{path.name} has no function {name}: expected the operands of the ladder")

    def call(operands: tuple[Any, ...], expected: tuple[Tensor, ...], zones: list[Zone] | None) -> tuple[Any, ...]:
        if zones is None:
            results = as_results(found(*operands))
        else:
            with Fresh() as fresh:
                results = as_results(found(*operands))
            zones += fresh.zones
        return (operands[0],) if problem.writes else results

    return Kernel(path.name, call, False, [])


# ---------------------------------------------------------------- .cu files


def nvcc() -> str | None:
    """The path of nvcc: of CUDA_HOME, of PATH, or of PyPI's package beside torch."""
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    folders = [Path(home, "bin") for home in homes]
    folders += [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += [Path(torch.__file__).parents[1] / "nvidia" / f"cu{(torch.version.cuda or '13').split('.')[0]}" / "bin"]
    folders += [Path("/usr/local/cuda/bin")]
    return next((found for folder in folders if (found := shutil.which("nvcc", path=str(folder)))), None)


def compiled(problem: Problem, path: Path, folder: Path) -> tuple[Path, list[Build]]:
    """The library of a file."""
    compiler = nvcc()
    if compiler is None:
        raise BuildFailed("compile error", "there is no nvcc in CUDA_HOME, in PATH or beside torch")
    major, minor = torch.cuda.get_device_capability() if torch.cuda.is_available() else (9, 0)
    architecture = f"{major}{minor}{'a' if major >= 9 else ''}"
    library, main = folder / f"{path.stem}.so", folder / f"{path.stem}_main.cu"
    # The declaration gives the entry point C linkage. It also lets the compiler compare the parameters.
    main.write_text(
        "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n#include <cuda_runtime.h>\n#include <cstddef>\n#include <cstdint>\n"
        f'extern "C" {problem.signature};\n#include "{path}"\n'
        'extern "C" int practise_last_error() { return cudaGetLastError(); }\n'
    )
    command = [compiler, "-shared", "-O3", "-std=c++20", "-Xcompiler", "-fPIC", "-Xptxas", "-v"]
    # Functions that gpuopt's libraries have, too, are the file's.
    command += ["-Xlinker", "-Bsymbolic"]
    command += ["-gencode", f"arch=compute_{architecture},code=sm_{architecture}", str(main), "-o", str(library)]
    libraries = Path(compiler).resolve().parents[1] / "lib"
    command += ["-L", str(libraries)] if libraries.is_dir() else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr).replace(str(path), path.name).splitlines()
        first = next((i for i, line in enumerate(said) if "error" in line), 0)
        raise BuildFailed("compile error", "\n".join(said[first : first + _SHOWN_LINES]))
    return library, builds_of(done.stdout + done.stderr)


def builds_of(said: str) -> list[Build]:
    """The kernels in the report of ``ptxas -v``."""
    found = []
    for part in said.split("Compiling entry function ")[1:]:
        mangled = re.search(r"'(\w+)'", part)
        registers, spilled = re.search(r"Used (\d+) registers", part), re.search(r"(\d+) bytes spill stores", part)
        if mangled and registers:
            found.append(Build(_name_of(mangled[1]), int(registers[1]), int(spilled[1]) if spilled else 0))
    return found


def _name_of(mangled: str) -> str:
    """The name of a kernel without namespaces and template arguments. It is the last name in front of the arguments."""
    if not mangled.startswith("_Z"):
        return mangled
    at, name = 3 if mangled.startswith("_ZN") else 2, mangled
    while match := re.match(r"\d+", mangled[at:]):
        start = at + len(match[0])
        at = start + int(match[0])
        name = mangled[start:at]
    return name


def _native(problem: Problem, path: Path, folder: Path) -> Kernel:
    library_path, builds = compiled(problem, path, folder)
    try:
        library = ctypes.CDLL(str(library_path))
    except OSError as error:  # a function that is declared and not defined
        raise BuildFailed("compile error", str(error).replace(str(library_path), path.name)) from error
    if not hasattr(library, problem.op):
        raise BuildFailed(
            "no entry point", f"{path.name} defines no function {problem.op} with these parameters: {problem.signature}"
        )
    entry, last_error = getattr(library, problem.op), library.practise_last_error
    entry.restype = ctypes.c_int
    pinned: list[Any] = []  # memory of the call in flight

    def call(operands: tuple[Any, ...], expected: tuple[Tensor, ...], zones: list[Zone] | None) -> tuple[Any, ...]:
        device = next(x.device for x in operands if isinstance(x, Tensor))
        pinned.clear()

        def new(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tensor:
            if zones is None:
                return torch.empty(shape, dtype=dtype, device=device)
            strides = torch.empty(shape, device="meta").stride()
            zones.append(Zone(shape, strides, dtype, device, name))
            return zones[-1].tensor

        def allocate(size: int) -> int:
            pinned.append(new((max(size, 1),), torch.uint8, "memory of allocate()"))
            return pinned[-1].data_ptr()

        if problem.writes:
            results = (operands[0],)
        else:
            names = ["the result"] if len(expected) == 1 else [f"result {i}" for i in range(len(expected))]
            results = tuple(new(x.shape, dtype, name) for x, dtype, name in zip(expected, problem.dtypes, names))
        arguments = [
            ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else ctypes.c_int64(x)
            for x in problem.arguments(*operands, *results)
        ]
        callback = _ALLOCATE(allocate)
        pinned.append(callback)
        code = entry(*arguments, callback, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)) or last_error()
        if code == _DECLINED:
            raise NotImplementedError("the kernel returns cudaErrorNotSupported")
        if code in STICKY:
            raise Crashed(f"CUDA error {code}")
        if code:
            raise RuntimeError(f"the kernel returns or causes CUDA error {code}")
        return results

    return Kernel(path.name, call, True, builds)
