"""Compiles the native libraries for pip and setup.py. The metadata is in pyproject.toml."""

import os
import shutil
import sys
from pathlib import Path

import setuptools
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # pip runs this file without its folder on the path

if int(setuptools.__version__.split(".")[0]) < 77:
    sys.exit(
        f"gpuopt: building needs setuptools 77 or newer, and {sys.executable} has {setuptools.__version__}:"
        " pip install 'setuptools>=77,<82'."
    )

from setuptools.command.bdist_wheel import bdist_wheel  # noqa: E402  (older setuptools lack it)
from setuptools.command.build_py import build_py  # noqa: E402

from tools import native_build, toolchain  # noqa: E402

# tools/wheel.py sets this to a folder of finished libraries, to make one wheel for several versions of torch.
RELEASE = os.environ.get("GPUOPT_RELEASE_LIBRARIES")


class BuildNative(build_ext):
    """Compiles with ninja. Puts the libraries into the package that is built, or into the source tree (--inplace)."""

    def run(self) -> None:
        folder = native_build.INSTALLED
        if not (self.inplace or self.editable_mode):
            folder = Path(self.build_lib, "torch_ops", "lib")
            shutil.rmtree(folder, ignore_errors=True)  # an earlier build may have been for another torch
        try:
            if RELEASE:
                shutil.copytree(RELEASE, folder)
            else:
                native_build.build(folder, without_gpu=toolchain.RELEASE_ARCHS)
        except toolchain.BuildError as error:
            sys.exit(f"gpuopt: {error}")

    def get_outputs(self) -> list[str]:
        return [str(path) for path in Path(self.build_lib, "torch_ops", "lib").glob("libgpuopt*")]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class BuildPython(build_py):
    """Puts only the tools that torch_ops.build needs into the package."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # may hold files that have been deleted from the sources
        super().run()

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        needed = ("__init__", "layout", "native_build", "toolchain")
        return [entry for entry in found if package != "torch_ops.tools" or entry[1] in needed]


class Wheel(bdist_wheel):
    """Tags the wheel for every Python: the libraries do not use Python's ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class Distribution(setuptools.Distribution):
    def has_ext_modules(self) -> bool:
        return True


def requirements() -> list[str]:
    """The minor version of torch that the library is compiled for. A release accepts any version from the oldest on."""
    if RELEASE:
        return [f"torch>={'.'.join(map(str, toolchain.OLDEST_TORCH))}"]
    try:
        torch = toolchain.find_torch()
    except toolchain.BuildError as error:
        sys.exit(f"gpuopt: {error}")
    return [f"torch=={torch.minor}.*" if torch else "torch>=2.11"]


setuptools.setup(
    distclass=Distribution,
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython, "bdist_wheel": Wheel},
    install_requires=requirements(),
)
