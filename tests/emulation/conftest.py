"""What tests in several files are run on."""

from __future__ import annotations

import pytest

from . import index_add_model
from .conv1d_model import Emulated


@pytest.fixture(scope="session")
def conv1d(tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("emulated"))


@pytest.fixture(scope="session")
def index_add(tmp_path_factory):
    return index_add_model.load_kernels(tmp_path_factory.mktemp("emulated"))
