"""Builds the C++ that tests load, with ninja: python -m tools.test_build.

Each tests/plan/<room>_shim.cpp becomes a library with the launch plans of a room. Each
tests/emulation/<room>_shim.cpp becomes one with its kernels, compiled for the CPU on top of
emulator.h. A <room>_ladder_shim.cpp takes the kernels of a room's ladder.
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
# Arithmetic that overflows ends the tests.
PLAN_FLAGS = ["-O1", "-Wall", "-Werror", "-fsanitize=signed-integer-overflow,integer-divide-by-zero"]
# A GPU faults where a vector is read or written at an address that isn't aligned to it; so does this. Without -Wall: g++ takes CUDA's
# attributes for unknown ones.
EMULATION_FLAGS = ["-w", "-fsanitize=alignment"]
# Rooms of many instances, whose tests run few threads: these take longer to optimise than to run.
NOT_OPTIMISED = ("elementwise", "reduce")
FATAL = ["-fno-sanitize-recover=all"]
LAUNCH = re.compile(r"(?P<kernel>[\w:]+(?:<[^;{}()]*?>)?)\s*<<<(?P<shape>[^;]*?)>>>\((?P<arguments>[^;]*)\);")
SHARED = re.compile(r"(?<!extern )__shared__ ([\w:<>, ]+) (\w+)((?:\[[^];]+\])+);")
# What a shim assigns to: constants, and NAME of members' defaults as default_NAME.
ASSIGNED = re.compile(r"(?:^ |\{) (?:\w+::)*(?:default_(?=[a-z])|(?=k[A-Z]))(\w+) = ", re.MULTILINE)


def translate(source: str, variables: list[str]) -> str:
    """Rewrites what is not C++: kernel<<<shape>>>(arguments), and arrays that the threads of a block share. The constants and defaults in
    `variables` become variables, as small problems would not reach these limits."""
    source = LAUNCH.sub(r"::emulator::launch(\g<shape>, [&] { \g<kernel>(\g<arguments>); });", source)
    source = SHARED.sub(r"static ::emulator::Guarded<\1\3> \2_guarded; auto& \2 = \2_guarded.array;", source)
    source = re.sub(r"(?<!extern )__shared__ ", "static ", source)
    source = re.sub(r"\bconstexpr (Tuning \w+\()", r"inline \1", source)
    for name in variables:
        source = re.sub(rf"\bconstexpr (\w+ {name} =)", r"inline \1", source)
        member = rf"^  (\w+) {name} =\s+([^;,]+)"
        source = re.sub(
            member, rf"  static inline \1 default_{name} = \2; \1 {name} = default_{name}", source, flags=re.M
        )
    return source


def is_ladder(path: Path, room: str) -> bool:
    return path.stem.endswith("_ladder") or path.parent.relative_to(ROOT / "csrc" / room) == Path("ladder")


def translate_room(shim: Path) -> list[Path]:
    """Writes the translated sources of a shim's room into a folder of its own. Returns those that are compiled."""
    name = shim.stem.removesuffix("_shim")
    room, csrc = name.removesuffix("_ladder"), ROOT / "csrc"
    folder = FOLDER / "emulation" / name
    variables = ASSIGNED.findall(shim.read_text())
    sources = []
    for path in sorted([*(csrc / "common").iterdir(), *(csrc / room).rglob("*")]):
        if path.suffix not in (".h", ".cuh", ".cu"):
            continue
        own = EMULATION / "launch.cuh" if path == csrc / "common" / "launch.cuh" else path
        copy = folder / path.relative_to(csrc)
        copy.parent.mkdir(parents=True, exist_ok=True)
        native_build.write_if_changed(copy, translate(own.read_text(), variables))
        if path.suffix == ".cu" and is_ladder(path, room) == name.endswith("_ladder"):
            sources.append(copy)
    return sources


