"""Derivatives in reverse and forward mode, against finite differences in float64 and against ATen's in every other dtype."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

from benchmarks.references.dtypes import real_of

from ..support.compare import Failures, all_close, close, different_bits, raised_by
from ..support.params import each_case, each_differentiable, each_dtype, kept, thinned

pytestmark = [pytest.mark.torch_version, pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")]

WIDE = (torch.float64, torch.complex128)


def _grad_samples(case, device, dtype, only=(), thin=False):
    """The small samples whose arguments and result are differentiable. `thin` leaves some out on the CPU."""
    for sample in thinned(case.few(device, dtype), device) if thin else case.few(device, dtype):
        leaves = sample.twin().requiring_grad(only)
        result = case.aten(*leaves.args, **leaves.kwargs)
        if result.dtype == torch.complex32 and device == "cuda":
            continue  # the substitute for ATen's operator rounds its gradients at other points
        if only and result.dtype not in only:
            continue  # the result has a dtype too coarse for finite differences
        if leaves.differentiable and result.requires_grad:
            yield leaves


def _function(op, sample):
    """The call as a function of its differentiable tensors alone."""

    def call(*differentiable):
        given = iter(differentiable)
        bound = sample.map(lambda t: next(given) if t.requires_grad else t)
        return op(*bound.args, **bound.kwargs)

    return call


def _bump(t: torch.Tensor) -> torch.Tensor:
    """An incoming gradient that is not constant, so that a gradient transposed or summed over a wrong dimension is noticed."""
    steps = torch.linspace(0.5, 1.5, t.numel(), device=t.device, dtype=torch.float64)
    return ((steps - 0.25j * steps) if t.is_complex() else steps).view(t.shape).to(t.dtype)


@each_dtype(of="grad_dtypes", only=WIDE, only_cpu=WIDE)
def test_gradcheck(case, device, dtype):
    """torch.autograd.gradcheck of reverse mode, forward mode, batched and undefined gradients, with complex and broadcast
    inputs."""
    failures = Failures()
    for sample in _grad_samples(case, device, dtype, only=WIDE, thin=True):
        if device == "cpu" and any(t.numel() > 500 for t in sample.differentiable):
            continue  # every value is a call, and on the CPU ATen's kernels run
        with failures.sample(sample.name):
            inputs = tuple(sample.differentiable)
            checks = {"check_forward_ad": True, "check_batched_grad": True, "check_batched_forward_grad": True}
            assert gradcheck(_function(case.op, sample), inputs, **checks)
    failures.check(at_least=kept(6, device))


@each_dtype(of="grad_dtypes", only=WIDE, only_cpu=(torch.float64,))
def test_gradgradcheck(case, device, dtype):
    failures = Failures()
    for sample in _grad_samples(case, device, dtype, only=WIDE, thin=True):
        if any(t.numel() > 12 for t in sample.differentiable):
            continue  # the cost is quadratic; larger layouts are only checked to first order
        with failures.sample(sample.name):
            assert gradgradcheck(
                _function(case.op, sample),
                tuple(sample.differentiable),
                check_fwd_over_rev=True,
                check_rev_over_rev=True,
            )
    failures.check(at_least=kept(6, device))


def _each_input(sample):
    """The sample with all its differentiable tensors requiring grad, then with one at a time."""
    yield "all inputs", sample
    for k, alone in enumerate(sample.differentiable):
        yield f"input {k}", sample.map(lambda t, alone=alone: t if t is alone else t.detach())


@each_dtype(of="grad_dtypes")
def test_gradients_equal_atens(case, device, dtype):
    """dtype, shape and value of every gradient: with mixed dtypes, real and complex, broadcasts, and each input alone."""
    failures = Failures()
    for every in _grad_samples(case, device, dtype):
        for which, sample in _each_input(every):
            with failures.sample(f"{sample.name}, {which}"):
                theirs = None
                # ATen cannot differentiate complex32 results on the CPU where that needs a sum.
                with contextlib.suppress(NotImplementedError):
                    theirs = _gradients(case.aten, sample)
                if theirs is not None:
                    ours = _gradients(case.op, sample)
                    failures.add(f"{sample.name}, {which}", all_close(ours, theirs, case.ulps(dtype, 4)))
    failures.check(at_least=12)


def _gradients(op, sample) -> tuple:
    result = op(*sample.args, **sample.kwargs)
    return torch.autograd.grad(result, sample.differentiable, _bump(result))


@each_dtype(of="grad_dtypes", only=(torch.float32, torch.complex64, torch.bfloat16))
def test_second_derivatives_equal_atens(case, device, dtype):
    failures = Failures()
    for sample in _grad_samples(case, device, dtype):
        with failures.sample(sample.name):
            inputs = sample.differentiable
            second = []
            for op in (case.op, case.aten):
                result = op(*sample.args, **sample.kwargs)
                weights = _bump(result).requires_grad_()
                first = torch.autograd.grad(result, inputs, weights, create_graph=True, allow_unused=True)
                total = sum((g * g.conj()).real.sum().float() for g in first if g is not None)
                second.append(torch.autograd.grad(total, [*inputs, weights], allow_unused=True))
            # ATen returns None for gradients that it knows to be zero. Zeros are equivalent.
            for k, (ours, theirs) in enumerate(zip(*second, strict=True)):
                if theirs is None or ours is None:
                    given = ours if theirs is None else theirs
                    assert given is None or not given.any(), f"second derivative {k}"
                else:
                    # With dtype=, a float64 derivative comes from gradients that were rounded to the input's dtype.
                    coarser = max(torch.finfo(dtype).eps / torch.finfo(ours.dtype).eps, 1)
                    failures.add(sample.name, close(ours, theirs, case.ulps(dtype, 8) * coarser))
    failures.check(at_least=8)


@each_dtype(of="grad_dtypes")
def test_tangents_equal_atens(case, device, dtype):
    """Forward mode, with a tangent on each input alone and on all. Writing to the result leaves the inputs' tangents alone."""
    failures = Failures()
    for sample in _grad_samples(case, device, dtype):
        for which, active in _each_input(sample):
            with failures.sample(f"{sample.name}, {which}"):
                with forward_ad.dual_level():
                    given = []

                    def with_tangent(t, given=given):
                        if not t.requires_grad:
                            return t
                        given.append((_bump(t), _bump(t)))
                        return forward_ad.make_dual(t.detach(), given[-1][0])

                    dual = active.map(with_tangent)
                    result = case.op(*dual.args, **dual.kwargs)
                    primal, ours = (t.clone() for t in forward_ad.unpack_dual(result))
                    _, theirs = forward_ad.unpack_dual(case.aten(*dual.args, **dual.kwargs))
                    result.mul_(3)
                    assert all(torch.equal(tangent, before) for tangent, before in given), "the result shares a tangent"
                assert ours is not None and ours.dtype == primal.dtype
                # ATen's tangent of a 0-d sum with alpha is sometimes float64.
                failures.add(f"{sample.name}, {which}", close(ours, theirs.to(ours.dtype), case.ulps(dtype, 8)))
    failures.check(at_least=12)


