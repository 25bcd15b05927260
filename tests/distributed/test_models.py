"""Training steps of models on 2 and 4 ranks: DDP, FSDP2, the override, and torch.compile."""

from __future__ import annotations

import pytest

from ..support import ranks
from . import model_checks as checks

pytestmark = pytest.mark.torch_version


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    (found,) = ranks.run([checks.models], checks.WORLD, tmp_path_factory.mktemp("ranks"), seconds=120)
    return found


@pytest.mark.parametrize("count", [2, checks.WORLD])
@pytest.mark.parametrize("check", checks.CHECKS, ids=lambda check: check.__name__)
def test_models(results, check, count):
    for passed in results:
        assert isinstance(passed, set), passed
        assert (check.__name__, count) in passed
