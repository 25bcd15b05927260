from pathlib import Path


def load() -> None:
    import torch

    torch.ops.load_library(Path(__file__).parent / "lib" / "libgpuopt-torch2.11.so")
