"""Builds a room's launchers and kernels for the CPU, on top of emulator.h."""

from __future__ import annotations

import ctypes
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tools import native_build, toolchain
from tools.native_build import Config
from tools.toolchain import BuildError

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
LAUNCH = re.compile(r"(?P<kernel>[\w:]+(?:<[^;{}()]*?>)?)\s*<<<(?P<shape>[^;]*?)>>>\((?P<arguments>[^;]*)\);")

SHARED = re.compile(r"(?<!extern )__shared__ ([\w:<>, ]+) (\w+)((?:\[[^];]+\])+);")


def translate(source: str, variables: tuple[str, ...]) -> str:
    """What is not C++: kernel<<<shape>>>(arguments), and arrays that the threads of a block share."""
    source = LAUNCH.sub(r"::emulator::launch(\g<shape>, [&] { \g<kernel>(\g<arguments>); });", source)
    source = SHARED.sub(r"static ::emulator::Guarded<\1\3> \2_guarded; auto& \2 = \2_guarded.array;", source)
    source = re.sub(r"(?<!extern )__shared__ ", "static ", source)
    for name in variables:
        source = re.sub(rf"\bconstexpr (\w+ {name}(?: =|\())", r"inline \1", source)
        # A member's default becomes a variable.
        member = rf"^  (\w+) {name} =\s+([^;,]+)"
        source = re.sub(
            member, rf"  static inline \1 default_{name} = \2; \1 {name} = default_{name}", source, flags=re.M
        )
    return source


def build(
    room: str, config: Config, cuda_include: Path, folder: Path, variables: tuple[str, ...] = (), ladder: bool = False
) -> Path:
    """Returns the shared library made from the room's .cu files and <room>_shim.cpp, or with `ladder` from <room>_ladder.cu and
    <room>_ladder_shim.cpp. `variables` are constants of the room that the shim
    may assign to, for limits that small problems would not reach; functions that are constant no more; and members NAME of its structs
    whose defaults the shim may assign to as default_NAME."""
    for path in [*CSRC.glob("common/*"), *CSRC.glob(f"{room}/*")]:
        if path.suffix in (".h", ".cuh", ".cu"):
            copy = folder / path.relative_to(CSRC)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(translate(path.read_text(), variables))
    (folder / "common" / "launch.cuh").write_text((HERE / "launch.cuh").read_text())
    # A GPU faults where a pack is read or written at an address that isn't aligned to it; so does this.
    checks = ["-fsanitize=alignment", "-fno-sanitize-recover=alignment"]
    # Not -Wall: g++ takes CUDA's attributes for unknown ones.
    compiler = [
        *config.cxx.command,
        "-std=c++20",
        "-O1",
        "-w",
        "-fPIC",
        *checks,
        f"-I{folder}",
        "-isystem",
        str(cuda_include),
    ]

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        command = [*compiler, "-include", HERE / "emulator.h", "-x", "c++", "-c", source, "-o", made]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{source.name} does not compile for the CPU:\n{done.stderr[:4000]}"
        return made

    ours = [path for path in sorted((folder / room).glob("*.cu")) if path.stem.endswith("_ladder") == ladder]
    sources = [*ours, HERE / (f"{room}_ladder_shim.cpp" if ladder else f"{room}_shim.cpp")]
    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, sources))
    library = folder / f"{sources[-1].stem}.so"
    subprocess.run([*config.cxx.command, *checks, "-shared", *objects, "-o", library], check=True)
    return library


def load(room: str, folder: Path, variables: tuple[str, ...] = (), ladder: bool = False) -> ctypes.CDLL:
    """The room's library, or its ladder's, built in `folder`. Skips the test where CUDA's headers are missing."""
    try:
        config = native_build.configure()
        if config.nvcc is None:
            pytest.skip("CUDA's headers come with nvcc, and there is none")
        include = toolchain.cuda_include(config.torch, config.nvcc)
    except BuildError as error:
        pytest.skip(str(error))
    return ctypes.CDLL(str(build(room, config, include, folder, variables, ladder)))
