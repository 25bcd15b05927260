"""Wrong kernels are named rightly: Python functions on CPU tensors, most of them in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torch_ops import ladder
from torch_ops.ladder import checks
from torch_ops.ladder.checks import check, difference
from torch_ops.ladder.problems import PROBLEMS
from torch_ops.ladder.source import BuildFailed, Kernel, builds_of, load, located
from torch_ops.ladder.step import steps
from torch_ops.ladder.zones import VIEWS, Zone, viewed

from .wrong import functions

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")
FUNCTIONS = Path(functions.__file__)
FAULTS = {
    "race": "race",
    "out_of_bounds": "out of bounds",
    "out_of_bounds_of_an_operand": "out of bounds",
    "changed_inputs": "changed inputs",
    "cached_results": "cached results",
    "wrong_values": "wrong values",
    "unwritten": "wrong values",
    "wrong_dtype": "wrong dtype",
    "wrong_shape": "wrong shape",
    "wrong_device": "wrong device",
    "wrong_type": "wrong type",
    "error": "error",
}


def events_of(name: str, op: str = "reduce_sum", may_vary: bool = True, path: Path = FUNCTIONS) -> list[dict]:
    events = []
    kernel = load(PROBLEMS[op], path, name, Path())
    check(PROBLEMS[op], kernel, "cpu", may_vary, lambda event, **values: events.append({"event": event} | values))
    return events


def of(events: list[dict], name: str) -> list[dict]:
    return [event for event in events if event["event"] == name]


@pytest.mark.parametrize("name, kind", FAULTS.items())
def test_faults_are_named(name, kind):
    assert {fault["kind"] for fault in of(events_of(name), "fault")} == {kind}


def test_texts():
    (fault,) = of(events_of("out_of_bounds"), "fault")
    assert fault["text"] == (
        "writes to 2 elements outside of a tensor that it made, to the first one 1 element behind the end of it"
    )
    (fault,) = of(events_of("cached_results"), "fault")
    assert "a second call with other data at the same addresses gives the results of the first" in fault["text"]
    fault = of(events_of("unwritten"), "fault")[0]
    assert fault["text"].endswith("It was not written, or comes from memory that is not an operand's")
    fault = of(events_of("wrong_index", "cumsum"), "fault")[0]
    assert "the first at index [2050]: expected" in fault["text"]


def test_what_is_right():
    events = events_of("right")
    assert not of(events, "fault") and of(events, "checked") == [{"event": "checked", "views": 8}]
    assert {"misaligned", "strided", "transposed", "expanded"} < {x["name"].split()[3] for x in of(events, "stage")}


def test_what_is_wrong_only_of_some_views():
    events = events_of("wrong_only_of_views")
    assert [fault["view"] for fault in of(events, "fault")] == ["strided", "expanded"]
    assert of(events, "checked")[0]["views"] == 6


def test_what_is_declined_is_not_wrong():
    events = events_of("declines")
    assert not of(events, "fault")
    assert [event["view"] for event in of(events, "declined")] == ["strided", "transposed", "expanded"]


def test_rounding_may_vary_where_the_ladder_has_such_a_step():
    assert not of(events_of("rounds_differently"), "fault")
    assert "vary between runs" in of(events_of("rounds_differently"), "note")[0]["text"]
    (fault,) = of(events_of("rounds_differently", may_vary=False), "fault")
    assert fault["kind"] == "race" and "differ in their rounding" in fault["text"]


REFERENCES = """
import torch
import torch.nn.functional as F
from torch_ops.ladder.problems import PROBLEMS

def {op}(*operands):
    found = PROBLEMS["{op}"].expected(operands)
    found = tuple(x.to(dtype) for x, dtype in zip(found, PROBLEMS["{op}"].dtypes))
    if PROBLEMS["{op}"].writes:
        operands[0].copy_(found[0])
    return found
