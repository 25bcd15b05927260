"""Makes the environment that every make target runs in: python3 -m tools.bootstrap --torch 2.11.0 .venv

A finished environment holds a stamp, a JSON file with the versions it was made for. A second call finds the stamp and does nothing.
An environment without a valid stamp was interrupted or made for other versions. It is completed, and if that fails, made anew.
``--check`` only checks whether an existing environment has the needed modules. It installs nothing.
"""

import sys

if sys.version_info < (3, 10):
    sys.exit("gpuopt: Python 3.10 or newer is needed, and %s is %s." % (sys.executable, sys.version.split()[0]))

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path

from . import toolchain
from .toolchain import BuildError, Torch

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def say(text: str) -> None:
    print(f"gpuopt: {text}", flush=True)


def inputs(torch_version: str) -> str:
    """A hash of everything that is installed. A change means that the environment must be set up again."""
    return hashlib.sha256(f"{torch_version}\n{REQUIREMENTS.read_text()}".encode()).hexdigest()


def python_of(folder: Path) -> Path:
    return folder / "bin" / "python"


def torch_of(folder: Path) -> Torch | None:
    found = sorted(folder.glob("lib/python3*/site-packages/torch/version.py"))
    return toolchain.read_torch(found[0].parent) if found else None


def pip_install(folder: Path, *arguments: str) -> bool:
    command = [str(python_of(folder)), "-m", "pip", "install", "--disable-pip-version-check", *arguments]
    return subprocess.run(command).returncode == 0


def make_venv(folder: Path) -> None:
    say(f"making {folder.name} with Python {sys.version.split()[0]}")
    if importlib.util.find_spec("ensurepip") is None:
        raise BuildError(
            f"{sys.executable} cannot make virtual environments: install its venv module (Debian, Ubuntu: apt-get"
            " install python3-venv)."
        )
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)])
    if done.returncode != 0:
        raise BuildError(f"{sys.executable} -m venv {folder} failed; its message is above.")


def usable(folder: Path) -> bool:
    return toolchain.output_of(python_of(folder), "-c", "import pip; print('yes')").strip() == "yes"


def install_packages(folder: Path, torch_version: str) -> bool:
    say(f"installing torch {torch_version} and the packages of {REQUIREMENTS.name}")
    if not pip_install(folder, f"torch=={torch_version}", "-r", str(REQUIREMENTS)):
        return False
    # Import every package: after an interrupted install, pip may believe that a broken package is complete.
    names = "torch, numpy, pytest, xdist, expecttest, hypothesis, matplotlib, networkx, rich, sklearn, setuptools, ninja, cmake"
    return subprocess.run([str(python_of(folder)), "-c", f"import {names}"]).returncode == 0


def install_nvcc(folder: Path, torch: Torch) -> str:
    """Installs nvcc from PyPI in the version that torch's metadata pins. Returns "installed", or why that failed."""
    tell = "import importlib.metadata as m; print(*m.requires('torch'), sep='\\n')"
    for line in toolchain.output_of(python_of(folder), "-c", tell).splitlines():
        requirement = line.partition(";")[0]
        if requirement.startswith("cuda-toolkit[") and "==" in requirement:
            version = requirement.partition("==")[2].strip()
            say(f"no nvcc for CUDA {torch.cuda_major} in CUDA_HOME or on PATH: installing {version} from PyPI")
            if pip_install(folder, f"cuda-toolkit[{toolchain.NVCC_PARTS}]=={version}"):
                return "installed"
            return "pip could not install nvcc"
    return f"torch {torch.version} names no nvcc on PyPI"


def provide_nvcc(folder: Path, stamp: dict[str, str]) -> None:
    torch = torch_of(folder)
    if torch is None or torch.cuda is None or toolchain.named_nvcc(torch):
        return
    # An interrupted install may have left nvcc without its other parts, so an "unfinished" one is installed again.
    if stamp.get("nvcc") != "unfinished":
        try:
            if "nvcc" in stamp or toolchain.find_nvcc(torch):
                return
        except BuildError:
            pass  # PATH has an nvcc of another CUDA major version: install PyPI's
    write_stamp(folder, {**stamp, "nvcc": "unfinished"})
    outcome = install_nvcc(folder, torch)
    if outcome != "installed":
        say(f"{outcome}; to try again, remove {stamp_of(folder)}")
    write_stamp(folder, {**stamp, "nvcc": outcome})


def stamp_of(folder: Path) -> Path:
    return folder / "gpuopt-setup.json"


def read_stamp(folder: Path) -> dict[str, str]:
    try:
        return json.loads(stamp_of(folder).read_text())
    except (OSError, ValueError):
        return {}


def write_stamp(folder: Path, stamp: dict[str, str]) -> None:
    fresh = stamp_of(folder).with_suffix(".new")
    fresh.write_text(json.dumps(stamp, indent=2) + "\n")
    os.replace(fresh, stamp_of(folder))


def set_up(folder: Path, torch_version: str) -> None:
    toolchain.find_host_compiler()  # fails before gigabytes are downloaded
    wanted = inputs(torch_version)
    stamp = read_stamp(folder)
    if stamp.get("inputs") != wanted or not python_of(folder).exists():
        stamp_of(folder).unlink(missing_ok=True)
        fresh = not usable(folder)
        if fresh:
            make_venv(folder)
        done = install_packages(folder, torch_version)
        if not done and not fresh:
            say(f"{folder.name} could not be completed: making it anew")
            make_venv(folder)
            done = install_packages(folder, torch_version)
        if not done:
            raise BuildError(
                f"Setting up {folder.name} failed (pip's message is above): check that torch {torch_version} exists for"
                f" Python {sys.version.split()[0]} and that PyPI can be reached, and run the command again."
            )
        stamp = {"inputs": wanted}
        write_stamp(folder, stamp)
    provide_nvcc(folder, stamp)


def check(needed: list[str]) -> None:
    """Raises BuildError with the modules that this Python lacks. Installs nothing, because the environment is the user's."""
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if "ninja" in missing and shutil.which("ninja"):
        missing.remove("ninja")
    if missing:
        raise BuildError(
            f"{sys.executable} lacks {', '.join(missing)}: install that there, or leave out PYTHON= and make sets up"
            " an environment of its own."
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m tools.bootstrap", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, help="the environment to make or complete")
    parser.add_argument("--torch", metavar="VERSION", help="the version of torch it gets")
    parser.add_argument("--check", nargs="+", metavar="MODULE", help="only check that this Python has these modules")
    arguments = parser.parse_args()
    try:
        if arguments.check:
            check(arguments.check)
        elif arguments.folder and arguments.torch:
            set_up(arguments.folder.absolute(), arguments.torch)
        else:
            parser.error("name a folder and --torch, or --check")
    except BuildError as error:
        sys.exit(f"gpuopt: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
