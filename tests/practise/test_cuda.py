"""Wrong ``.cu`` files are named rightly, and a copied step is recognised as the step that it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tools.ladder_copy import LADDERS, ROOT, copied
from torch_ops import ladder
from torch_ops.ladder.checks import check
from torch_ops.ladder.child import measure
from torch_ops.ladder.compare import Comparison, _measured
from torch_ops.ladder.measured import EQUAL
from torch_ops.ladder.problems import PROBLEMS
from torch_ops.ladder.source import BuildFailed, load, nvcc

from .test_checks import FUNCTIONS
from .wrong import functions

GPU = pytest.mark.gpu
NVCC = pytest.mark.skipif(nvcc() is None, reason="no nvcc")
FILES = {
    "compile_error": ("reduce_sum", "compile error", 'compile_error.cu(5): error: expected a ";"'),
    "no_entry_point": ("reduce_sum", "no entry point", "defines no function reduce_sum with these parameters"),
    "crash": ("reduce_sum", "crash", "illegal memory access"),
    "time_limit": ("reduce_sum", "time limit", "the check of small operands took longer than the time limit"),
    "race": ("reduce_sum", "race", "3 runs on the same operands give different results"),
    "out_of_bounds": ("mul", "out of bounds", "writes to 1 element outside of the result, to the first one 1 element behind"),
    "changed_inputs": ("reduce_sum", "changed inputs", "operand 0 was changed, first at index [0, 0]"),
    "cached_results": ("reduce_sum", "cached results", "gives the results of the first"),
    "wrong_values": ("cumsum", "wrong values", "the first at index [256]"),
    "wrong_only_of_views": ("transpose2d", "wrong values", "the first at index [0, 112]"),
    "wrong_stream": ("mul", "wrong stream", "does not follow PyTorch's current stream"),
    # Versions of CUDA differ in the number for a launch of no blocks: 9, or 1 in CUDA 13.
    "error": ("mul", "error", "the kernel returns or causes CUDA error"),
    "slow_spill": ("reduce_sum", "", "Slow, spill: the kernel spills needs more than its 32 registers"),
    "slow_uncoalesced": ("reduce_sum", "", "Slow, uncoalesced: a warp's loads use 4 of the 32 bytes of each sector"),
}  # fmt: skip
FUNCTIONS_ON_CUDA = {
    "wrong_dtype": "wrong dtype",
    "wrong_device": "wrong device",
    "out_of_bounds_of_an_operand": "out of bounds",
}
EXAMPLES = ROOT / "examples" / "practise"
SHOWN = ("reduce_sum_blocks.cu", "reduce_sum_warps.cu", "reduce_sum_triton.py")
TIME_LIMIT = 45


def path_of(name: str) -> Path:
    return FUNCTIONS.with_name(f"{name}.cu")


def test_every_file_is_listed():
    assert {path.stem for path in FUNCTIONS.parent.glob("*.cu")} == FILES.keys()


@NVCC
@pytest.mark.parametrize("name", FILES)
def test_files_compile_as_they_should(name, tmp_path):
    op, kind, text = FILES[name]
    try:
        kernel = load(PROBLEMS[op], path_of(name), None, tmp_path)
    except BuildFailed as error:
        assert error.kind == kind and text in str(error)
    else:
        assert kind not in ("compile error", "no entry point")
        assert any(build.spilled for build in kernel.builds) == (name == "slow_spill")


@NVCC
@pytest.mark.parametrize("op", ["reduce_sum", "matmul", "triangle_count"])
def test_copied_steps_compile(op, tmp_path):
    """The other ones are compiled on a GPU, where they run."""
    path = tmp_path / f"{op}.cu"
    path.write_text(copied(op))
    assert '#include "' not in path.read_text()
    assert all(build.spilled == 0 for build in load(PROBLEMS[op], path, None, tmp_path).builds)


@pytest.mark.parametrize("op", ladder.ops())
def test_the_copied_step_is_the_last_one_in_float32(op):
    names = [step.name for step in ladder.steps(op)]
    # Three steps of mul are for float16.
    assert names[2 if op == "mul" else -2] == LADDERS[op][1]


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def comparisons():
    """What is found of every wrong file and of some functions. Their processes run together."""

    def found(name: str) -> Comparison:
        kernel = EXAMPLES / name if name in SHOWN else path_of(name)
        if name in FUNCTIONS_ON_CUDA:
            kernel = getattr(functions, name)
        op, counters = FILES.get(name, ("reduce_sum",))[0], name == "slow_uncoalesced"
        return ladder.compare(op, kernel, time_limit=TIME_LIMIT, counters=counters)

    names = [*FILES, *FUNCTIONS_ON_CUDA, *SHOWN]
    with ThreadPoolExecutor(10) as pool:
        return dict(zip(names, pool.map(found, names)))


@GPU
@NVCC
@pytest.mark.alone
@pytest.mark.parametrize("name", FILES)
def test_wrong_files_are_named(name, comparisons):
    _, kind, text = FILES[name]
    found = comparisons[name]
    assert {fault.kind for fault in found.faults} == ({kind} if kind else set()), str(found)
    if name == "slow_uncoalesced" and found.counters is None:
        pytest.skip("ncu is not there, or reads no counters")
    assert text in str(found)
    if name == "wrong_only_of_views":
        assert "only of odd, one operands" in str(found)
    if name == "error":
        assert [fault.view for fault in found.faults] == ["empty"]


@GPU
@pytest.mark.alone
@pytest.mark.parametrize("name, kind", FUNCTIONS_ON_CUDA.items())
def test_functions_on_cuda_tensors(name, kind, comparisons):
    assert {fault.kind for fault in comparisons[name].faults} == {kind}


@GPU
@NVCC
@pytest.mark.alone
@pytest.mark.parametrize("name", SHOWN)
def test_examples_are_right(name, comparisons):
    found = comparisons[name]
    assert found.right and found.measured.yours["median"] > 0, str(found)
    assert ("declines" in str(found)) == name.endswith(".py")


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """The copied step of every ladder, compiled."""
    folder = tmp_path_factory.mktemp("copies")

    def made(op: str):
        path = folder / f"{op}.cu"
        path.write_text(copied(op))
        return load(PROBLEMS[op], path, None, folder)

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(LADDERS, pool.map(made, LADDERS)))


@GPU
@NVCC
@pytest.mark.alone
@pytest.mark.parametrize("op", LADDERS)
def test_a_copied_step_is_recognised(op, copies):
    if op == "matmul" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the step is for compute capability 9.0")
    events = []
    tell = lambda event, **values: events.append({"event": event} | values)  # noqa: E731
    check(PROBLEMS[op], copies[op], "cuda", True, tell)
    measure(PROBLEMS[op], copies[op], tell)
    faults = [event for event in events if event["event"] == "fault"]
    assert not faults
    found = _measured(op, events, "copy.cu")
    step = LADDERS[op][1]
    apart = found.yours["median"] / found.steps[step]["median"] - 1
    print(
        f"\n{op:28} {step:18} {found.steps[step]['median']:9.1f} us, copy {apart:+.1%}, equals {', '.join(found.equal())}"
    )
    assert abs(apart) < EQUAL and step in found.equal()


@GPU
@pytest.mark.alone
def test_the_roofline():
    found = ladder.roofline("reduce_sum")
    assert 0.8 < found.measured.share(found.measured.steps["vectors"]["median"]) < 1.2
    assert "The limit is memory" in str(found)
    assert found.measured.yours is None
