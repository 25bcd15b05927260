"""Sharded tensors on 2 or 4 GPUs with NCCL: rules, exchanges, and training steps, as on the CPU."""

from __future__ import annotations

import pytest
import torch

from ..support import ranks
from . import exchange_checks, gpu_checks, model_checks

COUNT = 4 if torch.cuda.device_count() >= 4 else 2

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.alone,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def test_rules(tmp_path):
    (results,) = ranks.run([gpu_checks.rules], COUNT, tmp_path)
    for result in results:
        assert isinstance(result, dict), result
        assert not result["problems"], "\n".join(result["problems"][:5])
        assert all(result["tried"].values())


@pytest.mark.parametrize("check", [gpu_checks.exchanges, gpu_checks.models], ids=lambda check: check.__name__)
def test_checks(check, tmp_path):
    """An error of one rank ends the others, too. A hang is killed."""
    (results,) = ranks.run([check], COUNT, tmp_path)
    checks = exchange_checks.CHECKS if check is gpu_checks.exchanges else model_checks.CHECKS
    for passed in results:
        assert isinstance(passed, set), passed
        assert {(each.__name__, COUNT) for each in checks} <= passed
