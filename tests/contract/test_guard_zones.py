"""No call writes outside its output, and no value depends on memory outside the inputs.

Every buffer lies inside a larger one filled with poison, which is compared as a whole afterwards. A planted overrun proves that the
comparison notices one.
"""

from __future__ import annotations

import pytest
import torch

from ..cases import tensors
from ..support.compare import Failures, close, different_bits, different_results, raised_by
from ..support.params import EVERY_CASE, each_device, each_dtype, kept, thinned, with_variant

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
GUARD = 64  # elements on each side: more than a vector of 16 int8 and its neighbours in a warp's access
DTYPES = (torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.complex64)
ON_CPU = (torch.float32,)


class Guarded:
    """A tensor with the size and strides of `like`, and with poison around it and in its gaps.

    `shift` is its distance from a 16-byte boundary, in elements.
    """

    def __init__(self, like: torch.Tensor, shift: int = 0, fill: bool = False):
        span = 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True)) if like.numel() else 0
        self.buffer = tensors.poison([span + 2 * GUARD + shift], like.dtype, like.device)
        self.tensor = self.buffer.as_strided(like.shape, like.stride(), GUARD + shift)
        if fill:
            self.tensor.copy_(like)

    def problem(self, expected: torch.Tensor | None) -> str | None:
        """Describes differences between the buffer and poison with `expected` inside. None expects the buffer as it was made."""
        want = tensors.poison(self.buffer.shape, self.buffer.dtype, self.buffer.device)
        inside = want.as_strided(self.tensor.shape, self.tensor.stride(), self.tensor.storage_offset())
        if expected is not None:
            inside.copy_(expected)
        return different_bits(self.buffer, want)


def _dense_strides(t: torch.Tensor) -> bool:
    """Whether every element has an address of its own. Only then can a guarded tensor be filled."""
    return all(s != 0 for n, s in zip(t.shape, t.stride(), strict=True) if n > 1)


def _guarded_inputs(sample, shift):
    guards = []

    def guard(t):
        if t.is_conj() or t.is_neg() or not _dense_strides(t):
            return t
        guards.append((Guarded(t, shift, fill=True), t))
        return guards[-1][0].tensor

    return sample.map(guard), guards


@each_dtype(only=DTYPES, only_cpu=ON_CPU, cases=EVERY_CASE)
def test_inputs(case, device, dtype):
    """Results are the same bits with poison around every input, and the poison is unchanged."""
    failures = Failures()
    for k, sample in enumerate(thinned(case.samples(device, dtype), device, keep=1)):
        with failures.sample(sample.name):
            guarded, guards = _guarded_inputs(sample, shift=k % 5)
            got = case.op(*guarded.args, **guarded.kwargs)
            want = case.op(*sample.args, **sample.kwargs)
            exact = case.bound(device, want.dtype, want, *sample.args, **sample.kwargs) is None
            if not case.elementwise:
                failures.add(sample.name, different_results(case, device, sample, got, want))
            elif exact or device != "cpu":  # ATen's CPU kernels round differently in vectors than in tails
                failures.add(sample.name, different_bits(got, want))
            elif not torch.equal(got.isfinite(), want.isfinite()):
                failures.add(sample.name, "poison got into the result")
            for guard, values in guards:
                failures.add(f"{sample.name}, input", guard.problem(values))
    failures.check(at_least=kept(150, device, keep=1))


@each_dtype(only=DTYPES, only_cpu=ON_CPU, cases=with_variant("out"))
def test_out(case, device, dtype):
    failures = Failures()
    for k, sample in enumerate(thinned(case.samples(device, dtype), device, keep=1)):
        with failures.sample(sample.name):
            want = case.op(*sample.args, **sample.kwargs)
            gaps = tensors.in_layout(("contiguous", "rows", "step2", "sliced")[k % 4], want)
            guard = Guarded(want if gaps is None else gaps, shift=k % 7)
            case.out.op(*sample.args, out=guard.tensor, **sample.kwargs)
            failures.add(sample.name, guard.problem(guard.tensor.clone()))
            if dtype.is_complex and case.elementwise:
                failures.add(
                    sample.name,
                    None if torch.equal(guard.tensor.isfinite(), want.isfinite()) else "poison is left in out",
                )
            else:
                failures.add(sample.name, different_results(case, device, sample, guard.tensor, want))
    failures.check(at_least=kept(150, device, keep=1))


@each_dtype(only=DTYPES, only_cpu=ON_CPU, cases=with_variant("inplace"))
def test_inplace(case, device, dtype):
    failures = Failures()
    for k, sample in enumerate(thinned(case.samples(device, dtype), device, keep=1)):
        self = sample.args[0]
        if (
            raised_by(case.inplace.aten, *sample.twin().args, **sample.kwargs) is not None
            or self.is_conj()
            or self.is_neg()
        ):
            continue
        with failures.sample(sample.name):
            guard = Guarded(self, shift=k % 7, fill=True)
            case.inplace.op(guard.tensor, *sample.args[1:], **sample.kwargs)
            failures.add(sample.name, guard.problem(guard.tensor.clone()))
    failures.check(at_least=kept(50, device, keep=1))


@each_dtype(only=DTYPES, only_cpu=ON_CPU, cases=[case for case in EVERY_CASE if case.writes])
def test_written_arguments(case, device, dtype):
    """An operator that updates an argument, such as a state, writes all of it and nothing around it."""
    failures = Failures()
    names = [a.name for a in case.overload._schema.arguments]
    for k, sample in enumerate(thinned(case.samples(device, dtype), device, keep=1)):
        written = {k: a for k, a in enumerate(sample.args) if names[k] in case.writes}
        if any(a.is_conj() or a.is_neg() or not _dense_strides(a) for a in written.values()):
            continue
        with failures.sample(sample.name):
            guards = {i: Guarded(a, shift=k % 17, fill=True) for i, a in written.items()}
            args = [guards[i].tensor if i in guards else a for i, a in enumerate(sample.args)]
            case.overload(*args, **sample.kwargs)
            plain = sample.twin()
            case.overload(*plain.args, **sample.kwargs)
            for i, guard in guards.items():
                failures.add(sample.name, guard.problem(guard.tensor.clone()))
                want = plain.args[i]
                exact = case.bound(device, want.dtype, want, *sample.args, **sample.kwargs) is None
                failures.add(sample.name, (different_bits if exact else close)(guard.tensor, want))
    failures.check(at_least=kept(100, device, keep=1))


@each_device
@pytest.mark.parametrize("layout", ["contiguous", "rows", "step2", "transposed"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_planted_overrun_is_noticed(device, dtype, layout):
    """Writes an ordinary value to one element before, after or in a gap of the tensor."""
    like = tensors.in_layout(layout, tensors.Maker(device, dtype)(6, 5))
    result = torch.ones_like(like)
    first = Guarded(like).tensor.storage_offset()
    span = sum((n - 1) * s for n, s in zip(like.shape, like.stride(), strict=True))
    overruns = {"before": first - 1, "after": first + span + 1, "far after": first + span + GUARD}
    if layout in ("rows", "step2"):
        overruns["gap"] = first + like.shape[-1] * like.stride(-1) - (1 if layout == "step2" else 0)
    untouched = Guarded(like)
    untouched.tensor.copy_(result)
    assert untouched.problem(result) is None
    for where, index in overruns.items():
        guard = Guarded(like)
        guard.tensor.copy_(result)
        guard.buffer[index] = 1
        assert guard.problem(result) is not None, f"an element written {where} went unnoticed"
