"""Builds the native library with ninja: python -m tools.native_build.

One shared object for each minor version of torch and none for each Python: it is a plain library
without Python's ABI, loaded by torch.ops.load_library. The rules that the sources keep are also
the compiler's: .cu files get no torch include path, and nvcc never sees a .cpp.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tools import layout, toolchain
from tools.toolchain import BuildError, HostCompiler, Nvcc, Torch

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = ROOT / "torch_ops" / "lib"
WARNINGS = ["-Wall"]
NINJA = "ninja_required_version = 1.10"
# Headers of torch that are compiled once for all bindings: these take 0.4 of the time then (g++ 12: 10 s for 24).
PRECOMPILED = Path("binding/precompiled.h")


@dataclass(frozen=True)
class Config:
    torch: Torch
    cxx: HostCompiler
    nvcc: Nvcc | None
    archs: tuple[str, ...]
    build_dir: Path

    @property
    def kernel_dir(self) -> Path:
        """Kernels know nothing of torch, so builds for all its versions share their objects. The folder is named after all that they
        depend on beside their sources: builds that differ in that don't make each other's anew."""
        assert self.nvcc
        made_with = shlex.join([*nvcc_command(self), self.nvcc.version, self.cxx.version])
        name = f"kernels-cuda{self.nvcc.version}-{hashlib.sha256(made_with.encode()).hexdigest()[:8]}"
        return self.build_dir.with_name(name)

    @property
    def folders(self) -> list[Path]:
        """What ninja makes, one after the other."""
        return [*([self.kernel_dir] if self.nvcc else []), self.build_dir]

    @property
    def library(self) -> str:
        return f"libgpuopt-torch{self.torch.minor}.so"

    @property
    def facts(self) -> dict[str, object]:
        """What a library cannot tell by itself; kept beside it for the loader and torch_ops.info."""
        return {
            "torch": self.torch.version,
            "cuda": self.torch.cuda if self.nvcc else None,
            "nvcc": self.nvcc.version if self.nvcc else None,
            "architectures": list(self.archs),
            "host_compiler": f"{Path(self.cxx.command[-1]).name} {self.cxx.version}",
        }


def configure() -> Config:
    torch = toolchain.find_torch()
    if torch is None:
        raise BuildError(
            f"torch is not installed for {sys.executable}: install torch 2.11 or newer first, and have pip build with"
            " --no-build-isolation (an isolated build does not see your torch)."
        )
    cxx = toolchain.find_host_compiler()
    nvcc = toolchain.find_nvcc(torch)
    archs = toolchain.choose_archs() if nvcc else ()
    kind = f"cu{torch.cuda.replace('.', '')}" if nvcc and torch.cuda else "cpu"
    return Config(torch, cxx, nvcc, archs, ROOT / "build" / f"torch-{torch.release}-{kind}")


def sources(config: Config) -> list[Path]:
    """Files that only make sense with CUDA are *.cu and *_cuda.cpp; the CPU library goes without."""
    found = [path for ending in ("cpp", "cu") for path in sorted((ROOT / "csrc").rglob(f"*.{ending}"))]
    if config.nvcc is None:
        found = [path for path in found if path.suffix == ".cpp" and not path.stem.endswith("_cuda")]
    return found


def host_flags(config: Config) -> list[str]:
    torch_include = config.torch.root / "include"
    includes = [ROOT / "csrc/binding/compat", torch_include, torch_include / "torch/csrc/api/include"]
    if config.nvcc:
        includes.append(toolchain.cuda_include(config.torch, config.nvcc))
    # Without NDEBUG torch's headers assert on every touch of a tensor, which calls would pay for.
    flags = ["-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", *WARNINGS, f"-I{ROOT / 'csrc'}"]
    # What gcc suspects of torch's small vectors, once they are inlined here, is not so.
    flags.append("-Wno-maybe-uninitialized")
    for folder in includes:
        flags += ["-isystem", str(folder)]
    return flags


def device_flags(config: Config) -> list[str]:
    assert config.nvcc
    return [
        "-std=c++20",
        # The level of the host code, which only launches; device code is always compiled at 3.
        "-O1",
        "-lineinfo",
        *("-ccbin", shutil.which(config.cxx.command[-1]) or config.cxx.command[-1]),
        "-Xcompiler=-fPIC,-fvisibility=hidden," + ",".join(WARNINGS),
        # Two threads of the assembler for a file: after a change it is the only one that compiles. nvcc's
        # own --split-compile would thread the optimiser too, where one compilation in a hundred crashed
        # (CUDA 13.0.88).
        "-Xptxas=-v,-split-compile=2",
        f"-I{ROOT / 'csrc'}",
        *([] if toolchain.may_overlap_launches(config.archs) else ["-DGPUOPT_NO_OVERLAP"]),
        *toolchain.gencode(config.archs, config.nvcc),
    ]


def nvcc_command(config: Config) -> list[str]:
    assert config.nvcc
    return [str(config.nvcc.path), *device_flags(config)]


def link_flags(config: Config) -> list[str]:
    # No run path: torch is always imported first, so its libraries are already there by name, and
    # the file may be carried to a machine where they lie elsewhere.
    flags = ["-shared", "-Wl,--as-needed,-z,defs", f"-L{config.torch.root / 'lib'}", "-ltorch_cpu", "-lc10"]
    if config.nvcc:
        flags += ["-lc10_cuda", str(toolchain.cuda_runtime(config.torch, config.nvcc))]
    return flags


def shell(words: list[str]) -> str:
    """Words for ninja to hand to the shell."""
    return shlex.join(words).replace("$", "$$")


def ninja_path(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def compile_rule(name: str, command: list[str], title: str) -> str:
    # Everything a compiler says is kept beside its object, where tests read warnings and ptxas's
    # account of registers, stack and spills. On the terminal that account would bury the warnings.
    say = "grep -v -e '^ptxas info' -e 'bytes stack frame' -e ': Compile time =' $out.log"
    return (
        f"rule {name}\n"
        f"  command = {shell(command)} $defines -MMD -MF $out.d -c $in -o $out > $out.log 2>&1;"
        f" status=$$?; {say}; exit $$status\n"
        "  depfile = $out.d\n"
        "  deps = gcc\n"
        f"  description = {title} $in_short\n"
    )


def compile_lines(
    rule: str, files: list[Path], defines: dict[str, str], needs: str = ""
) -> tuple[list[str], list[str]]:
    """Ninja's lines for these sources, and their objects. `defines` are by the end of a file's name; `needs` is made before them."""
    lines, objects = [], []
    for source in files:
        short = source.relative_to(ROOT)
        objects.append(ninja_path(object_path(short)))
        lines.append(f"build {objects[-1]}: {rule} {ninja_path(source)} | {rule}.version {needs}".rstrip())
        lines.append(f"  in_short = {ninja_path(short)}")
        lines += [f"  defines = {words}" for ending, words in defines.items() if source.name.endswith(ending)]
    return lines, objects


def object_path(source: Path) -> Path:
    return Path("obj", f"{source.relative_to('csrc')}.o")


def kernels_text(config: Config) -> str:
    """What is in `kernel_dir`: the target `kernels`."""
    lines, objects = compile_lines("nvcc", [path for path in sources(config) if path.suffix == ".cu"], {})
    rule = compile_rule("nvcc", nvcc_command(config), "CUDA")
    return "\n".join([NINJA, rule, *lines, f"build kernels: phony {' '.join(objects)}", "default kernels"]) + "\n"


def ninja_text(config: Config) -> str:
    """What is in `build_dir`: the library, which is linked with the kernels of `kernel_dir`."""
    defines = {"_cuda.cpp": shell([f'-DGPUOPT_CUDA_ARCHS="{",".join(config.archs)}"'])}
    bindings = [path for path in sources(config) if path.suffix == ".cpp"]
    # The compiler looks here first for the header to include, and takes the compiled one in its place.
    compiled = f"{PRECOMPILED}.gch"
    lines, objects = compile_lines("cxx", bindings, defines, compiled)
    lines += [
        f"build {compiled}: cxx_header {ninja_path(ROOT / 'csrc' / PRECOMPILED)} | cxx.version",
        f"  in_short = {Path('csrc', PRECOMPILED)}",
    ]
    if config.nvcc:
        kernels = [
            config.kernel_dir / object_path(path.relative_to(ROOT)) for path in sources(config) if path.suffix == ".cu"
        ]
        objects += [ninja_path(Path(os.path.relpath(path, config.build_dir))) for path in kernels]
    compiler = [*config.cxx.command, *host_flags(config)]
    rules = [
        compile_rule("cxx", [*compiler, "-Winvalid-pch", "-include", str(PRECOMPILED)], "C++ "),
        compile_rule("cxx_header", [*compiler, "-x", "c++-header"], "C++ "),
        "rule link\n"
        f"  command = {shell(list(config.cxx.command))} $in {shell(link_flags(config))} -o $out\n"
        "  description = link $out\n",
    ]
    last = [f"build {config.library}: link {' '.join(objects)}", f"default {config.library}"]
    return "\n".join([NINJA, *rules, *lines, *last, *header_text(config)]) + "\n"


def header_text(config: Config) -> list[str]:
    """The target `headers`: each torch-free header compiled alone, as the first line of an empty file."""
    if config.nvcc is None:
        return []
    cuda = ["-isystem", str(toolchain.cuda_include(config.torch, config.nvcc))]
    host = ["-std=c++20", *WARNINGS, "-Werror", f"-I{ROOT / 'csrc'}", *cuda, "-x", "c++"]
    lines, objects = [], []
    for name, command in (("h", [*config.cxx.command, *host]), ("cuh", [*nvcc_command(config), "-x", "cu"])):
        lines.append(
            f"rule header_{name}\n"
            f"  command = {shell(command)} -include $in -MMD -MF $out.d -c /dev/null -o $out > $out.log 2>&1"
            " || { cat $out.log; exit 1; }\n"
            "  depfile = $out.d\n"
            "  deps = gcc\n"
            "  description = header $in_short alone\n"
        )
    for header in layout.torch_free_headers():
        short = header.relative_to(ROOT)
        objects.append(ninja_path(Path("headers", f"{short.relative_to('csrc')}.o")))
        version = "nvcc.version" if header.suffix == ".cuh" else "cxx.version"
        lines.append(f"build {objects[-1]}: header_{header.suffix[1:]} {ninja_path(header)} | {version}")
        lines.append(f"  in_short = {ninja_path(short)}")
    lines.append(f"build headers: phony {' '.join(objects)}")
    return lines


def write_if_changed(path: Path, text: str) -> bool:
    if path.exists() and path.read_text() == text:
        return False
    path.write_text(text)
    return True


def find_ninja() -> str:
    beside = os.path.dirname(sys.executable)
    ninja = shutil.which("ninja", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if ninja is None:
        raise BuildError(f"ninja was not found for {sys.executable}: pip install ninja.")
    return ninja


def generate(config: Config) -> None:
    for folder in config.folders:
        # Objects depend on these, so another compiler at the same path compiles anew.
        write_if_changed(folder / "cxx.version", f"{shlex.join(config.cxx.command)} {config.cxx.version}\n")
        if config.nvcc:
            write_if_changed(folder / "nvcc.version", f"{config.nvcc.version}, host {config.cxx.version}\n")
        text = ninja_text(config) if folder == config.build_dir else kernels_text(config)
        if write_if_changed(folder / "build.ninja", text):
            commands = toolchain.output_of(find_ninja(), "-C", folder, "-t", "compdb")
            (folder / "compile_commands.json").write_text(commands)


@contextlib.contextmanager
def sole_builder(config: Config) -> Iterator[None]:
    """Keeps a second build out of the folders: two at once would write the same objects and logs."""
    with contextlib.ExitStack() as stack:
        for folder in config.folders:
            folder.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(folder / "lock", "w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"gpuopt: waiting for another build in {folder}", flush=True)
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_ninja(folder: Path, *targets: str) -> None:
    """The folder's default target, or these."""
    jobs = os.environ.get("MAX_JOBS", "")
    command = [find_ninja(), *([f"-j{jobs}"] if jobs.isdigit() else []), *targets]
    environment = {"NINJA_STATUS": "[%f/%t, %es] ", **os.environ}
    if subprocess.run(command, cwd=folder, env=environment).returncode != 0:
        raise BuildError("The build failed; the compiler's messages are above.")


