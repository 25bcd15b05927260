"""Builds the native libraries with ninja: python -m tools.native_build.

There are two kinds of library. The kernels do not depend on torch. The bindings are one library per minor version of torch.
Neither uses Python's ABI: torch.ops.load_library loads the bindings, and these are linked with the kernels.
The compiler enforces the separation: .cu files get no include path of torch, and nvcc never sees a .cpp file.
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
from dataclasses import dataclass
from pathlib import Path

from . import layout, toolchain
from .toolchain import BuildError, HostCompiler, Nvcc, Torch

ROOT = Path(__file__).resolve().parent.parent
INSTALLED = ROOT / "torch_ops" / "lib"
KERNELS = "libgpuopt_kernels.so"
WARNINGS = ["-Wall"]
NINJA = "ninja_required_version = 1.10"
# Torch's headers, precompiled once for all bindings, which then compile in 0.4 of the time (g++ 12: 10 s instead of 24 s).
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
        """The folder of the kernels, which builds for all versions of torch share.

        Its name is a hash of the flags and compiler versions, so that builds with other flags do not overwrite each other. The path
        of nvcc is left out: environments that have the same nvcc share the kernels.
        """
        assert self.nvcc
        made_with = shlex.join([*device_flags(self, self.archs), self.nvcc.version, self.cxx.version])
        name = f"kernels-cuda{self.nvcc.version}-{hashlib.sha256(made_with.encode()).hexdigest()[:8]}"
        return self.build_dir.with_name(name)

    @property
    def folders(self) -> list[Path]:
        """The folders that ninja builds, in this order."""
        return [*([self.kernel_dir] if self.nvcc else []), self.build_dir]

    @property
    def library(self) -> str:
        return f"libgpuopt-torch{self.torch.minor}.so"

    @property
    def facts(self) -> dict[Path, dict[str, object]]:
        """The libraries, each with the versions it was built with. They are stored in a file beside the library, which the loader
        and torch_ops.info read."""
        host = f"{Path(self.cxx.command[-1]).name} {self.cxx.version}"
        cuda = self.torch.cuda if self.nvcc else None
        found: dict[Path, dict[str, object]] = {
            self.build_dir / self.library: {"torch": self.torch.version, "cuda": cuda, "host_compiler": host}
        }
        if self.nvcc:
            found[self.kernel_dir / KERNELS] = {"nvcc": self.nvcc.version, "architectures": list(self.archs)}
        return found


def configure(without_gpu: tuple[str, ...] = toolchain.DEFAULT_ARCHS) -> Config:
    """What to build here. `without_gpu` are the architectures for a machine without a GPU, if TORCH_CUDA_ARCH_LIST names none."""
    torch = toolchain.find_torch()
    if torch is None:
        raise BuildError(
            f"torch is not installed for {sys.executable}: install torch 2.11 or newer first, and have pip build with"
            " --no-build-isolation (an isolated build does not see your torch)."
        )
    cxx = toolchain.find_host_compiler()
    nvcc = toolchain.choose_nvcc(torch)
    archs = toolchain.choose_archs(nvcc, without_gpu) if nvcc else ()
    return Config(torch, cxx, nvcc, archs, build_dir(torch, nvcc is not None))


def build_dir(torch: Torch, cuda: bool) -> Path:
    kind = f"cu{torch.cuda.replace('.', '')}" if cuda and torch.cuda else "cpu"
    return ROOT / "build" / f"torch-{torch.release}-{kind}"


def kernel_sources() -> list[Path]:
    return sorted((ROOT / "csrc").rglob("*.cu"))


def binding_units(cuda: bool) -> dict[str, str]:
    """The translation units of the bindings: their names and texts. One unit includes all .cpp files of one kind, which compiles in
    a third of the time (g++ 12, 2 cores: 30 s instead of 110 s). A library for the CPU leaves *_cuda.cpp out."""
    units: dict[str, list[str]] = {}
    for path in sorted((ROOT / "csrc").rglob("*.cpp")):
        kind = path.stem.rpartition("_")[2]
        if kind == "cuda" and not cuda:
            continue
        if "ladder" in path.stem or kind not in ("cuda", "grad", "op", "transform"):
            kind = "ladder" if "ladder" in path.stem else "more"
        units.setdefault(kind, []).append(f'#include "{path.relative_to(ROOT / "csrc")}"\n')
    return {kind: "".join(lines) for kind, lines in units.items()}


def host_flags(torch: Torch, cuda_include: Path | None) -> list[str]:
    includes = [ROOT / "csrc/binding/compat", torch.root / "include", torch.root / "include/torch/csrc/api/include"]
    if cuda_include:
        includes.append(cuda_include)
    # Without NDEBUG, torch's headers run an assertion at every use of a tensor, and every call is slower.
    flags = ["-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-fvisibility=hidden", *WARNINGS, f"-I{ROOT / 'csrc'}"]
    # gcc reports uninitialised values in torch's small vectors when it inlines them. The reports are false.
    flags.append("-Wno-maybe-uninitialized")
    for folder in includes:
        flags += ["-isystem", str(folder)]
    return flags


def archs_of(source: Path, archs: tuple[str, ...]) -> tuple[str, ...]:
    """The architectures that a source is compiled for.

    Instructions of 9.0a alone (wgmma) stand in files whose names end in _sm90a. Their kernels run on no other GPU, so a build with
    9.0 compiles them for 9.0a only. Other builds have their launchers, with kernels that are never launched.
    """
    return ("9.0a",) if source.stem.endswith("_sm90a") and any(arch.startswith("9.0") for arch in archs) else archs


def device_flags(config: Config, archs: tuple[str, ...]) -> list[str]:
    assert config.nvcc
    return [
        "-std=c++20",
        # This level is for host code, which only launches kernels. nvcc always compiles device code at level 3.
        "-O1",
        # Line information doubles the size of an object, so it is added only on request, for profilers.
        *(["-lineinfo"] if os.environ.get("GPUOPT_LINEINFO") else []),
        "--compress-mode=size",
        *("-ccbin", shutil.which(config.cxx.command[-1]) or config.cxx.command[-1]),
        "-Xcompiler=-fPIC,-fvisibility=hidden," + ",".join(WARNINGS),
        # Two assembler threads per file: after a change to one file, only that file compiles. nvcc's own
        # --split-compile also threads the optimiser, and one compilation in a hundred then crashes
        # (CUDA 13.0.88).
        "-Xptxas=-v,-split-compile=2",
        f"-I{ROOT / 'csrc'}",
        f'-DGPUOPT_CUDA_ARCHS="{", ".join(config.archs)}"',
        *([] if toolchain.may_overlap_launches(config.archs) else ["-DGPUOPT_NO_OVERLAP"]),
        *toolchain.gencode(archs, config.nvcc),
    ]


def nvcc_command(config: Config, archs: tuple[str, ...] | None = None) -> list[str]:
    """The script that calls nvcc, with all flags. Ninja compiles anew if a command changes, so the command does not name nvcc itself."""
    return [str(config.kernel_dir / "nvcc"), *device_flags(config, archs or config.archs)]


# -z now binds all symbols when a library is loaded, so that a missing symbol is reported then and not at the first call.
LINK = ["-shared", "-s", "-Wl,--as-needed", "-Wl,-z,defs", "-Wl,-z,now"]


def kernels_link_flags(config: Config) -> list[str]:
    """Links a private CUDA runtime and hides its symbols, because torch's runtime may be another minor version."""
    assert config.nvcc
    runtime = toolchain.static_cuda_runtime(config.torch, config.nvcc)
    names = [f"-Wl,-soname,{KERNELS}", f"-Wl,--version-script={ROOT / 'csrc/binding/kernels_library.map'}"]
    return [*LINK, *names, str(runtime), "-lpthread", "-ldl", "-lrt"]


