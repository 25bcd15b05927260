"""What importing says when it cannot work, and python -m torch_ops.info."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_ops import _library, info

PACKAGE = Path(_library.__file__).parent


@pytest.fixture
def copy(tmp_path):
    """A copy of the Python files of the package, as installed: no csrc beside it, and an empty lib folder."""
    shutil.copytree(PACKAGE, tmp_path / "torch_ops", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    (tmp_path / "torch_ops" / "lib").mkdir()
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)


def expect_sentence(folder: Path, *words: str, options: tuple[str, ...] = ()) -> None:
    """Importing raises ImportError with the words, and torch_ops.info tells the same and fails."""
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


def put_library(folder: Path, minor: str, content: bytes, **facts: object) -> None:
    library = folder / "torch_ops" / "lib" / f"libgpuopt-torch{minor}.so"
    library.write_bytes(content)
    if facts:
        known = {"torch": torch.__version__, "nvcc": None, "host_compiler": "g++", "built": "now", "architectures": []}
        library.with_suffix(".json").write_text(json.dumps({**known, **facts}))


MINOR = ".".join(torch.__version__.split(".")[:2])


def test_torch_missing(copy):
    expect_sentence(copy, "needs PyTorch", options=("-S",))


def test_library_not_built(copy):
    expect_sentence(copy, "not built", torch.__version__, "pip install --no-build-isolation")


def test_library_of_another_torch(copy):
    put_library(copy, "2.99", b"")
    expect_sentence(copy, "built for torch 2.99", f"has torch {torch.__version__}", "rebuild")


def test_library_of_another_cuda(copy):
    if torch.version.cuda is None:
        pytest.skip("this torch is CPU-only")
    put_library(copy, MINOR, b"", cuda="99.1", nvcc="99.1.0")
    expect_sentence(copy, "built with CUDA 99.1", f"uses CUDA {torch.version.cuda}", "rebuild")


def test_library_that_does_not_load(copy):
    put_library(copy, MINOR, b"not a library", cuda=None)
    expect_sentence(copy, "does not load", "rebuild")


def test_cuda_library_with_a_torch_without_cuda(monkeypatch):
    monkeypatch.setattr(_library, "facts", lambda: {"cuda": "13.0"})
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "is CPU-only" in _library.problem()


def test_source_tree_tells_how_to_rebuild_in_place(monkeypatch, tmp_path):
    monkeypatch.setattr(_library, "FOLDER", tmp_path)
    monkeypatch.setattr(_library, "SOURCE_TREE", True)
    assert f"{sys.executable} setup.py build_ext --inplace" in _library.problem()


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
        ("9.0", (9, 0), True),
        ("9.0", (10, 0), False),
        ("9.0+PTX", (10, 0), True),
        ("9.0+PTX", (8, 9), False),
        ("8.0", (8, 6), True),
        ("8.6", (8, 0), False),
        ("9.0a", (9, 0), True),
        ("10.0a+PTX", (10, 3), False),
        ("10.0f", (10, 3), True),
        ("10.0f+PTX", (12, 0), False),
        ("12.0+PTX", (12, 1), True),
    ],
)
def test_which_gpus_an_architecture_serves(arch, gpu, runs):
    assert info.has_image(arch, gpu) is runs


def test_info_names_a_gpu_without_kernels(monkeypatch):
    facts = {
        "torch": torch.__version__,
        "cuda": "13.0",
        "nvcc": "13.0.88",
        "host_compiler": "g++ 12.2.0",
        "built": "now",
        "architectures": ["9.0"],
    }
    monkeypatch.setattr(_library, "facts", lambda: facts)
    monkeypatch.setattr(info, "gpus", lambda: {"cuda:0": ("Old", (8, 0)), "cuda:1": ("New", (9, 0))})
    rows, runs = info.report(None)
    assert runs
    assert ("runs on", "cpu (through ATen), cuda:1") in rows
    stops = [value for key, value in rows if key == "does not run"]
    assert len(stops) == 1 and "cuda:0" in stops[0] and "TORCH_CUDA_ARCH_LIST=8.0" in stops[0]