def up_to_date(config: Config) -> bool:
    with sole_builder(config):
        generate(config)
        said = [toolchain.output_of(find_ninja(), "-C", folder, "-n") for folder in config.folders]
    return all("no work to do" in text for text in said)


def install(config: Config, folder: Path) -> None:
    """Puts the library and its facts into the folder, if they are not there already."""
    built = config.build_dir / config.library
    library = folder / built.name
    notes = library.with_suffix(".json")
    try:
        known = json.loads(notes.read_text())
    except (OSError, ValueError):
        known = {}
    stamp = built.stat().st_mtime_ns
    if library.exists() and library.stat().st_mtime_ns == stamp and config.facts.items() <= known.items():
        return
    folder.mkdir(parents=True, exist_ok=True)
    # A process may have the old file mapped: put the new one in its place instead of writing into it.
    fresh = library.with_suffix(".new")
    shutil.copy2(built, fresh)
    os.replace(fresh, library)
    time = datetime.datetime.fromtimestamp(built.stat().st_mtime, datetime.timezone.utc)
    notes.write_text(json.dumps({**config.facts, "built": time.isoformat(timespec="seconds")}, indent=2) + "\n")
    if config.nvcc:
        kernels = f"CUDA {config.nvcc.version} kernels for compute capability {', '.join(config.archs)}"
    elif config.torch.cuda:
        kernels = (
            f"no nvcc for CUDA {config.torch.cuda_major} was found, so this is the CPU library, without GPU kernels"
        )
    else:
        kernels = "this torch has no CUDA, so this is the CPU library, without GPU kernels"
    print(f"gpuopt for torch {config.torch.minor} is built: {kernels}.")


