"""Comparisons of results. Each returns None or a sentence that describes the difference.

So a test can continue with its next sample, and finally report all failures with the names of their samples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable

import torch

from benchmarks.references.dtypes import real_of

from ..cases import OpCase, Sample

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Failures:
    """Collects failures by sample. Inside `with failures.sample(name):` an exception counts as a failure of that sample."""

    def __init__(self):
        self._found: list[str] = []
        self.samples = 0

    def add(self, name: str, problem: str | None) -> None:
        if problem is not None:
            self._found.append(f"[{name}] {problem}")

    @contextlib.contextmanager
    def sample(self, name: str):
        self.samples += 1
        try:
            yield
        except Exception as error:
            self.add(name, f"{type(error).__name__}: {str(error)[:2000]}")

    def check(self, at_least: int = 1) -> None:
        """Fails if a sample failed or fewer than `at_least` ran. Otherwise a test that lost its samples would pass."""
        shown = "\n".join(self._found[:12])
        assert not self._found, f"{len(self._found)} problems in {self.samples} samples, first ones:\n{shown}"
        assert self.samples >= at_least, f"only {self.samples} samples ran, expected at least {at_least}"


def raised_by(function: Callable, *args, **kwargs) -> Exception | None:
    """The exception that a call raises, or None."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return error
    return None