@each_case
def test_no_graph_unless_needed(case, device):
    """There is no node if nothing requires grad or under no_grad. Otherwise the node saves no more tensors than ATen's (or than the
    call has, for operators whose gradient computes the results again), and saves them through hooks."""
    for sample in case.few(device, torch.float32):
        plain = case.op(*sample.args, **sample.kwargs)
        assert not plain.requires_grad and plain.grad_fn is None
    for sample in _grad_samples(case, device, torch.float32):
        with torch.no_grad():
            assert case.op(*sample.args, **sample.kwargs).grad_fn is None
        for which, active in _each_input(sample):
            ours, theirs = (_count_saved(op, active) for op in (case.op, case.aten))
            theirs = max(theirs, len(active.tensors)) if case.saves_inputs else theirs
            assert ours <= theirs, f"[{sample.name}, {which}] saves {ours} tensors, ATen {theirs}"


def _count_saved(op, sample) -> int:
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        assert op(*sample.args, **sample.kwargs).requires_grad
    return len(saved)


@each_differentiable
def test_saved_tensors_go_through_hooks(case, device):
    """Hooks that save a copy (as in offloading and checkpointing) give the same gradients. A copy has no gaps, and for convolutions
    the layout may change the order of additions."""
    failures = Failures()
    for sample in _grad_samples(case, device, torch.float32):
        with failures.sample(sample.name):
            grads = []
            hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().cpu().clone(), lambda t: t.to(device))
            for context in (hooks, contextlib.nullcontext()):
                with context:
                    result = case.op(*sample.args, **sample.kwargs)
                grads.append(torch.autograd.grad(result, sample.differentiable, _bump(result)))
            failures.add(sample.name, all_close(*grads, ulps=0 if case.cancels == 1 else case.ulps(torch.float32, 1)))
    failures.check(at_least=8)


