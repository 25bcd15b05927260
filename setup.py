"""Compiles the native library when pip or setup.py asks for an extension; pyproject.toml has the rest."""

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

from setuptools.command.bdist_wheel import bdist_wheel  # noqa: E402  (not there in older setuptools)
from setuptools.command.build_py import build_py  # noqa: E402

from tools import native_build, toolchain  # noqa: E402

# Libraries that are built already, for a wheel that serves several versions of torch (tools/wheel.py).
RELEASE = os.environ.get("GPUOPT_RELEASE_LIBRARIES")


class BuildNative(build_ext):
    """Compiles with ninja and puts the library where the package is built or, in place, into the source tree."""

    def run(self) -> None:
        folder = native_build.INSTALLED
        if not (self.inplace or self.editable_mode):
            folder = Path(self.build_lib, "torch_ops", "lib")
            shutil.rmtree(folder, ignore_errors=True)  # of another torch, from an earlier build
        try:
            if RELEASE:
                shutil.copytree(RELEASE, folder)
            else:
                native_build.build(folder)
        except toolchain.BuildError as error:
            sys.exit(f"gpuopt: {error}")

    def get_outputs(self) -> list[str]:
        return [str(path) for path in Path(self.build_lib, "torch_ops", "lib").glob("libgpuopt*")]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class BuildPython(build_py):
    """Of the tools a package holds those that torch_ops.build needs."""

    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)  # files of an earlier build that are no more
        super().run()

    def find_package_modules(self, package, package_dir):
        found = super().find_package_modules(package, package_dir)
        needed = ("__init__", "layout", "native_build", "toolchain")
        return [entry for entry in found if package != "torch_ops.tools" or entry[1] in needed]


class Wheel(bdist_wheel):
    """One wheel serves every Python: the library has no Python ABI."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


class Distribution(setuptools.Distribution):
    def has_ext_modules(self) -> bool:
        return True


def requirements() -> list[str]:
    """torch of the minor version that the library is compiled for; for a release, of any that is new enough."""
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
