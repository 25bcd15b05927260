"""The C++ programs of examples/cpp are built with CMake and run, on the CPU where there is no GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tools import native_build, words
from torch_ops import _library

from ..support.params import on

SOURCES = words.ROOT / "examples/cpp"


def _find_cmake() -> str | None:
    return shutil.which("cmake", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def _run(*command: object, cwd: Path = words.ROOT, **environment: str) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, str]:
    """The folder of the programs and of model.pt2, and what the model's export printed. Both are made at the same time."""
    cmake = _find_cmake()
    if cmake is None:
        pytest.skip("cmake is not installed: pip install cmake")
    # The commands of the page run in a folder that looks like the checkout, with this Python's environment as .venv.
    checkout = tmp_path_factory.mktemp("checkout")
    for name, target in {
        "examples": SOURCES.parent,
        "torch_ops": words.ROOT / "torch_ops",
        ".venv": sys.prefix,
    }.items():
        (checkout / name).symlink_to(target)
    folder = checkout / "build/cpp"
    folder.mkdir(parents=True)
    # PATH leads to cmake and ninja, but not to this Python: the commands name it.
    programs = tmp_path_factory.mktemp("programs")
    for program in (cmake, native_build.find_ninja()):
        (programs / Path(program).name).symlink_to(program)
    path = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    commands = re.findall(r"^cmake .*$", (words.ROOT / "docs/integration.md").read_text(), re.MULTILINE)
    # Inductor would compile and load a test for each vector instruction set of the CPU, which takes longer than the rest.
    quick = {"TORCHINDUCTOR_VEC_ISA_OK": "0", "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    export = subprocess.Popen(
        [sys.executable, "-m", "examples.cpp.aoti", str(folder / "model.pt2")],
        cwd=words.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **quick, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    try:
        _run("sh", "-ec", "\n".join(commands), cwd=checkout, CMAKE_GENERATOR="Ninja", PATH=path)
        said, errors = export.communicate()
    finally:
        export.kill()
    assert export.returncode == 0, errors
    return folder, said


@pytest.mark.parametrize("device", [on(d, d, name=d) for d in ("cpu", "cuda")])
def test_operators_are_called_through_the_dispatcher(built, device):
    """Ones, convolved with three ones from the left: 1 2 3 3 3 in each of two channels."""
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    assert _run(built[0] / "operators", _library.library_path(), **hidden) == "24 24\n"


def test_a_package_runs_without_python(built):
    folder, said = built
    assert float(said) != 0
    assert _run(folder / "package", _library.library_path(), folder / "model.pt2") == said


@pytest.mark.parametrize("device", [on(d, d, name=d) for d in ("cpu", "cuda")])
def test_kernels_are_planned_and_launched_without_torch(built, device):
    program = built[0] / "kernels"
    if not program.exists():
        assert not (_library.FOLDER / _library.KERNELS).exists() or torch.version.cuda is None
        pytest.skip("the library has no kernels, or CUDA's headers are missing")
    said = _run(program, **({"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {})).splitlines()
    assert said[0].startswith("path ") and "aten" not in said[0]
    assert said[1].startswith("no GPU" if device == "cpu" else "largest error ")
    linked = _run("ldd", program)
    assert "libgpuopt_kernels.so" in linked and "torch" not in linked.replace(str(words.ROOT), "").replace(
        "torch_ops", ""
    )


def test_a_missing_library_is_said(built):
    done = subprocess.run([built[0] / "operators", "nowhere.so"], capture_output=True, text=True)
    assert done.returncode == 1 and "nowhere.so" in done.stderr