@each_case
def test_backward_twice(case, device):
    """Backward releases the saved tensors, so a second backward is refused, as ATen's is. With retain_graph they are kept, and
    gradients are the same bits again. A node that saves nothing may run twice: ATen saves a number as a tensor, gpuopt need not."""
    for sample in _grad_samples(case, device, torch.float32):
        refusals = []
        for op in (case.op, case.aten):
            result = op(*sample.args, **sample.kwargs)
            weights = _bump(result)
            first = torch.autograd.grad(result, sample.differentiable, weights, retain_graph=True)
            second = torch.autograd.grad(result, sample.differentiable, weights)
            for a, b in zip(first, second, strict=True):
                # ATen's kernels may add atomically.
                assert op is case.aten or different_bits(a, b) is None, sample.name
            refusals.append(raised_by(torch.autograd.grad, result, sample.differentiable, weights))
        wanted = refusals[1] if _count_saved(case.op, sample) else None
        assert type(refusals[0]) is type(wanted), f"[{sample.name}] {refusals[0]!r}, expected {wanted!r}"


def _gradients_after_a_write(op, sample, k: int) -> tuple:
    """The gradients when tensor number `k` is doubled between forward and backward."""
    copies = sample.map(lambda t: t * 1)  # not leaves, so that they can be written to
    result = op(*copies.args, **copies.kwargs)
    copies.tensors[k].mul_(2)
    return torch.autograd.grad(result, sample.differentiable, _bump(result), allow_unused=True)


@each_case
def test_write_to_saved_tensor_is_noticed(case, device):
    """Backward is refused, as ATen's is, if an input that it needs was changed after the forward. Each input is tested.

    Two differences are allowed. gpuopt need not save an input that ATen saves for its shape: its gradients are then right for the
    old values. And gpuopt may refuse where ATen has saved a copy.
    """
    for sample in _grad_samples(case, device, torch.float32):
        if any(t.numel() == 0 for t in sample.tensors):
            continue
        for k in range(len(sample.tensors)):
            ours, theirs = (raised_by(_gradients_after_a_write, op, sample, k) for op in (case.op, case.aten))
            if ours is None and theirs is not None:
                problem = all_close(_gradients_after_a_write(case.op, sample, k), _gradients(case.op, sample), ulps=0)
                assert problem is None, f"[{sample.name}] input {k}: {problem}"
            elif "modified by an inplace operation" not in str(ours) or not case.saves_inputs:
                assert type(ours) is type(theirs), f"[{sample.name}] input {k}: {ours!r}, expected {theirs!r}"


@each_case
def test_gradients_accumulate_into_leaves(case, device):
    """backward() twice adds up, and .grad has the leaf's dtype, shape and strides."""
    for sample in _grad_samples(case, device, torch.float32):
        for _ in range(2):
            result = case.op(*sample.args, **sample.kwargs)
            result.backward(_bump(result))
        wanted = torch.autograd.grad(case.aten(*sample.args, **sample.kwargs), sample.differentiable, _bump(result))
        for leaf, want in zip(sample.differentiable, wanted, strict=True):
            assert leaf.grad.dtype == leaf.dtype and leaf.grad.shape == leaf.shape
            assert close(leaf.grad, 2 * want, case.ulps(torch.float32, 8)) is None, sample.name
            assert real_of(leaf.grad.dtype) == real_of(leaf.dtype)
