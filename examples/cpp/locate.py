"""Prints the folders that CMakeLists.txt needs, as a list of CMake."""

import os
import sys
from pathlib import Path

import torch

import torch_ops
from torch_ops import _library

package = Path(torch_ops.__file__).resolve().parent
headers = package.parent / "csrc" if _library.SOURCE_TREE else package / "csrc"

# CUDA_HOME, then PyPI's packages beside torch, then the usual folder.
major = (torch.version.cuda or "").partition(".")[0]
beside = Path(torch.__file__).parent.parent / "nvidia"
folders = [os.environ.get("CUDA_HOME", ""), beside / f"cu{major}", "/usr/local/cuda"]
cuda = [
    folder
    for folder in map(Path, filter(None, folders))
    if (folder / "include/cuda_runtime_api.h").exists() and [*folder.glob("lib*/libcudart_static.a")]
]
if __name__ == "__main__":
    found = [Path(torch.__file__).parent, _library.library_path(), _library.FOLDER / _library.KERNELS, headers]
    sys.stdout.write(";".join(map(str, [*found, cuda[0] if cuda else "NOTFOUND"])))
