"""Checks the wheel in dist/: python -m tools.wheel_check.

- The platform tag, the sizes of the parts, and the symbols of the libraries.
- The wheel installs into clean environments, with the oldest and the newest supported torch (--torch chooses others). The tests of
  registration and opcheck pass there, outside the source tree. Torch and pytest come from an environment of this checkout
  (.venv*) if one has this torch, otherwise from PyPI.
- With the newest torch, the bindings are deleted and torch_ops.build compiles them.

GPU tests don't run here: see docs/installation.md.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from . import wheel
from .native_build import KERNELS, ROOT
from .toolchain import BuildError
from .wheel import MINORS, run

MOST_FILE_MB, MOST_INSTALLED_MB = 65, 90
MOST_BUILD_S, MOST_IMPORT_S = 180, 0.2
TESTS = [f"tests/contract/test_{name}.py" for name in ("registration", "opcheck")]


def find_wheel() -> Path:
    found = sorted((ROOT / "dist").glob("gpuopt-*.whl"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise BuildError("dist/ holds no wheel: make wheel.")
    return found[-1]


def check(holds: bool, sentence: str) -> None:
    if not holds:
        raise BuildError(f"The wheel is wrong: {sentence}.")


def check_contents(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        entries = archive.infolist()
    parts = {
        "kernels": [e for e in entries if e.filename.endswith(KERNELS)],
        "bindings": [e for e in entries if re.search(r"libgpuopt-torch[\d.]+\.so$", e.filename)],
        "sources of bindings": [e for e in entries if e.filename.startswith(("torch_ops/csrc/", "torch_ops/tools/"))],
    }
    parts["Python and metadata"] = [e for e in entries if not any(e in part for part in parts.values())]
    print(
        f"{file.name}: {file.stat().st_size / 1e6:.1f} MB, {sum(e.file_size for e in entries) / 1e6:.1f} MB installed"
    )
    for name, part in parts.items():
        packed, installed = (sum(getattr(e, size) for e in part) / 1e6 for size in ("compress_size", "file_size"))
        print(f"  {name}: {len(part)} files, {packed:.2f} MB packed, {installed:.2f} MB installed")
        check(bool(part), f"it holds no {name}")
    check(file.stat().st_size <= MOST_FILE_MB * 1e6, f"it is larger than {MOST_FILE_MB} MB")
    installed = sum(e.file_size for e in entries)
    check(installed <= MOST_INSTALLED_MB * 1e6, f"it takes more than {MOST_INSTALLED_MB} MB when installed")


def check_symbols(file: Path) -> None:
    said = run(wheel.release_python(), "-m", "auditwheel", "show", file, stderr=subprocess.STDOUT)
    check(wheel.PLATFORM in file.name, f"its name does not say {wheel.PLATFORM}")
    true = re.search(r'platform tag to\s+"manylinux_(\d+)_(\d+)', said)
    check(true is not None, f"auditwheel finds no manylinux platform for it:\n{said}")
    glibc = tuple(map(int, true.groups())) if true else ()
    check(glibc <= tuple(map(int, wheel.GLIBC.split("."))), f"it needs glibc {'.'.join(map(str, glibc))}")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(file) as archive:
            libraries = [Path(archive.extract(n, folder)) for n in archive.namelist() if n.endswith(".so")]
        for library in libraries:
            names = run("nm", "-D", library)
            check(not re.search(r" _?Py[A-Z]\w+", names), f"{library.name} has symbols of Python")
            needed = set(re.findall(r"NEEDED\).*\[(.*)\]", run("readelf", "-d", library)))
            defined = re.findall(r"^\w+ [^Uw] (\S+)", names, re.MULTILINE)
            if library.name == KERNELS:
                torch = re.findall(r"\S*(?:2at|3c10|5torch)\d\w+", names)
                check(not torch, f"{library.name} has symbols of torch: {torch[:3]}")
                shown = [name for name in defined if "6gpuopt" not in name]
                check(not shown, f"{library.name} shows symbols that are not gpuopt's: {shown[:3]}")
                check("libcudart.so.13" not in needed, f"{library.name} needs a CUDA runtime beside its own")
            else:
                check(KERNELS in needed, f"{library.name} does not name {KERNELS}")
                check(not [name for name in defined if "6gpuopt" in name], f"{library.name} shows symbols of gpuopt")
    print(
        f"  {len(libraries)} libraries: no symbol of Python, none of torch in the kernels, none newer than {wheel.PLATFORM}"
    )


def check_installation(file: Path, minor: str) -> None:
    """Installs the wheel into a new environment, and runs tests in a folder without the package's sources."""
    folder = ROOT / "build" / "wheel-check" / minor
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "venv", folder / "env")
    python = folder / "env" / "bin" / "python"
    packages = [f"torch=={minor}.*"]
    if shared := wheel.packages_of_checkout(minor):
        (site,) = (folder / "env").glob("lib/python3*/site-packages")
        (site / "checkout.pth").write_text(f"{shared}\n")
    else:
        pins = [line for line in (ROOT / "tools" / "requirements.txt").read_text().splitlines() if "==" in line]
        needed = ("pytest", "numpy", "expecttest", "hypothesis")
        packages += [pin.replace(" ", "") for pin in pins if pin.startswith(needed)]
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", file, *packages)
    for part in ("tests", "benchmarks/references"):  # the cases of tests have their references from benchmarks
        shutil.copytree(ROOT / part, folder / "run" / part)
    shutil.copy(ROOT / "pyproject.toml", folder / "run")
    place = run(python, "-c", "import torch_ops; print(torch_ops.__file__)", cwd=folder / "run").strip()
    check(Path(place).is_relative_to(folder / "env"), f"torch_ops comes from {place}")
    tests = [python, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *TESTS]
    said = run(*tests, cwd=folder / "run", stderr=subprocess.STDOUT)
    code = "import time, torch; start = time.perf_counter(); import torch_ops; print(time.perf_counter() - start)"
    seconds = min(float(run(python, "-c", code, cwd=folder / "run")) for _ in range(3))
    print(f"  torch {minor}: {said.strip().splitlines()[-1].strip('= ')}; imported {seconds:.2f} s after torch")
    check(seconds <= MOST_IMPORT_S, f"importing it takes {seconds:.2f} s")
    if minor == MINORS[-1]:
        check_build(python, Path(place).parent / "lib" / f"libgpuopt-torch{minor}.so", folder)
    shutil.rmtree(folder)


