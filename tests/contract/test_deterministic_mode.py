"""torch.use_deterministic_algorithms(True), which also makes torch.empty fill the memory that it returns."""

from __future__ import annotations

import collections

import torch
from torch.autograd.profiler import profile

from ..support.compare import Failures
from ..support.params import each_case
from ..support.runtime import deterministic_algorithms


def _events(sample, op) -> collections.Counter:
    with profile() as found:
        op(*sample.args, **sample.kwargs)
    return collections.Counter(event.name for event in found.function_events)


def _fills(sample, op) -> int:
    return _events(sample, op)["aten::fill_"]


@each_case
def test_results_and_scratch_are_not_filled_first(case, device):
    """Filling a result that a kernel overwrites is wasted time. ATen's structured operators do not fill theirs either.

    On the CPU, gpuopt fills no more than the ATen kernels that it calls, and so do index_select and matmul, which call ATen's kernels
    for some operands on CUDA, too. Convolutions are left out, because ATen's fill their results. So are sparse products, segments,
    scatter and batch norm on the CPU, which are made of several of ATen's operators.
    """
    composed = device == "cpu" and (
        case.name in ("batch_norm", "instance_norm", "scatter", "spmm") or "segment" in case.name
    )
    if "conv" in case.name or composed:
        return
    failures = Failures()
    for sample in case.few(device, torch.float32):
        with failures.sample(sample.name):
            events = _events(sample, case.op)
            # PyTorch fills the memory of its own copies first.
            before = events["aten::fill_"] + events["aten::clone"] + events["aten::_to_copy"]
            with deterministic_algorithms():
                try:
                    found = _fills(sample, case.op)
                except RuntimeError as error:
                    assert "deterministic" in str(error)
                    continue
                calls_aten = device == "cpu" or case.name in ("index_select", "matmul")
                allowed = max(before, _fills(sample, case.aten)) if calls_aten else before
            if found > allowed:
                failures.add(sample.name, f"{found} fills, {before} outside of the mode")
    failures.check(at_least=3)