"""


@pytest.mark.parametrize("op", ladder.ops())
def test_the_reference_is_right_on_every_view(op, tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(REFERENCES.format(op=op))
    events = events_of(op, op, path=path)
    assert not of(events, "fault")
    assert of(events, "checked")[0]["views"] >= 5


@pytest.mark.parametrize("op", ladder.ops())
def test_problems_are_complete(op):
    problem = PROBLEMS[op]
    assert {"measured", "small", "odd"} <= problem.sizes.keys()
    assert len(problem.tolerances) == len(problem.dtypes)
    assert problem.exercise.endswith((".", "?"))


def test_every_ladder_has_a_problem():
    assert sorted(PROBLEMS) == ladder.ops()
    assert all(steps(op)[-1].name == "production" for op in PROBLEMS)


@pytest.mark.parametrize(
    "wrong, is_asked", [((), True), (("odd", "one"), True), (("small",), False), (("small", "odd"), False)]
)
def test_a_stream_is_not_blamed_for_wrong_values(monkeypatch, wrong, is_asked):
    """Without a GPU: the views and the streams are stand-ins."""
    asked, events = [], []

    def check_view(problem, kernel, device, size, view, *_):
        if view == "contiguous" and size in wrong:
            raise checks._Wrong("wrong values", "1 of 9 values are wrong")
        return True

    monkeypatch.setattr(checks, "_check_view", check_view)
    monkeypatch.setattr(checks, "_check_stream", lambda *_: asked.append(True))
    kernel = Kernel("kernel.cu", lambda *_: (), True, [])
    check(PROBLEMS["mul"], kernel, "cuda", False, lambda event, **values: events.append({"event": event} | values))
    assert bool(asked) == is_asked
    assert [fault["view"] for fault in of(events, "fault")] == list(wrong)


# ---------------------------------------------------------------- processes


def test_a_process_that_crashes(monkeypatch):
    found = ladder.compare("reduce_sum", functions.crash)
    (fault,) = found.faults
    assert fault.kind == "crash" and "in the check of small operands, with signal SIGSEGV" in fault.text
    assert not found.right and str(found).startswith("functions.py is wrong: crash.")


def test_a_process_that_takes_too_long():
    (fault,) = ladder.compare("reduce_sum", functions.time_limit, time_limit=15).faults
    assert fault.kind == "time limit" and fault.text.endswith("took longer than the time limit of 15 s")


def test_a_function_that_is_right(capfd):
    found = ladder.compare("reduce_sum", functions.right)
    assert found.right
    if not torch.cuda.is_available():
        assert "Nothing was timed: torch sees no GPU here." in str(found) and found.measured is None


# ---------------------------------------------------------------- files


def test_files_without_a_kernel(tmp_path):
    problem = PROBLEMS["reduce_sum"]
    broken, empty = tmp_path / "broken.py", tmp_path / "empty.py"
    broken.write_text("def reduce_sum(x):\n    return x.sum(\n")
    empty.write_text("def sum(x):\n    return x.sum()\n")
    with pytest.raises(BuildFailed, match="broken.py.*SyntaxError") as error:
        load(problem, broken, None, tmp_path)
    assert error.value.kind == "compile error"
    with pytest.raises(BuildFailed, match="has no function reduce_sum") as error:
        load(problem, empty, None, tmp_path)
    assert error.value.kind == "no entry point"


def test_kernels_that_no_process_can_load(tmp_path):
    with pytest.raises(ValueError, match="must be a function at the top level of a file.*got .*lambda.*%%writefile"):
        located("ladder.compare", lambda x: x)
    with pytest.raises(ValueError, match=r"must be a .cu or a .py file, got kernel.cpp"):
        located("ladder.compare", tmp_path / "kernel.cpp")
    with pytest.raises(FileNotFoundError, match="^ladder.compare: kernel must be a file that exists, got .*kernel.cu$"):
        located("ladder.compare", tmp_path / "kernel.cu")


ARGUMENTS = {
    "op must be str, got NoneType": (TypeError, {"op": None}),
    "kernel must be a function or the path of a file, got int": (TypeError, {"kernel": 3}),
    "time_limit must be float, got NoneType": (TypeError, {"time_limit": None}),
    "time_limit must be float, got str": (TypeError, {"time_limit": "5"}),
    "time_limit must be above 0, got -1": (ValueError, {"time_limit": -1}),
    "time_limit must be above 0, got nan": (ValueError, {"time_limit": float("nan")}),
    "op must be one of .* got 'sum'": (ValueError, {"op": "sum"}),
}


@pytest.mark.parametrize("message", ARGUMENTS)
@pytest.mark.parametrize("function", [ladder.compare, ladder.roofline])
def test_wrong_arguments_are_named(function, message):
    """Also without a GPU, and before a process is started."""
    error, wrong = ARGUMENTS[message]
    begin = "gpuopt_ladder" if "sum" in message else f"ladder.{function.__name__}"
    with pytest.raises(error, match=f"^{begin}: {message}"):
        function(**{"op": "reduce_sum", "kernel": functions.right} | wrong)


def test_the_flag_of_counters_is_named():
    with pytest.raises(TypeError, match="^ladder.compare: counters must be bool, got str"):
        ladder.compare("reduce_sum", functions.right, counters="yes")


def test_the_report_of_the_assembler():
    said = """
ptxas info    : Compiling entry function '_ZN12_GLOBAL__N_17spilledILi4EEEvPKfPf' for 'sm_90a'
ptxas info    : Function properties for _ZN12_GLOBAL__N_17spilledILi4EEEvPKfPf
    136 bytes stack frame, 132 bytes spill stores, 132 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 136 bytes cumulative stack size
ptxas info    : Compiling entry function '_Z4fastPKfPf' for 'sm_90a'
ptxas info    : Function properties for _Z4fastPKfPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, used 0 barriers
"""
    assert [(x.kernel, x.registers, x.spilled) for x in builds_of(said)] == [("spilled", 32, 132), ("fast", 18, 0)]


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("view", VIEWS)
def test_views_have_the_values(view):
    values = torch.arange(12.0).view(3, 4)
    (zone,) = viewed(view, (values,), False)
    expected = values[:1].expand(3, 4) if view == "expanded" else values
    assert torch.equal(zone.tensor, expected) and zone.overrun() is None
    assert zone.tensor.data_ptr() % 16 == (4 if view == "misaligned" else 0)
    for where in (zone._first - 1, zone._first + zone._span):
        zone._buffer[where] = 0
        assert zone.overrun() is not None
        zone._buffer[where] = torch.nan
        zone._buffer.view(torch.int32)[where] = -1
        assert zone.overrun() is None
    if view == "strided":
        zone._buffer[zone._first + 1] = 0
        assert "in the gaps" in zone.overrun()


def test_a_version_does_not_tell_of_new_data():
    zone = Zone((3,), (1,), torch.float32, "cpu", "x")
    before = zone.tensor._version
    zone.fill(torch.ones(3))
    assert zone.tensor._version == before and zone.tensor.sum() == 3


def test_differences():
    x = torch.arange(6.0).view(2, 3)
    assert difference(x, x.double(), (0.0, 0.0)) is None
    y = x.double()
    y[1, 0] += 1
    assert difference(x, y, (0.0, 0.5)) == "1 of 6 values are wrong, the first at index [1, 0]: expected 4, got 3"
    assert difference(x, y, (0.0, 1.5)) is None
    assert difference(torch.full((2,), torch.nan), torch.tensor([torch.nan, 1.0]), (1.0, 1.0)).startswith("1 of 2")