def copy_headers(folder: Path) -> None:
    """Copies, so that what is compiled depends on contents alone, not on the times of files."""
    for path in (ROOT / "csrc").rglob("*.h"):
        copy = folder / path.relative_to(ROOT / "csrc")
        copy.parent.mkdir(parents=True, exist_ok=True)
        native_build.write_if_changed(copy, path.read_text())


def rule(name: str, command: list[str], depfile: bool = True) -> str:
    depends = " -MMD -MT $out -MF $out.d\n  depfile = $out.d\n  deps = gcc" if depfile else ""
    return f"rule {name}\n  command = {shell(command)} $flags $in -o $out{depends}\n  description = {name} $out"


def cuda_headers() -> tuple[Path, str] | None:
    """The folder of CUDA's headers and their version. They come with nvcc."""
    try:
        torch = toolchain.find_torch()
        nvcc = toolchain.find_nvcc(torch) if torch else None
        return (toolchain.cuda_include(torch, nvcc), nvcc.version) if nvcc else None
    except BuildError:
        return None


def generate() -> list[str]:
    """Writes what ninja reads. Returns the names of the libraries, as in plan/dot; those of kernels only if there are CUDA's headers."""
    cxx = toolchain.find_host_compiler()
    cuda = cuda_headers()
    native_build.write_if_changed(FOLDER / "versions", f"{cxx.command} {cxx.version} {cuda}\n")
    names = [f"plan/{shim.stem.removesuffix('_shim')}" for shim in sorted(PLAN.glob("*_shim.cpp"))]
    plan = [*cxx.command, *FLAGS, *PLAN_FLAGS, *FATAL, f"-I{FOLDER / 'plan'}", "-shared"]
    copy_headers(FOLDER / "plan")
    lines = [native_build.NINJA, rule("plan", plan)]
    lines += [f"build {name}.so: plan {ninja_path(ROOT / f'tests/{name}_shim.cpp')} | versions" for name in names]
    if cuda:
        # Libraries in one process share no variables. Those of clang never do.
        own = [] if "clang" in cxx.command[-1] else ["-fno-gnu-unique"]
        kernel = [*cxx.command, *FLAGS, *EMULATION_FLAGS, *own, *FATAL, "-isystem", str(cuda[0])]
        lines += [
            rule("header", [*kernel, "-x", "c++-header"]),
            rule("kernel", [*kernel, "-Winvalid-pch", "-include", "emulator.h", "-x", "c++", "-c"]),
            rule("link", [*cxx.command, *FLAGS, *EMULATION_FLAGS, "-shared"], depfile=False),
        ]
        for level in ("-O0", "-O1"):  # The compiler takes the one that was made with its flags.
            lines.append(f"build emulator.h.gch/{level}: header {ninja_path(EMULATION / 'emulator.h')} | versions")
            lines.append(f"  flags = {level}")
        for shim in sorted(EMULATION.glob("*_shim.cpp")):
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
    """Other processes wait until this one has built."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@functools.cache
def libraries() -> list[str]:
    with sole_builder():
        return generate()


def build(*names: str) -> None:
    """These libraries, or all."""
    libraries()
    jobs = os.environ.get("MAX_JOBS", "")
    command = [native_build.find_ninja(), "-C", FOLDER, *([f"-j{jobs}"] if jobs.isdigit() else [])]
    with sole_builder():
        done = subprocess.run([*command, *(f"{name}.so" for name in names)], capture_output=bool(names), text=True)
    if done.returncode != 0:
        raise BuildError(f"The C++ of tests did not compile.\n{(done.stdout or '')[:8000]}")


def load(name: str) -> ctypes.CDLL:
    """The library plan/<room>, emulation/<room> or emulation/<room>_ladder, built if it isn't up to date."""
    build(name)
    return ctypes.CDLL(str(FOLDER / f"{name}.so"))


if __name__ == "__main__":
    try:
        build()
    except BuildError as error:
        sys.exit(f"gpuopt: {error}")
