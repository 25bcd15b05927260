"""Rules of DTensor: every choice of placements gives the results and gradients of one process, and exchanges nothing."""

from __future__ import annotations

import re

import pytest
import torch

from tools import sharding
from torch_ops.distributed import _sharding
from torch_ops.distributed._rules import RULES

from ..support import ranks
from ..support.params import CASES, EVERY_CASE
from . import rules_checks as checks

pytestmark = pytest.mark.torch_version


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    found = ranks.run([checks.rules, checks.uses], checks.WORLD, tmp_path_factory.mktemp("ranks"))
    for of_check in found:
        for result in of_check:
            assert isinstance(result, dict), result
    return found


@pytest.mark.parametrize("count", [2, checks.WORLD])
def test_choices(results, count):
    for rank, result in enumerate(results[0][:count]):
        problems = result[count]["problems"]
        assert not problems, f"rank {rank}, {len(problems)} problems:\n" + "\n".join(problems[:5])


def test_every_choice_was_tried(results):
    """Of each rule: every axis that may be sharded, every partial result, and every group of partial arguments."""
    tried: dict[str, set[str]] = {}
    for op, choices in results[0][0][2]["tried"].items():
        tried.setdefault(op.split(".")[1], set()).update(choices)
    assert tried.keys() == RULES.keys()
    for name, rule in RULES.items():
        if sharding.axes_of(rule.form):
            assert any("Shard" in text for text in tried[name]), name
        if "/" in rule.form:
            assert any(re.search(rf"-> .*Partial\({rule.partial}\)", text) for text in tried[name]), name
        if rule.linear:
            assert any(re.search(r"\[.*Partial\(sum\).*\] -> .*Partial\(sum\)", text) for text in tried[name]), name


def test_every_operator_has_a_rule():
    """Or is composed of operators that have."""
    ruled = set(_sharding.overloads())
    called = {overload for case in CASES for overload in case.overloads}
    composed = {
        op for op in called if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    }
    assert called - composed <= ruled
    assert RULES.keys() <= {op._schema.name.partition("::")[2] for case in EVERY_CASE for op in case.overloads}


@pytest.mark.parametrize("name", checks.USES)
def test_uses(results, name):
    for result in results[1]:
        assert result[name] is None, result[name]


def test_the_table_is_that_of_the_rules():
    page = sharding.PAGE.read_text()
    assert page == sharding.written(page), "python -m tools.sharding"
