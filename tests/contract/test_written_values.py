"""Values of in-place and out= variants: what they write, in every dtype and layout."""

from __future__ import annotations

import pytest
import torch

from ..cases import tensors
from ..cases.tensors import in_layout
from ..support.compare import Failures, close, different_bits, different_metadata, different_results, raised_by
from ..support.params import each_dtype, kept, thinned, with_variant

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
INPLACE, OUT = with_variant("inplace"), with_variant("out")

# The dtypes that kernels treat differently: each item size, pairs of fp16 or bf16, bools, complex numbers.
DTYPES = (
    torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool, torch.complex64,
)  # fmt: skip
INTEGRAL = (*tensors.INTEGERS, torch.bool)
OUT_LAYOUTS = ("contiguous", "transposed", "rows", "step2", "misaligned1", "rotated", "channels_last", "sliced")


def _near(got, want):
    same = torch.allclose(got, want, rtol=1e-5, equal_nan=True) or not bool(
        torch.isfinite(torch.view_as_real(want.resolve_conj())).all()
    )
    return None if same else "values differ from ATen's"


@each_dtype(only=DTYPES, cases=INPLACE)
def test_inplace_values(case, device, dtype):
    """Values and refusals are ATen's. The result is self itself: its strides stay, and its version increases by one."""
    failures = Failures()
    taken = 0
    for sample in thinned(case.samples(device, dtype), device):
        with failures.sample(sample.name):
            ours, theirs = sample.twin(), sample.twin()
            refusal = raised_by(case.inplace.aten, *theirs.args, **theirs.kwargs)
            self, before = ours.args[0], tensors.twin(ours.args[0])
            version = self._version
            error = raised_by(case.inplace.op, *ours.args, **ours.kwargs)
            if type(error) is not type(refusal):
                failures.add(sample.name, f"{error!r}, expected {refusal!r}")
            elif refusal is not None:
                failures.add(sample.name, different_bits(self, before))
            else:
                taken += 1
                want = theirs.args[0]
                failures.add(sample.name, different_metadata(self, want))
                near = dtype.is_complex and case.elementwise
                failures.add(
                    sample.name, _near(self, want) if near else different_results(case, device, sample, self, want)
                )
                if self._version != version + 1:
                    failures.add(sample.name, f"version moved by {self._version - version}, expected 1")
    failures.check(at_least=kept(100, device))
    assert taken > 0


def _out_for(result: torch.Tensor, layout: str) -> torch.Tensor | None:
    """A poisoned tensor of the result's shape in some layout."""
    blank = tensors.poison(result.shape, result.dtype, result.device)
    return in_layout(layout, blank)


@each_dtype(only=DTYPES, cases=OUT)
def test_out_values(case, device, dtype):
    """out in any layout is filled as by ATen, and its strides stay. Successive samples use successive layouts."""
    failures = Failures()
    for k, sample in enumerate(thinned(case.samples(device, dtype), device)):
        with failures.sample(sample.name):
            want = case.aten(*sample.args, **sample.kwargs)
            layout = OUT_LAYOUTS[k % len(OUT_LAYOUTS)]
            out = _out_for(want, layout)
            if out is None:
                out = _out_for(want, "contiguous")
            strides, version = out.stride(), out._version
            returned = case.out.op(*sample.args, out=out, **sample.kwargs)
            assert returned is out
            if out.stride() != strides or out.shape != want.shape:
                failures.add(
                    sample.name, f"out has shape {tuple(out.shape)} and strides {out.stride()}, it had {strides}"
                )
            if out._version != version + 1:
                failures.add(sample.name, f"version moved by {out._version - version}, expected 1")
            near = dtype.is_complex and case.elementwise
            problem = _near(out, want) if near else different_results(case, device, sample, out, want)
            failures.add(f"{sample.name} into {layout}", problem)
    failures.check(at_least=kept(150 if case.name == "mul.Scalar" else 400, device))


@pytest.mark.torch_version
@each_dtype(only=DTYPES, cases=OUT)
def test_out_of_another_dtype(case, device, dtype):
    """Values are ATen's, which computes in the result's dtype and casts, or computes in out's dtype. Calls that ATen refuses are
    refused and write nothing."""
    failures = Failures()
    for sample in case.few(device, dtype):
        for out_dtype in tensors.ALL:
            name = f"{sample.name} into {out_dtype}"
            want = torch.zeros_like(case.aten(*sample.args, **sample.kwargs), dtype=out_dtype)
            out = torch.zeros_like(want)
            with failures.sample(name):
                refusal = raised_by(case.out.aten, *sample.args, out=want, **sample.kwargs)
                if refusal is None and device == "cuda" and case.name == "reduce_mean" and out_dtype in INTEGRAL:
                    continue  # ATen's CUDA kernel fills out with sums times zero; its CPU kernel and gpuopt refuse
                error = raised_by(case.out.op, *sample.args, out=out, **sample.kwargs)
                both_refuse = isinstance(refusal, RuntimeError) and isinstance(error, RuntimeError)
                if type(error) is not type(refusal) and not both_refuse:
                    failures.add(name, f"{error!r}, expected {refusal!r}")
                if refusal is not None:
                    failures.add(name, different_bits(out, torch.zeros_like(out)))
                elif out_dtype.is_complex:
                    failures.add(name, _near(out.to(torch.complex64), want.to(torch.complex64)))
                else:
                    exact = case.bound(device, out_dtype, want, *sample.args, **sample.kwargs) is None
                    failures.add(name, different_bits(out, want) if exact or case.elementwise else close(out, want))
    failures.check(at_least=100)
