"""What tests in several files are run on."""

from __future__ import annotations

import pytest

from .build import load
from .conv1d_model import Emulated


@pytest.fixture(scope="session")
def conv1d():
    return Emulated()


@pytest.fixture(scope="session")
def index_add():
    return load("index_add")
