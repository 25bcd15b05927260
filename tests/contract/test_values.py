"""Values and metadata for all samples of shapes, layouts, values and dtypes, against ATen and against float64."""

from __future__ import annotations

import pytest
import torch

from ..support.compare import (
    Failures,
    different_bits,
    different_from_reference,
    different_metadata,
    different_repeats,
    errors,
    raised_by,
)
from ..support.params import EVERY_CASE, each_case, each_dtype, kept, thinned

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def _summed_errors(case, got: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor) -> float:
    """The sum of a sample's errors.

    Errors of element-wise operators are similar in all samples. Errors of sums grow with the number and size of the values, so one
    or two samples would dominate: these errors are divided by their bounds.
    """
    found = errors(got, reference)
    if not case.elementwise:
        unit = torch.where(bound > 0, bound, torch.inf)
        found = found / (unit.unsqueeze(-1) if got.is_complex() else unit)
    return float(found.sum())


@each_dtype(cases=EVERY_CASE)
def test_values(case, device, dtype):
    """dtype, shape, strides and device are ATen's. Values are within the documented error of the float64 reference, and ATen's bits
    if the operator rounds once.

    The sum of the errors over all samples is at most 1.02 times ATen's. The factor is 1.5 for sums, which are added in another
    order and have other errors of the same size: tests/rooms/reduce/test_cuda.py compares these over many sums.
    """
    failures = Failures()
    ours = theirs = 0.0
    for sample in thinned(case.samples(device, dtype), device):
        with failures.sample(sample.name):
            want = case.aten(*sample.args, **sample.kwargs)
            got = case.op(*sample.args, **sample.kwargs)
            failures.add(sample.name, different_metadata(got, want))
            if not sample.exact_inputs:
                if case.bound(device, want.dtype, want, *sample.args, **sample.kwargs) is None:
                    failures.add(f"{sample.name}, ATen", different_bits(got, want))
                continue
            reference = case.reference(*sample.args, **sample.kwargs)
            bound = case.bound(device, want.dtype, reference, *sample.args, **sample.kwargs)
            if bound is None:
                failures.add(f"{sample.name}, ATen", different_bits(got, want))
            failures.add(f"{sample.name}, float64", different_from_reference(got, reference, bound))
            if bound is not None and got.dtype == dtype:
                ours += _summed_errors(case, got, reference, bound)
                theirs += _summed_errors(case, want, reference, bound)
    failures.check(at_least=kept(150, device))
    # A float64 reference has errors of the same size as sums in float64.
    if device == "cpu" or (case.as_accurate and (case.elementwise or dtype != torch.float64)):
        assert ours <= theirs * (1.02 if case.elementwise else 1.5), f"summed error {ours}, ATen's is {theirs}"


@each_dtype(
    only=(torch.float32, torch.bfloat16, torch.complex64, torch.int8), only_cpu=(torch.float32,), cases=EVERY_CASE
)
def test_repeats_bit_for_bit_and_leaves_arguments_alone(case, device, dtype):
    failures = Failures()
    for sample in thinned(case.samples(device, dtype), device):
        with failures.sample(sample.name):
            before, versions = sample.twin(), [t._version for t in sample.tensors]
            result = case.op(*sample.args, **sample.kwargs)
            if [t._version for t in sample.tensors] != versions:
                failures.add(sample.name, "an argument's version changed")
            for now, then in zip(sample.tensors, before.tensors, strict=True):
                failures.add(sample.name, different_bits(now, then))
                if result.numel() and result.untyped_storage().data_ptr() == now.untyped_storage().data_ptr():
                    failures.add(sample.name, "the result shares memory with an argument")
            again = case.op(*before.args, **before.kwargs)
            failures.add(sample.name, different_repeats(case, device, sample, again, result))
    failures.check(at_least=kept(150, device))


def _every_dtype() -> list[torch.dtype]:
    return sorted({d for d in vars(torch).values() if isinstance(d, torch.dtype)}, key=str)


def _zeros(like: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """Zeros of a dtype, or None if numbers do not convert to it, as for dtypes that only name a number of bits."""
    try:
        zeros = torch.zeros_like(like).to(dtype)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    return None if zeros.is_quantized else zeros


@each_case
def test_takes_every_dtype_that_aten_takes(case, device):
    """gpuopt supports every dtype that ATen supports, as found by calling ATen. For other dtypes it raises ATen's exception or a
    subclass (NotImplementedError is a RuntimeError)."""
    failures = Failures()
    for dtype in _every_dtype():
        plain = next(iter(case.few(device, torch.float32)))
        args = plain.map(lambda t, dtype=dtype: _zeros(t, dtype) if t.is_floating_point() else t)
        if len(args.tensors) < len(plain.tensors):
            continue
        with failures.sample(str(dtype)):
            refusal = raised_by(case.aten, *args.args, **args.kwargs)
            if refusal is not None:
                ours = raised_by(case.op, *args.args, **args.kwargs)
                failures.add(str(dtype), None if isinstance(ours, type(refusal)) else f"{ours!r}, expected {refusal!r}")
                continue
            want = case.aten(*args.args, **args.kwargs)
            got = case.op(*args.args, **args.kwargs)
            failures.add(str(dtype), different_metadata(got, want))
            failures.add(str(dtype), different_bits(*(t.reshape(-1).view(torch.uint8) for t in (got, want))))
    failures.check(at_least=10)