def build(folder: Path = INSTALLED) -> Config:
    config = configure()
    with sole_builder(config):
        generate(config)
        for made in config.folders:
            run_ninja(made)
        install(config, folder)
    return config


def warnings(config: Config) -> list[str]:
    """What the compilers complained about in this build's folders."""
    found = []
    for log in sorted(log for folder in config.folders for log in folder.glob("obj/**/*.log")):
        found += [f"{log.stem}: {line}" for line in log.read_text().splitlines() if "warning" in line.lower()]
    return found


def check_release() -> None:
    """Compiles the kernels for every architecture of a release and links nothing."""
    config = configure()
    if config.nvcc is None:
        raise BuildError(f"The release check needs nvcc for CUDA {config.torch.cuda_major}, and none was found.")
    config = replace(
        config, archs=toolchain.RELEASE_ARCHS, build_dir=config.build_dir.with_name(config.build_dir.name + "-release")
    )
    with sole_builder(config):
        generate(config)
        run_ninja(config.kernel_dir)
    if found := warnings(config):
        raise BuildError("Compiling for a release gave warnings:\n" + "\n".join(found))
    print(f"The kernels compile for {', '.join(config.archs)} without a warning.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.native_build", description=__doc__.split("\n")[0])
    parser.add_argument("--release", action="store_true", help="only check that all architectures of a release compile")
    try:
        check_release() if parser.parse_args().release else build()
    except BuildError as error:
        sys.exit(f"gpuopt: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
