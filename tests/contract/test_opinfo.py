"""Runs gpuopt's operators on PyTorch's own samples and error inputs (OpInfo) for the corresponding ATen operators."""

from __future__ import annotations

import pytest
import torch

from ..support.compare import (
    Failures,
    close,
    different_bits,
    different_from_reference,
    different_metadata,
    raised_by,
)
from ..support.params import CASES, each_device, each_dtype

pytest.importorskip("expecttest", reason="torch.testing's OpInfo database imports expecttest")
from torch.testing._internal.common_methods_invocations import op_db

pytestmark = pytest.mark.filterwarnings("ignore:`nn.functional.upsample_nearest` is deprecated")
OPINFO = {info.full_name: info for info in op_db}
LINKED = [case for case in CASES if case.opinfo]


def _adapted(link, sample):
    """PyTorch's sample as arguments for gpuopt and for ATen. The first argument of gpuopt's operators is always a tensor."""
    aten_args = (sample.input, *sample.args)
    adapted = link.adapt(*aten_args, **sample.kwargs) if isinstance(sample.input, torch.Tensor) else None
    return None if adapted is None else (adapted, (aten_args, sample.kwargs))


@each_dtype(cases=LINKED, only=(torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64))
def test_samples(case, device, dtype):
    failures = Failures()
    at_least = 0
    for link in case.opinfo:
        info = OPINFO[link.name]
        if dtype not in info.supported_dtypes(device):
            continue
        at_least = max(at_least, link.at_least)
        for kind in ("sample_inputs", "reference_inputs"):
            for k, sample in enumerate(getattr(info, kind)(device, dtype)):
                adapted = _adapted(link, sample)
                if adapted is None:
                    continue
                (args, kwargs), (aten_args, aten_kwargs) = adapted
                name = f"{link.name} {kind} {k}: {sample.name or sample.summary()}"[:300]
                with failures.sample(name):
                    refusal = raised_by(info.op, *aten_args, **aten_kwargs)
                    if refusal is not None:
                        ours = raised_by(case.op, *args, **kwargs)
                        failures.add(name, None if type(ours) is type(refusal) else f"{ours!r}, expected {refusal!r}")
                        continue
                    # ATen's dot of two conjugated vectors is a conjugated view. A result of gpuopt never is.
                    want, got = info.op(*aten_args, **aten_kwargs).resolve_conj(), case.op(*args, **kwargs)
                    failures.add(name, different_metadata(got, want))
                    bound = case.bound(device, want.dtype, want, *args, **kwargs)
                    if bound is None or case.elementwise:
                        failures.add(name, different_bits(got, want) if bound is None else close(got, want))
                    else:
                        failures.add(name, different_from_reference(got, case.reference(*args, **kwargs), bound))
    failures.check(at_least)


@each_device
@pytest.mark.parametrize("case", LINKED, ids=str)
def test_error_inputs(case, device):
    failures = Failures()
    for link in case.opinfo:
        info = OPINFO[link.name]
        for k, error in enumerate(info.error_inputs(device) if info.error_inputs_func else ()):
            adapted = _adapted(link, error.sample_input)
            if adapted is None:
                continue
            (args, kwargs), (aten_args, aten_kwargs) = adapted
            name = f"{link.name} error {k}: {error.sample_input.name}"
            with failures.sample(name):
                theirs, ours = raised_by(info.op, *aten_args, **aten_kwargs), raised_by(case.op, *args, **kwargs)
                failures.add(name, None if type(ours) is type(theirs) else f"{ours!r}, expected {theirs!r}")
    failures.check(at_least=0)