def binding_link_flags(torch: Torch, kernels: Path | None, cuda_runtime: Path | None) -> list[str]:
    # No path to torch's libraries is needed: torch is always imported first, so they are loaded already. The bindings therefore
    # work on a machine where torch is installed elsewhere. The library of kernels lies beside the bindings.
    flags = [*LINK, f"-L{torch.root / 'lib'}", "-ltorch_cpu", "-lc10"]
    if kernels and cuda_runtime:
        flags += ["-lc10_cuda", str(cuda_runtime), str(kernels), "-Wl,-rpath,$ORIGIN"]
    return flags


def shell(words: list[str]) -> str:
    """Quotes words for the shell, in a form that ninja passes on unchanged."""
    return shlex.join(words).replace("$", "$$")


def ninja_path(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def compile_rule(name: str, command: list[str], title: str) -> str:
    # A compiler's whole output is written beside its object. Tests read the warnings and ptxas's report on registers,
    # stack and spills there. The terminal shows the warnings only.
    say = "grep -v -e '^ptxas info' -e 'bytes stack frame' -e ': Compile time =' $out.log"
    return (
        f"rule {name}\n"
        f"  command = {shell(command)} -MMD -MF $out.d -c $in -o $out > $out.log 2>&1;"
        f" status=$$?; {say}; exit $$status\n"
        "  depfile = $out.d\n"
        "  deps = gcc\n"
        f"  description = {title} $in_short\n"
    )


def compile_lines(rule: str, sources: list[Path], needs: str = "") -> tuple[list[str], list[str]]:
    """Ninja's lines that compile these sources, and the names of the objects. `needs` is built first."""
    lines, objects = [], []
    compiler = rule.partition("_")[0]
    for source in sources:
        objects.append(ninja_path(object_path(source)))
        lines.append(f"build {objects[-1]}: {rule} {ninja_path(source)} | {compiler}.version {needs}".rstrip())
        lines.append(f"  in_short = {ninja_path(Path(os.path.relpath(source, ROOT)))}")
    return lines, objects


def object_path(source: Path) -> Path:
    csrc = ROOT / "csrc"
    return Path("obj", f"{source.relative_to(csrc) if source.is_relative_to(csrc) else source.name}.o")


def link_rule(config: Config, flags: list[str]) -> str:
    return (
        "rule link\n"
        f"  command = {shell(list(config.cxx.command))} $in {shell(flags)} -o $out\n"
        "  description = link $out\n"
    )


def kernels_text(config: Config) -> str:
    """The ninja file of `kernel_dir`, which builds the library of kernels."""
    lines, objects, rules = [], [], [link_rule(config, kernels_link_flags(config))]
    sources: dict[tuple[str, ...], list[Path]] = {}
    for source in kernel_sources():
        sources.setdefault(archs_of(source, config.archs), []).append(source)
    for archs, paths in sources.items():
        rule = "nvcc" if archs == config.archs else "nvcc_sm90a"
        rules.append(compile_rule(rule, nvcc_command(config, archs), "CUDA"))
        found, built = compile_lines(rule, paths)
        lines += found
        objects += built
    last = [f"build {KERNELS}: link {' '.join(objects)}", f"default {KERNELS}"]
    return "\n".join([NINJA, *rules, *lines, *last]) + "\n"


def ninja_text(config: Config) -> str:
    """The ninja file of `build_dir`, which builds the bindings and links them with the library in `kernel_dir`."""
    include = runtime = kernels = None
    if config.nvcc:
        include = toolchain.cuda_include(config.torch, config.nvcc)
        runtime = toolchain.cuda_runtime(config.torch, config.nvcc)
        kernels = config.kernel_dir / KERNELS
    units = [config.build_dir / f"{kind}.cpp" for kind in binding_units(config.nvcc is not None)]
    # gcc searches this folder first for the header and finds the precompiled version of it.
    compiled = f"{PRECOMPILED}.gch"
    lines, objects = compile_lines("cxx", units, compiled)
    lines += [
        f"build {compiled}: cxx_header {ninja_path(ROOT / 'csrc' / PRECOMPILED)} | cxx.version",
        f"  in_short = {Path('csrc', PRECOMPILED)}",
    ]
    compiler = [*config.cxx.command, *host_flags(config.torch, include)]
    rules = [
        compile_rule("cxx", [*compiler, "-Winvalid-pch", "-include", str(PRECOMPILED)], "C++ "),
        compile_rule("cxx_header", [*compiler, "-x", "c++-header"], "C++ "),
        link_rule(config, binding_link_flags(config.torch, kernels, runtime)),
    ]
    needs = f" | {ninja_path(kernels)}" if kernels else ""
    last = [f"build {config.library}: link {' '.join(objects)}{needs}", f"default {config.library}"]
    return "\n".join([NINJA, *rules, *lines, *last, *header_text(config)]) + "\n"


def header_text(config: Config) -> list[str]:
    """The target `headers`, which compiles each torch-free header alone, to show that it includes all it needs."""
    if config.nvcc is None:
        return []
    cuda = ["-isystem", str(toolchain.cuda_include(config.torch, config.nvcc))]
    host = ["-std=c++20", *WARNINGS, "-Werror", f"-I{ROOT / 'csrc'}", *cuda, "-x", "c++"]
    lines, objects = [], []
    # Generating no machine code is faster, and missing includes are found all the same.
    ptx = [word for word in nvcc_command(config) if not word.startswith(("-gencode", "-Xptxas"))]
    ptx += ["-arch=compute_90", "-ptx", "-x", "cu"]
    for name, command in (("h", [*config.cxx.command, *host, "-c"]), ("cuh", ptx)):
        lines.append(
            f"rule header_{name}\n"
            f"  command = {shell(command)} -include $in -MMD -MF $out.d /dev/null -o $out > $out.log 2>&1"
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
    if config.nvcc:
        compiler = config.kernel_dir / "nvcc"
        write_if_changed(compiler, f'#!/bin/sh\nexec {shlex.quote(str(config.nvcc.path))} "$@"\n')
        compiler.chmod(0o755)
    for folder in config.folders:
        # Objects depend on these files, so that another compiler at the same path triggers a rebuild.
        write_if_changed(folder / "cxx.version", f"{shlex.join(config.cxx.command)} {config.cxx.version}\n")
        if config.nvcc:
            write_if_changed(folder / "nvcc.version", f"{config.nvcc.version}, host {config.cxx.version}\n")
        if folder == config.build_dir:
            for kind, text in binding_units(config.nvcc is not None).items():
                write_if_changed(folder / f"{kind}.cpp", text)
        text = ninja_text(config) if folder == config.build_dir else kernels_text(config)
        if write_if_changed(folder / "build.ninja", text):
            commands = toolchain.output_of(find_ninja(), "-C", folder, "-t", "compdb")
            (folder / "compile_commands.json").write_text(commands)


@contextlib.contextmanager
def sole_builder(config: Config) -> Iterator[None]:
    """Locks the folders, because two builds at once would write the same objects and logs."""
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


def without_sources(folder: Path) -> list[Path]:
    """Outputs for which ninja has noted no dependencies: the compiler has left no list of the files that it read."""
    lines = toolchain.output_of(find_ninja(), "-C", folder, "-t", "deps").splitlines()
    return [folder / line.partition(": #deps 0,")[0] for line in lines if ": #deps 0," in line]


def remove_stale(folder: Path) -> None:
    """Removes outputs without known dependencies, so that they are built anew. A changed header would not do that."""
    for output in without_sources(folder):
        output.unlink(missing_ok=True)


def run_ninja(folder: Path, *targets: str) -> None:
    """Builds the targets, or the folder's default target."""
    remove_stale(folder)
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


def install(built: Path, facts: dict[str, object], folder: Path) -> bool:
    """Copies a library and its facts into the folder. Returns False if the same ones are there already."""
    library = folder / built.name
    notes = library.with_suffix(".json")
    try:
        known = json.loads(notes.read_text())
    except (OSError, ValueError):
        known = {}
    stamp = built.stat().st_mtime_ns
    if library.exists() and library.stat().st_mtime_ns == stamp and facts.items() <= known.items():
        return False
    folder.mkdir(parents=True, exist_ok=True)
    # Replace the file and do not write into it: a process may have the old one mapped.
    fresh = library.with_suffix(".new")
    shutil.copy2(built, fresh)
    os.replace(fresh, library)
    time = datetime.datetime.fromtimestamp(built.stat().st_mtime, datetime.timezone.utc)
    notes.write_text(json.dumps({**facts, "built": time.isoformat(timespec="seconds")}, indent=2) + "\n")
    return True


def describe(config: Config) -> str:
    if config.nvcc:
        return f"CUDA {config.nvcc.version} kernels for compute capability {', '.join(config.archs)}"
    reason = "GPUOPT_CPU_ONLY is set" if config.torch.cuda else "this torch has no CUDA"
    return f"the CPU library, without GPU kernels, because {reason}"


def make(config: Config) -> None:
    with sole_builder(config):
        generate(config)
        print(f"gpuopt: building for torch {config.torch.version}: {describe(config)}", flush=True)
        for folder in config.folders:
            run_ninja(folder)


def build(folder: Path = INSTALLED, without_gpu: tuple[str, ...] = toolchain.DEFAULT_ARCHS) -> Config:
    config = configure(without_gpu)
    make(config)
    with sole_builder(config):
        changed = [install(built, facts, folder) for built, facts in config.facts.items()]
        if any(changed):
            print(f"gpuopt: built for torch {config.torch.minor}")
    return config


def warnings(config: Config) -> list[str]:
    """All compiler warnings in the logs of this build."""
    found = []
    for log in sorted(log for folder in config.folders for log in folder.glob("obj/**/*.log")):
        found += [f"{log.stem}: {line}" for line in log.read_text().splitlines() if "warning" in line.lower()]
    return found


def main() -> None:
    argparse.ArgumentParser(prog="python -m tools.native_build", description=__doc__.split("\n")[0]).parse_args()
    try:
        build()
    except BuildError as error:
        sys.exit(f"gpuopt: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
