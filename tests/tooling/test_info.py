"""Messages of a failing import, and python -m torch_ops.info."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_ops import _library, info

pytestmark = pytest.mark.torch_version

PACKAGE = Path(_library.__file__).parent


@pytest.fixture
def copy(tmp_path):
    """A copy of the package's Python files as if installed: without csrc beside it, and with an empty lib folder."""
    shutil.copytree(PACKAGE, tmp_path / "torch_ops", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    (tmp_path / "torch_ops" / "lib").mkdir()
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)


def expect_sentence(folder: Path, *words: str, options: tuple[str, ...] = ()) -> str:
    """Checks that importing raises ImportError with these words, and that torch_ops.info prints the same and fails. Returns what it
    prints."""
    imported = python(folder, *options, "-c", "import torch_ops")
    assert imported.returncode == 1
    sentence = imported.stderr.splitlines()[-1]
    assert sentence.startswith("ImportError: gpuopt")
    assert "During handling" not in imported.stderr
    told = python(folder, *options, "-m", "torch_ops.info")
    assert told.returncode == 1
    assert "Traceback" not in told.stderr
    for word in words:
        assert word in sentence
        assert word in told.stdout
    return told.stdout


def put_library(folder: Path, minor: str, cuda: str | None = None) -> None:
    """Writes files named like the bindings and, if `cuda` is given, like kernels for that version of CUDA."""
    library = folder / "torch_ops" / "lib" / f"libgpuopt-torch{minor}.so"
    library.write_bytes(b"not a library")
    known = {"torch": torch.__version__, "cuda": cuda, "host_compiler": "g++", "built": "now"}
    library.with_suffix(".json").write_text(json.dumps(known))
    if cuda:
        kernels = {"nvcc": f"{cuda}.1", "architectures": ["9.0"]}
        (library.parent / "libgpuopt_kernels.json").write_text(json.dumps(kernels))


MINOR = ".".join(torch.__version__.split(".")[:2])


def test_torch_missing(copy):
    expect_sentence(copy, "needs PyTorch", options=("-S",))


def test_library_not_built(copy):
    assert "a library for the CPU" not in expect_sentence(copy, "not built", torch.__version__, "-m torch_ops.build")


def test_library_of_another_torch(copy):
    put_library(copy, "2.99")
    put_library(copy, "2.100")
    expect_sentence(copy, "built for torch 2.99, 2.100", f"has torch {torch.__version__}", "-m torch_ops.build")


def test_torch_that_is_too_old(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.9.1+cu130")
    assert "needs torch 2.11 or newer" in _library.problem()


def test_library_of_another_cuda(copy):
    if torch.version.cuda is None:
        pytest.skip("this torch is CPU-only")
    put_library(copy, MINOR, cuda="99.1")
    expect_sentence(copy, "for CUDA 99.1", f"uses CUDA {torch.version.cuda}", "from its source: pip install")


def test_bindings_cannot_be_built_for_a_torch_that_does_not_fit(copy):
    if torch.version.cuda is None:
        pytest.skip("this torch is CPU-only")
    put_library(copy, MINOR, cuda="99.1")
    done = python(copy, "-m", "torch_ops.build")
    assert done.returncode == 1 and "for CUDA 99.1" in done.stderr and "Traceback" not in done.stderr


def test_library_that_does_not_load(copy):
    put_library(copy, MINOR)
    expect_sentence(copy, "does not load", "-m torch_ops.build")


def test_cuda_library_with_a_torch_without_cuda(monkeypatch):
    monkeypatch.setattr(_library, "facts", lambda: {"cuda": "13.0", "nvcc": "13.0.88"})
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is CPU-only" in _library.problem()


def test_source_tree_tells_how_to_rebuild_in_place(monkeypatch, tmp_path):
    monkeypatch.setattr(_library, "FOLDER", tmp_path)
    monkeypatch.setattr(_library, "SOURCE_TREE", True)
    assert f"{sys.executable} setup.py build_ext --inplace" in _library.problem()


def test_sources_hide_the_installed_package(copy, tmp_path):
    """Python finds the package of the folder that it runs in before the installed one."""
    (copy / "csrc").mkdir()
    installed = tmp_path / "site"
    shutil.copytree(copy / "torch_ops", installed / "torch_ops")
    metadata = installed / "gpuopt-1.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: gpuopt\nVersion: 1.0\n")
    options = ("-c", f"import sys; sys.path.append({str(installed)!r}); import torch_ops")
    sentence = python(copy, *options).stderr.splitlines()[-1]
    for word in (f"installed in {installed}/torch_ops", f"sources in {copy}/torch_ops", "run Python in another folder"):
        assert word in sentence
    assert "setup.py" not in sentence
    # pip leaves metadata of its own in the folder of the sources.
    shutil.move(metadata.parent, copy / "gpuopt.egg-info")
    (copy / "gpuopt.egg-info" / "METADATA").rename(copy / "gpuopt.egg-info" / "PKG-INFO")
    assert "setup.py build_ext --inplace" in python(copy, *options).stderr.splitlines()[-1]


