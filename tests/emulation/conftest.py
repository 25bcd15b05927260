"""Fixtures of several test files."""

from __future__ import annotations

import pytest

from .build import load


@pytest.fixture(scope="session")
def index_add():
    return load("index_add")
