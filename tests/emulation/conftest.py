"""What tests in several files are run on."""

from __future__ import annotations

import pytest

from .conv1d_model import Emulated


@pytest.fixture(scope="session")
def conv1d(tmp_path_factory):
    return Emulated(tmp_path_factory.mktemp("emulated"))
