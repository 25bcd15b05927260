"""Loads the launchers and kernels of a room, compiled for the CPU on top of emulator.h."""

from __future__ import annotations

import ctypes

import pytest

from tools import test_build


def load(name: str) -> ctypes.CDLL:
    """The library of a room ("dot") or of its ladder ("dot_ladder"). Skips the test if CUDA's headers are missing."""
    name = f"emulation/{name}"
    if name not in test_build.libraries():
        pytest.skip("CUDA's headers come with nvcc, and there is none")
    return test_build.load(name)