def test_bindings_for_the_cpu_call_no_kernels(monkeypatch):
    """Bindings for the CPU load no kernels, even if the kernels of an earlier build lie beside them."""
    monkeypatch.setattr(_library, "facts", lambda: {"cuda": None, "nvcc": "13.0.88"})
    monkeypatch.setattr(torch.version, "cuda", None)
    assert _library.kernel_cuda() is None and _library.problem() is None


@pytest.mark.parametrize("driver, sentence", [((12, 4), "the driver serves CUDA 12.4"), ((13, 0), None), (None, None)])
def test_driver_that_is_too_old(monkeypatch, driver, sentence):
    monkeypatch.setattr(info, "_driver_cuda", lambda: driver)
    monkeypatch.setattr(_library, "kernel_cuda", lambda: "13.2")
    said = info._driver_problem()
    assert said is None if sentence is None else sentence in said and "from its source" in said


def test_info_of_this_library():
    done = python(PACKAGE.parent, "-m", "torch_ops.info")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert torch.__version__ in done.stdout
    assert str(_library.library_path()) in done.stdout
    assert "cpu" in done.stdout.splitlines()[-1]
    if not torch.cuda.is_available():
        assert "torch sees no GPU here" in done.stdout


@pytest.mark.parametrize(
    "arch, gpu, runs",
    [
        ("9.0", (9, 0), True), ("9.0", (10, 0), False), ("9.0+PTX", (10, 0), True), ("9.0+PTX", (8, 9), False),
        ("8.0", (8, 6), True), ("8.6", (8, 0), False), ("9.0a", (9, 0), True), ("10.0a+PTX", (10, 3), False),
        ("10.0f", (10, 3), True), ("10.0f+PTX", (12, 0), False), ("12.0+PTX", (12, 1), True),
    ],
)  # fmt: skip
def test_which_gpus_an_architecture_serves(arch, gpu, runs):
    assert info._has_image(arch, gpu) is runs


def test_info_names_a_gpu_without_kernels(monkeypatch):
    facts = {
        "torch": torch.__version__, "cuda": "13.0", "nvcc": "13.0.88", "host_compiler": "g++ 12.2.0", "built": "now",
        "architectures": ["9.0"],
    }  # fmt: skip
    monkeypatch.setattr(_library, "facts", lambda: facts)
    monkeypatch.setattr(info, "_gpus", lambda: {"cuda:0": ("Old", (8, 0)), "cuda:1": ("New", (9, 0))})
    rows, runs = info._report(None)
    assert runs
    assert ("runs on", "cpu (through ATen), cuda:1") in rows
    stops = [value for key, value in rows if key == "does not run"]
    assert len(stops) == 1 and "cuda:0" in stops[0] and "TORCH_CUDA_ARCH_LIST=8.0" in stops[0]