def components(t: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of reals, and other tensors unchanged, with conj and neg bits resolved."""
    t = t.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(t) if t.is_complex() else t


def metadata(t: torch.Tensor) -> tuple:
    return t.dtype, t.device, tuple(t.shape), tuple(t.stride()), t.is_conj(), t.is_neg()


def different_metadata(got: torch.Tensor, want: torch.Tensor, device: bool = True) -> str | None:
    """Compares dtype, device, shape and strides. `device=False` allows a Meta or fake tensor beside a real one."""
    names = ("dtype", "device", "shape", "strides", "conj bit", "neg bit")
    for name, ours, theirs in zip(names, metadata(got), metadata(want), strict=True):
        if ours != theirs and (device or name != "device"):
            return f"{name} is {ours}, expected {theirs}"
    return None


def different_bits(got: torch.Tensor, want: torch.Tensor) -> str | None:
    """Compares bits. Any NaN equals any other NaN. -0.0 differs from 0.0."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)}, expected {want.dtype} {tuple(want.shape)}"
    ours, theirs = components(got), components(want)
    if ours.dtype == torch.bool:
        same = ours.contiguous().view(torch.uint8) == theirs.contiguous().view(
            torch.uint8
        )  # bytes: also finds a true value that is not stored as 1
    elif ours.is_floating_point():
        bits = _BITS[ours.element_size()]
        same = ours.contiguous().view(bits) == theirs.contiguous().view(bits)
        same |= ours.isnan() & theirs.isnan()
    else:
        same = ours == theirs
    return None if bool(same.all()) else _first(~same, ours, theirs)


def _first(wrong: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor) -> str:
    where = wrong.nonzero()[0].tolist()
    return (
        f"{int(wrong.sum())} of {wrong.numel()} elements differ, first at {where}: "
        f"{ours[tuple(where)].item()!r}, expected {theirs[tuple(where)].item()!r}"
    )


def half_ulp(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half the spacing of `dtype` around the float64 reference, which is the largest error of one rounding."""
    info = torch.finfo(dtype)
    subnormal = info.smallest_normal * info.eps
    _, exponent = torch.frexp(reference)
    spacing = torch.ldexp(torch.full_like(reference, info.eps / 2), exponent)
    return 0.5 * torch.clamp(torch.where(reference.isfinite(), spacing, 0.0), min=subnormal)


def errors(got: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """|got - reference| per component in float64, for components where both are finite."""
    ours, exact = components(got).double(), components(reference)
    return torch.where(ours.isfinite() & exact.isfinite(), (ours - exact).abs(), 0.0)


def different_from_reference(got: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor | None) -> str | None:
    """Checks that errors are at most half an ulp of `got`'s dtype plus `bound` (per element).

    The reference is in float64, complex128, int64 or bool.
    """
    if reference.shape != got.shape:
        return f"shape {tuple(got.shape)}, the reference has {tuple(reference.shape)}"
    if not (got.dtype.is_floating_point or got.dtype.is_complex):
        return different_bits(got, reference.to(got.dtype))  # to() wraps around like integer arithmetic
    real = real_of(got.dtype)
    ours, exact = components(got), components(reference)
    allowed = half_ulp(exact, real) * (1 + 2.0**-20)
    if bound is not None:
        allowed = allowed + (bound.unsqueeze(-1) if got.is_complex() else bound)
    wide = ours.double()
    rounded = exact.to(real).double()  # a value that rounds to infinity may be infinite
    near = (wide - exact).abs() <= allowed
    # With a bound wider than half an ulp, either of result and reference may be infinite and the other near the largest number.
    largest = torch.finfo(real).max
    edge = wide.isinf() & (exact.abs() + allowed >= largest) & (wide.sign() == exact.sign())
    same = (wide == rounded) | near | edge | allowed.isinf() | (wide.isnan() & exact.isnan())
    if got.is_complex():  # whether a complex product has infinities or NaNs depends on the order of its sums
        same |= ~exact.isfinite().all(-1, keepdim=True) & ~wide.isfinite().all(-1, keepdim=True)
    return None if bool(same.all()) else _first(~same, wide, exact)


def different_results(case: OpCase, device: str, sample: Sample, got: torch.Tensor, want: torch.Tensor) -> str | None:
    """Compares `got` with `want`, the result of the same call with operands or out of another layout.

    They must be the same bits, unless the layout may change the order of a sum. Then `got` is compared with the reference.
    """
    if case.elementwise or case.bound(device, want.dtype, want, *sample.args, **sample.kwargs) is None:
        return different_bits(got, want)
    if not sample.exact_inputs:
        return close(got, want)
    reference = case.reference(*sample.args, **sample.kwargs)
    bound = case.bound(device, want.dtype, reference, *sample.args, **sample.kwargs)
    return different_from_reference(got, reference, bound)


def different_repeats(case: OpCase, device: str, sample: Sample, got: torch.Tensor, want: torch.Tensor) -> str | None:
    """Compares `got` with `want`, the result of the same call on the same tensors.

    They must be the same bits, unless the operator does not promise that.
    """
    return (
        different_bits(got, want)
        if case.repeatable(device, sample)
        else different_results(case, device, sample, got, want)
    )


def close(got: torch.Tensor, want: torch.Tensor, ulps: float = 4) -> str | None:
    """Checks that shapes and dtypes are equal, and values within `ulps` roundings of the largest value in the tensor.

    This is for gradients, which are sums.
    """
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype} {tuple(got.shape)}, expected {want.dtype} {tuple(want.shape)}"
    if not (got.is_floating_point() or got.is_complex()):
        return different_bits(got, want)
    ours, theirs = components(got).double(), components(want).double()
    if ours.dim() > 25:  # CUDA's indexing by masks supports at most 25 dimensions
        ours, theirs = ours.flatten(), theirs.flatten()
    if ours.numel() == 0:
        return None
    finite = theirs[theirs.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    allowed = ulps * torch.finfo(got.dtype).eps * scale
    same = ((ours - theirs).abs() <= allowed) | (ours == theirs) | (ours.isnan() & theirs.isnan())
    return None if bool(same.all()) else _first(~same, ours, theirs)


def all_close(got: Iterable, want: Iterable, ulps: float = 4) -> str | None:
    """`close` for each pair of two sequences of tensors. None (no gradient) only equals None."""
    for k, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        if (ours is None) != (theirs is None):
            return f"number {k} is {ours}, expected {theirs}"
        problem = None if ours is None else close(ours, theirs, ulps)
        if problem:
            return f"number {k}: {problem}"
    return None