def check_build(python: Path, bindings: Path, folder: Path) -> None:
    """Deletes the bindings, as for a torch that the wheel does not support. The import error must name torch_ops.build, and this
    must compile them."""
    bindings.unlink()
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PATH": "/usr/bin:/bin"}  # no nvcc
    options = {"cwd": folder, "env": environment, "text": True, "capture_output": True}
    failed = subprocess.run([python, "-c", "import torch_ops"], **options)
    check("-m torch_ops.build" in failed.stderr, f"importing without bindings says\n{failed.stderr}")
    start = time.monotonic()
    run(python, "-m", "torch_ops.build", cwd=folder, env=environment)
    seconds = time.monotonic() - start
    code = "import torch, torch_ops; print(torch_ops.mul(torch.full((2,), 3.0), 2).tolist())"
    check(run(python, "-c", code, cwd=folder, env=environment).strip() == "[6.0, 6.0]", "its own bindings don't work")
    print(f"  torch_ops.build: {seconds:.0f} s")
    check(seconds <= MOST_BUILD_S, f"compiling bindings takes more than {MOST_BUILD_S} s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.wheel_check", description=__doc__.partition("\n")[0])
    ends = [MINORS[0], MINORS[-1]]
    parser.add_argument("--torch", nargs="*", choices=MINORS, default=ends, help="the torch versions to install beside")
    arguments = parser.parse_args()
    try:
        file = find_wheel()
        check_contents(file)
        check_symbols(file)
        for minor in arguments.torch:
            check_installation(file, minor)
    except BuildError as error:
        sys.exit(f"gpuopt: {error}")


if __name__ == "__main__":
    main()
