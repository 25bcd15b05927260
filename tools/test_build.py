"""Builds the C++ libraries that tests load, with ninja: python -m tools.test_build [arguments of pytest].

A test builds the library that it loads. This command builds the libraries of whole folders at once, which uses all cores. If the
arguments name files or folders, it builds the libraries of these folders. Otherwise it builds all.

tests/plan/<room>/<room>_shim.cpp becomes a library with the launch plans of a room.
tests/emulation/<room>/<room>_shim.cpp becomes a library with the kernels of a room, compiled for the CPU on top of emulator.h.
tests/emulation/<room>/<room>_ladder_shim.cpp becomes a library with the kernels of the room's ladder.
A header of tests/emulation, such as launch.cuh, replaces the one of its name in csrc/common.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import native_build, toolchain
from tools.native_build import ROOT, ninja_path, shell
from tools.toolchain import BuildError

FOLDER = ROOT / "build" / "tests"
EMULATION = ROOT / "tests" / "emulation"
PLAN = ROOT / "tests" / "plan"
FLAGS = ["-std=c++20", "-fPIC"]
# Signed overflow and division by zero end the test process.
PLAN_FLAGS = ["-O1", "-Wall", "-Werror", "-fsanitize=signed-integer-overflow,integer-divide-by-zero"]
# A GPU faults when a vector is read or written at an unaligned address, and -fsanitize=alignment does the same. -w is needed
# because g++ does not know CUDA's attributes.
EMULATION_FLAGS = ["-w", "-fsanitize=alignment"]
# These rooms have many template instances, and their tests run few threads: optimising takes longer than it saves.
NOT_OPTIMISED = ("elementwise", "reduce", "scan", "segment", "selective_scan", "spmm")
FATAL = ["-fno-sanitize-recover=all"]
# Kernels of a room that run kernels of another one.
BORROWED = {"index_add": ("index_sort",), "segment": ("index_sort",), "spmm": ("graph_attention", "index_sort", "rows")}
# Rooms that a room's plans ask. Their kernels are left out.
PLANNED = {"conv1d": ("transpose",)}
# Rooms with a ladder step that runs kernels of the production operator, or of a room that it borrows from.
PRODUCTION_STEPS = {"matmul": "matmul", "index_add": "index_sort"}
LAUNCH = re.compile(r"(?P<kernel>[\w:]+(?:<[^;{}()]*?>)?)\s*<<<(?P<shape>[^;]*?)>>>\((?P<arguments>[^;]*)\);")
SHARED = re.compile(r"(?<!extern )__shared__ ([\w:<>, ]+) (\w+)((?:\[[^];]+\])+);")


def translate(source: str) -> str:
    """Rewrites CUDA syntax as C++: kernel<<<shape>>>(arguments), and arrays in shared memory."""
    source = LAUNCH.sub(r"::emulator::launch(\g<shape>, [&] { \g<kernel>(\g<arguments>); });", source)
    source = SHARED.sub(r"static ::emulator::Guarded<\1\3> \2_guarded; auto& \2 = \2_guarded.array;", source)
    source = re.sub(r"(?<!extern )__shared__ ", "static ", source)
    return source


def is_ladder(path: Path, room: str) -> bool:
    return path.is_relative_to(ROOT / "csrc" / room / "ladder")


def translate_room(shim: Path) -> list[Path]:
    """Writes the translated sources of a shim's room into a folder of its own. Returns the sources to compile."""
    name = shim.stem.removesuffix("_shim")
    room, csrc = name.removesuffix("_ladder"), ROOT / "csrc"
    folder = FOLDER / "emulation" / name
    sources = []
    found = [*(csrc / "common").iterdir(), *(csrc / room).rglob("*")]
    for other in BORROWED.get(room, ()):
        found += (csrc / other).rglob("*")
    for other in PLANNED.get(room, ()):
        found += (csrc / other).glob("*.h")
    for path in sorted(found):
        if path.suffix not in (".h", ".cuh", ".cu"):
            continue
        replacement = EMULATION / path.name
        own = replacement if path.parent == csrc / "common" and replacement.exists() else path
        text = own.read_text()
        if "#include <cub/" in text:  # the shim has functions of its own in place of CUB
            continue
        copy = folder / path.relative_to(csrc)
        copy.parent.mkdir(parents=True, exist_ok=True)
        native_build.write_if_changed(copy, translate(text))
        in_ladder = is_ladder(path, room)
        shared = not in_ladder and path.relative_to(csrc).parts[0] == PRODUCTION_STEPS.get(room)
        if path.suffix == ".cu" and (shared or in_ladder == name.endswith("_ladder")):
            sources.append(copy)
    return sources


def copy_headers(folder: Path) -> None:
    """Copies headers whose contents have changed. Unchanged ones keep their time, so ninja compiles nothing for them."""
    for path in (ROOT / "csrc").rglob("*.h"):
        copy = folder / path.relative_to(ROOT / "csrc")
        copy.parent.mkdir(parents=True, exist_ok=True)
        native_build.write_if_changed(copy, path.read_text())


