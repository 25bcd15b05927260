"""Holds the decisions of torch_ops.override to the rows of `python -m benchmarks override`.

The kernels of meta tensors are replaced, so that a decision needs neither a GPU nor memory. It is the decision for a GPU, except that every
convolution has a path of gpuopt: tests/rooms/conv1d/test_choice.py holds these choices to measurements.
"""

from __future__ import annotations

import contextlib
import json

import pytest
import torch

import torch_ops
from benchmarks.harness import report
from benchmarks.harness.operands import restored
from benchmarks.random import aten_problems
from benchmarks.random.override_report import MOST_SLOWER, WORST, ratio, ratios
from benchmarks.random.override_sweep import calls_of, run_case, taken_of
from benchmarks.random.problems import Draw
from benchmarks.random.report import SLOWER, slower

from ..support.benchmark_fakes import FakeTimer
from ..support.overriding import nothing_is_left  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
aten = torch.ops.aten

# ATen's kernels of meta tensors do not call these operators as the kernels of CUDA do.
AS_ON_CUDA = {
    "index_put": lambda x, index, values: aten._index_put_impl_(x, [index], values, True),
    "index_put of pairs": lambda x, i, j, values: aten._index_put_impl_(x, [i, j], values, True),
    "x[index] backward": lambda x, index, grad: aten._index_put_impl_(torch.empty_like(x), [index], grad, True),
    "embedding backward": lambda weight, index, grad: (
        weight.index_select(0, index.view(-1)),
        aten.embedding_dense_backward(grad, index, len(weight), -1, False),
    ),
}

# Problems that are slower than promised, and not mended yet: additions of many wide float32 rows to each row, and a short convolution.
OPEN = {
    ("scatter_reduce", "pitched 239209 to 1500 x 64 skew 0.65 sum int32", "f32"),
    ("scatter_reduce", "misaligned 428561 to 6568 x 256 sum int32", "f32"),
    ("conv_transpose1d", "(2,38,30)->95 k2 s5 op1 g19", "bf16"),
}
AS_META = {"copy_", "sum"}  # what ATen's kernels of meta tensors call more often


def decided(op: str, call: str, args: tuple) -> set[str]:
    """The operators that take a call of a problem. ATen has no kernel of meta tensors for the sparse products that are declined."""
    function = AS_ON_CUDA.get(call) or aten_problems.function(op, call)
    with contextlib.suppress(NotImplementedError):
        calls_of(function, args, "meta")
    return set(taken_of(torch_ops.override_report().calls))


@pytest.fixture(scope="module")
def result() -> dict:
    path = report.newest("override.json")
    if path is None:
        pytest.skip("benchmarks/results has no override.json: run `python -m benchmarks override` on a GPU")
    result = report.load(path)
    if result["versions"]["torch"].split(".")[:2] != torch.__version__.split(".")[:2]:
        pytest.skip(f"{path.name} was measured with torch {result['versions']['torch']}")
    return result


@pytest.fixture(scope="module")
def rows(result) -> list[dict]:
    """The rows with a call that was taken when it was measured."""
    return [row for row in result["rows"] if row["taken"] and ratio(row) is not None]


def is_taken(row: dict) -> bool:
    op, call, args = row["op"], row["call"], restored(row)
    if row["taken"] == ["scatter_add"] and args[-1] == "mean":  # ATen's kernel of CUDA counts by it
        op, call, args = "scatter_add", "scatter_add", args[:-1]
    return set(row["taken"]) <= decided(op, call, args)


def test_measured_problems_are_taken(rows):
    """What was faster must be. A problem that is not taken any more is no evidence: measure anew."""
    faster = [row for row in rows if ratio(row) >= SLOWER]
    assert [(row["op"], row["case"], row["dtype"]) for row in faster if not is_taken(row)] == []


def test_what_is_taken_is_not_slower(rows):
    """With three exceptions. Each of them must still be one."""
    slow = {(row["op"], row["case"], row["dtype"]): row for row in rows if ratio(row) < SLOWER and is_taken(row)}
    assert slow.keys() >= OPEN
    taken = [row for row in rows if ratio(row) >= SLOWER] + [row for key, row in slow.items() if key not in OPEN]
    assert [(row["op"], row["case"], row["dtype"], ratio(row)) for row in taken if ratio(row) < WORST] == []
    assert slower(ratios(taken)) <= MOST_SLOWER


def test_every_operator_has_rows(result, rows):
    """ATen has no kernel of sparse products with a reduction that could be measured."""
    if not result["complete"]:
        pytest.skip("the run was stopped early")
    assert len(rows) >= 300
    without = {name for name in torch_ops.override.operators if "sparse_mm_reduce" in name}
    assert set(torch_ops.override.operators) - without <= {name for row in rows for name in row["taken"]}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(Draw, "largest", 1 << 21)


@pytest.mark.parametrize("family", aten_problems.FAMILIES)
def test_meta_tensors_decide_as_tensors_with_memory(family, small):
    """The override of the CPU's kernels takes the same operators. The command makes its rows, with made-up times.

    Some of ATen's kernels of meta tensors copy and sum more often.
    """
    for case in aten_problems.draw_cases(family, 4, 0):
        row = run_case(case, FakeTimer(), "cpu")
        args = restored(json.loads(json.dumps(row))) if row["taken"] else case.build("meta", 0)
        more = AS_META | {"mul"} if family.startswith("cudnn") else AS_META  # composed where it is declined
        assert decided(case.op, case.call, args) | more == {*row["taken"], *more}, row


def test_every_operator_has_problems():
    """Among problems of all sizes, which are only decided about."""
    found = set()
    for family in aten_problems.FAMILIES:
        for case in aten_problems.draw_cases(family, 16, 0):
            found |= decided(case.op, case.call, case.build("meta", 0))
    assert set(torch_ops.override.operators) - found == {"_sparse_mm_reduce_impl", "_sparse_mm_reduce_impl_backward"}
