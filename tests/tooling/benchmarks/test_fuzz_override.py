"""benchmarks.random.override: random calls of ATen's operators under the override, and planted faults that it must notice."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import torch_ops
from benchmarks.random import override as fuzz_override
from benchmarks.random import processes
from benchmarks.random.calls import FAMILIES

from ...support.overriding import nothing_is_left  # noqa: F401
from ...support.params import each_device

pytestmark = pytest.mark.filterwarnings("ignore")


@each_device
@pytest.mark.parametrize("family", FAMILIES)
def test_random_calls(family, device):
    torch_ops.override_report(reset=True)
    count, found = fuzz_override.MODE.run([family], range(2000, 2060), device, seconds=60)
    report = torch_ops.override_report()
    assert count >= 30 and found == []
    assert report.taken >= 5, report


def before_the_destination(function):
    """Writes the element before the destination, as a kernel does that rounds an address down to a multiple of 16 bytes."""

    def planted(arithmetic, destination, *others):
        result = function(arithmetic, destination, *others)
        where = destination.storage_offset() - 1
        torch.empty(0, dtype=destination.dtype).set_(destination.untyped_storage(), where, (1,)).fill_(1)
        return result

    return planted


def in_a_gap(function):
    """Writes behind the first row of the destination."""

    def planted(arithmetic, destination, *others):
        result = function(arithmetic, destination, *others)
        if destination.dim() == 2 and destination.stride(0) > destination.size(1) * destination.stride(1) > 0:
            where = destination.storage_offset() + destination.size(1) * destination.stride(1)
            torch.empty(0, dtype=destination.dtype).set_(destination.untyped_storage(), where, (1,)).fill_(1)
        return result

    return planted


def a_copy_of_the_destination(function):
    return lambda *arguments: function(*arguments).clone()


def other_strides(function):
    def planted(*arguments):
        result = function(*arguments)
        return result.mT.contiguous().mT if result.dim() >= 2 else result

    return planted


def one_other_value(function):
    def planted(*arguments):
        result = function(*arguments)
        result.flatten()[-1:].add_(1) if result.is_contiguous() else None
        return result

    return planted


def a_written_operand(function):
    def planted(arithmetic, destination, source, *others):
        result = function(arithmetic, destination, source, *others)
        with torch.no_grad():
            source.zero_()
        return result

    return planted


def another_exception(function):
    def planted(*arguments):
        try:
            return function(*arguments)
        except RuntimeError as error:
            raise ValueError("another") from error

    return planted


def a_missing_version(function):
    def planted(arithmetic, destination, *others):
        with torch.autograd._unsafe_preserve_version_counter(destination):
            return function(arithmetic, destination, *others)

    return planted


@pytest.mark.parametrize(
    "plant, family, message",
    [
        (before_the_destination, "copy_", "memory around destination 0"),
        (before_the_destination, "index_add", "memory around destination 0"),
        (in_a_gap, "copy_", "memory around destination 0"),
        (a_copy_of_the_destination, "copy_", "is not the destination"),
        (a_copy_of_the_destination, "sum", "is not the destination"),
        (other_strides, "mul", "result: (("),
        (one_other_value, "index_select", "error"),
        (one_other_value, "amax", "bits"),
        (a_written_operand, "copy_", "operand 1 was written"),
        (another_exception, "dot", "error: ValueError"),
        (a_missing_version, "copy_", "versions"),
    ],
)
def test_planted_faults_are_noticed(plant, family, message):
    found = []
    for seed in range(60):
        call, d = fuzz_override.draw(family, seed, "cpu")
        found += fuzz_override.faults(call, d, plant(call.function))
    assert any(message in fault for fault in found), found[:3]


def test_planted_faults_are_planted_in_calls_without_faults():
    """The seeds of the test above find nothing by themselves."""
    for family in ("copy_", "index_add", "sum", "index_select", "amax", "dot"):
        for seed in range(60):
            call, d = fuzz_override.draw(family, seed, "cpu")
            assert list(fuzz_override.faults(call, d)) == []


def test_processes(capfd):
    """Seeds are split among processes. The last line has the sum of their calls."""
    arguments = ["override", "dot", "sum", "--calls", "5", "--processes", "2", "--device", "cpu"]
    assert fuzz_override.main(arguments[1:]) == 0
    assert capfd.readouterr().out.rstrip().endswith("10 calls on cpu, 0 faults")


def test_a_call_that_ends_its_process_is_named(capfd):
    """The parent prints the command of the call in which a process ended."""
    mode = dataclasses.replace(fuzz_override.MODE, draw=lost)
    assert mode.main("", ["dot", "--calls", "1", "--device", "cpu"]) == 1
    out = capfd.readouterr().out
    assert "exit code 3" in out and mode.command("dot", 0) in out


def lost(family, seed, device):
    """Loses the CUDA context of a process."""
    processes.is_fatal = lambda error: True
    raise RuntimeError("CUDA error: misaligned address")