def rule(name: str, command: list[str], depfile: bool = True) -> str:
    depends = " -MMD -MT $out -MF $out.d\n  depfile = $out.d\n  deps = gcc" if depfile else ""
    return f"rule {name}\n  command = {shell(command)} $flags $in -o $out{depends}\n  description = {name} $out"


def cuda_headers() -> tuple[Path, str] | None:
    """The folder of CUDA's headers, which come with nvcc, and their version."""
    try:
        torch = toolchain.find_torch()
        nvcc = toolchain.find_nvcc(torch) if torch else None
        return (toolchain.cuda_include(torch, nvcc), nvcc.version) if nvcc else None
    except BuildError:
        return None


def generate() -> list[str]:
    """Writes the ninja file. Returns the names of the libraries, such as plan/dot. Kernels are left out without CUDA's headers."""
    cxx = toolchain.find_host_compiler()
    cuda = cuda_headers()
    native_build.write_if_changed(FOLDER / "versions", f"{cxx.command} {cxx.version} {cuda}\n")
    plans = {f"plan/{shim.stem.removesuffix('_shim')}": shim for shim in sorted(PLAN.rglob("*_shim.cpp"))}
    plan = [*cxx.command, *FLAGS, *PLAN_FLAGS, *FATAL, f"-I{FOLDER / 'plan'}", "-shared"]
    copy_headers(FOLDER / "plan")
    lines = [native_build.NINJA, rule("plan", plan)]
    lines += [f"build {name}.so: plan {ninja_path(shim)} | versions" for name, shim in plans.items()]
    names = [*plans]
    if cuda:
        # Libraries in one process must not share variables. g++ needs this flag for that, clang does not.
        own = [] if "clang" in cxx.command[-1] else ["-fno-gnu-unique"]
        kernel = [*cxx.command, *FLAGS, *EMULATION_FLAGS, *own, *FATAL, "-isystem", str(cuda[0])]
        lines += [
            rule("header", [*kernel, "-x", "c++-header"]),
            rule("kernel", [*kernel, "-Winvalid-pch", "-include", "emulator.h", "-x", "c++", "-c"]),
            rule("link", [*cxx.command, *FLAGS, *EMULATION_FLAGS, "-shared"], depfile=False),
        ]
        for level in ("-O0", "-O1"):  # The compiler chooses the header that was precompiled with its own flags.
            lines.append(f"build emulator.h.gch/{level}: header {ninja_path(EMULATION / 'emulator.h')} | versions")
            lines.append(f"  flags = {level}")
        for shim in sorted(EMULATION.rglob("*_shim.cpp")):
            name = f"emulation/{shim.stem.removesuffix('_shim')}"
            level = "-O0" if Path(name).name in NOT_OPTIMISED else "-O1"
            objects = []
            for source in [*translate_room(shim), shim]:
                within = source.relative_to(FOLDER / name) if source.is_relative_to(FOLDER) else Path(source.name)
                objects.append(f"{name}/{within}.o")
                lines.append(f"build {objects[-1]}: kernel {ninja_path(source)} | emulator.h.gch/{level} versions")
                lines.append(f"  flags = {level} -I{ninja_path(FOLDER / name)}")
            lines.append(f"build {name}.so: link {' '.join(objects)}")
            names.append(name)
    native_build.write_if_changed(FOLDER / "build.ninja", "\n".join(lines) + "\n")
    return names


@contextlib.contextmanager
def sole_builder() -> Iterator[None]:
    """A lock: other processes wait until this one has finished building."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def libraries() -> list[str]:
    with sole_builder():
        return generate()


def needed(arguments: list[str]) -> list[str]:
    """The libraries of the folders that pytest's arguments name; all if they name no file and no folder."""
    paths = [ROOT / argument.partition("::")[0] for argument in arguments]
    paths = [path for path in paths if path.exists()] or [ROOT]
    return [name for name in libraries() if any((ROOT / "tests" / name).is_relative_to(path) for path in paths)]


def build(*names: str, quiet: bool = True) -> None:
    libraries()
    jobs = os.environ.get("MAX_JOBS", "")
    command = [native_build.find_ninja(), "-C", FOLDER, *([f"-j{jobs}"] if jobs.isdigit() else [])]
    with sole_builder():
        native_build.remove_stale(FOLDER)
        done = subprocess.run([*command, *(f"{name}.so" for name in names)], capture_output=quiet, text=True)
    if done.returncode != 0:
        raise BuildError(f"The C++ of tests did not compile.\n{(done.stdout or '')[:8000]}")


def load(name: str) -> ctypes.CDLL:
    """Loads the library plan/<room>, emulation/<room> or emulation/<room>_ladder. Builds it first if it is out of date."""
    build(name)
    return ctypes.CDLL(str(FOLDER / f"{name}.so"))


if __name__ == "__main__":
    try:
        if names := needed(sys.argv[1:]):
            build(*names, quiet=False)
    except BuildError as error:
        sys.exit(f"gpuopt: {error}")
