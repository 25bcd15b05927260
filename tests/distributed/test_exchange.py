"""Functions of sharded tensors that exchange something: results and gradients equal the ones of one process."""

from __future__ import annotations

import pytest

from ..support import ranks
from . import exchange_checks as checks

pytestmark = pytest.mark.torch_version


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    (found,) = ranks.run([checks.exchanges], checks.WORLD, tmp_path_factory.mktemp("ranks"), seconds=60)
    return found


EVERY = [(check.__name__, count) for check in checks.CHECKS for count in (2, checks.WORLD)]


EVERY += [(check.__name__, checks.WORLD) for check in (checks.two_dimensions, checks.benchmark)]


@pytest.mark.parametrize(("check", "count"), EVERY)
def test_exchange(results, check, count):
    for passed in results[:count]:
        assert isinstance(passed, set), passed
        assert (check, count) in passed
