"""torch.func gives ATen's results: vmap with the operator's own batching rule, grad, vjp, jvp, Jacobians and Hessians."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import replace

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

from ..cases.tensors import FLOATS
from ..support.compare import Failures, all_close, close, different_bits, raised_by
from ..support.params import (
    each_case,
    each_device,
    each_differentiable,
    each_dtype,
    kept,
    spread,
    thinned,
    with_variant,
)

pytestmark = pytest.mark.torch_version

BATCH = 3


@contextlib.contextmanager
def no_slow_vmap():
    """Makes an error of vmap's warning about its loop over examples, so that a missing batching rule fails the test."""
    before = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(before)


@contextlib.contextmanager
def silent_slow_vmap():
    """Silences the same warning for ATen's operators, because some have no batching rule."""
    torch._C._functorch._set_vmap_fallback_warning_enabled(False)
    try:
        yield
    finally:
        torch._C._functorch._set_vmap_fallback_warning_enabled(True)


def _batched(t: torch.Tensor, dim: int) -> torch.Tensor:
    """A batch of three different examples, with the batch dimension at `dim`."""
    return torch.stack([t, ~t, t ^ (t == t.any())] if t.dtype == torch.bool else [t, t + 1, t * 2], dim)


def _in_dims(sample):
    """All in_dims in which each tensor is unbatched, or batched in the first, the last or (once) a middle dimension.

    At least one tensor is batched. Numbers never are. Calls of many tensors have too many combinations for all of them.
    """
    choices = []
    for a in sample.args:
        choices.append([None] if not isinstance(a, torch.Tensor) else [None, 0, -1] + ([1] if a.dim() >= 2 else []))
    yield from spread((dims for dims in itertools.product(*choices) if any(d is not None for d in dims)), 256)


def _loop(op, args, dims, kwargs):
    """The meaning of vmap: a loop that calls the operator on every example."""
    examples = []
    for i in range(BATCH):
        picked = [a if d is None else a.select(d, i) for a, d in zip(args, dims, strict=True)]
        examples.append(op(*picked, **kwargs))
    return torch.stack(examples)


@each_dtype(only=(torch.float32, torch.int64, torch.complex64, torch.bool))
def test_vmap(case, device, dtype):
    """vmap equals the loop over examples, including the dtype, bit for bit if the operator rounds once.

    A batched 0-d tensor does not widen the result's dtype, as without vmap. (ATen's addcmul gets that wrong.)
    """
    failures = Failures()
    keep = 7 if dtype == torch.float32 else 3
    for sample in thinned(case.few(device, dtype), device, keep):
        if any(t.device.type != device for t in sample.tensors):
            continue  # batching makes a 0-d CPU tensor one-dimensional, which must be on the device
        for dims in _in_dims(sample):
            name = f"{sample.name}, in_dims {dims}"
            with failures.sample(name), no_slow_vmap():
                args = [a if d is None else _batched(a, d) for a, d in zip(sample.args, dims, strict=True)]
                got = vmap(lambda *a, kw=sample.kwargs: case.op(*a, **kw), in_dims=dims)(*args)
                want = _loop(case.op, args, dims, sample.kwargs)
                exact = case.bound(device, want.dtype, want, *sample.args, **sample.kwargs) is None
                failures.add(name, different_bits(got, want) if exact else close(got, want, 4 * case.approximates))
    failures.check(at_least=kept(20, device, keep))


@each_case
def test_nested_vmap(case, device):
    """Two levels of vmap that batch different arguments: outer products, and per-example calls inside a batch."""
    failures = Failures()
    for sample in case.few(device, torch.float32):
        count = len(sample.args)
        if any(t.device.type != device for t in sample.tensors):
            continue
        batchable = [isinstance(a, torch.Tensor) for a in sample.args]
        outer = tuple(0 if b and k % 2 == 0 else None for k, b in enumerate(batchable))
        inner = tuple(
            -1 if b and (k % 2 == 1 or count == 2 and sum(batchable) == 1) else None for k, b in enumerate(batchable)
        )
        if all(d is None for d in inner):
            inner = tuple(0 if b else None for b in batchable)
        with failures.sample(sample.name), no_slow_vmap():
            args = []
            for a, o, i in zip(sample.args, outer, inner, strict=True):
                a = a if i is None else _batched(a, i)
                args.append(a if o is None else torch.stack([a, a * 2], 0))
            got = vmap(vmap(lambda *a, kw=sample.kwargs: case.op(*a, **kw), in_dims=inner), in_dims=outer)(*args)
            rows = []
            for k in range(2):
                row = [a if o is None else a[k] for a, o in zip(args, outer, strict=True)]
                rows.append(_loop(case.op, row, inner, sample.kwargs))
            failures.add(sample.name, close(got, torch.stack(rows), 4 * case.approximates))
    failures.check(at_least=6)


@each_device
@pytest.mark.parametrize("case", with_variant("inplace"), ids=str)
def test_vmap_inplace(case, device):
    """A batched self is written as by the loop over examples. An unbatched self cannot hold the results of a batched operand, and
    the call is refused, as by ATen."""
    failures = Failures()
    for sample in case.few(device, torch.float32):
        if any(t.device.type != device for t in sample.tensors):
            continue
        for dims in _in_dims(sample):
            name = f"{sample.name}, in_dims {dims}"
            ours, theirs, looped = (
                [a if d is None else _batched(a, d) for a, d in zip(sample.twin().args, dims, strict=True)]
                for _ in range(3)
            )
            with failures.sample(name), no_slow_vmap():
                refusal = raised_by(vmap(case.inplace.aten, in_dims=dims), *theirs)
                error = raised_by(vmap(case.inplace.op, in_dims=dims), *ours)
                if type(error) is not type(refusal):
                    failures.add(name, f"{error!r}, expected {refusal!r}")
                if refusal is None:
                    _loop(case.inplace.op, looped, dims, {})
                failures.add(name, different_bits(ours[0], looped[0]))
    failures.check(at_least=20)


def _float_samples(case, device, dtype=torch.float64):
    """Samples whose floating-point tensors and result have the same dtype."""
    for sample in case.few(device, dtype):
        if (
            all(t.dtype == dtype for t in sample.floating)
            and all(t.device.type == device for t in sample.tensors)
            and case.aten(*sample.args, **sample.kwargs).dtype == dtype
        ):
            yield sample


def _of_floating(op, sample):
    """The call as a function of its floating-point tensors alone."""

    def call(*given):
        given = iter(given)
        bound = sample.map(lambda t: next(given) if t.is_floating_point() else t)
        return op(*bound.args, **bound.kwargs)

    return call


@each_differentiable
def test_transforms(case, device):
    """grad, vjp, jvp, jacrev, jacfwd and hessian of the operator equal the same transforms of ATen's, in every argument."""
    failures = Failures()
    for sample in _float_samples(case, device):
        tensors = sample.floating
        argnums = tuple(range(len(tensors)))
        # Different tangents, so that none is a direction in which the result does not change.
        tangents = tuple(
            torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype, device=t.device).view(t.shape) for t in tensors
        )
        transforms = {
            "grad": lambda f, t=tensors, n=argnums: grad(lambda *x: f(*x).pow(2).sum(), argnums=n)(*t),
            "vjp": lambda f, t=tensors: vjp(f, *t)[1](f(*t)),
            "jvp": lambda f, t=tensors, o=tangents: jvp(f, tuple(t), o),
            "jacrev": lambda f, t=tensors, n=argnums: jacrev(f, argnums=n)(*t),
            "jacfwd": lambda f, t=tensors, n=argnums: jacfwd(f, argnums=n)(*t),
        }
        if 0 < sum(t.numel() for t in tensors) <= 12:  # hessian fails if all tensors are empty
            transforms["hessian"] = lambda f, t=tensors, n=argnums: hessian(lambda *x: f(*x).pow(3).sum(), argnums=n)(
                *t
            )
        for name, transform in transforms.items():
            with failures.sample(f"{sample.name}, {name}"):
                with no_slow_vmap():
                    ours = transform(_of_floating(case.op, sample))
                with silent_slow_vmap():
                    theirs = transform(_of_floating(case.aten, sample))
                flat = [torch.utils._pytree.tree_leaves(r) for r in (ours, theirs)]
                failures.add(f"{sample.name}, {name}", all_close(*flat, ulps=case.ulps(torch.float64, 16)))
    failures.check(at_least=20)


@each_differentiable
def test_per_example_gradients(case, device):
    """vmap over grad gives one gradient per example. Some arguments are shared by all examples."""
    failures = Failures()
    for sample in _float_samples(case, device):
        tensors = sample.floating
        for shared in range(len(tensors), -1 if len(tensors) > 1 else 0, -1):  # first without shared arguments
            dims = tuple(None if k == shared else 0 for k in range(len(tensors)))
            args = [t if d is None else _batched(t, 0) for t, d in zip(tensors, dims, strict=True)]
            with failures.sample(f"{sample.name}, in_dims {dims}"):
                results = []
                for op, context in ((case.op, no_slow_vmap()), (case.aten, silent_slow_vmap())):
                    f = _of_floating(op, sample)
                    loss = grad(lambda *x, f=f: f(*x).pow(2).sum(), argnums=tuple(range(len(tensors))))
                    with context:
                        results.append(vmap(loss, in_dims=dims)(*args))
                failures.add(f"{sample.name}, in_dims {dims}", all_close(*results, ulps=16))
    failures.check(at_least=6)


@each_differentiable
def test_gradients_of_vmap(case, device):
    """Reverse mode through vmap: the batching rule is itself differentiable."""
    failures = Failures()
    for sample in _float_samples(case, device, torch.float32):
        batched = tuple(_batched(a, 0) if isinstance(a, torch.Tensor) else a for a in sample.args)
        leaves = replace(sample, args=batched).requiring_grad(FLOATS)
        dims = tuple(0 if isinstance(a, torch.Tensor) else None for a in leaves.args)
        with failures.sample(sample.name):
            grads = []
            for op, context in ((case.op, no_slow_vmap()), (case.aten, silent_slow_vmap())):
                with context:
                    result = vmap(lambda *a, op=op, kw=leaves.kwargs: op(*a, **kw), in_dims=dims)(*leaves.args)
                    grads.append(torch.autograd.grad(result.pow(2).sum(), leaves.differentiable))
            failures.add(sample.name, all_close(*grads, ulps=8))
    failures.check(at_least=6)


@each_case
def test_a_tensor_that_left_its_vmap_is_refused(case, device):
    sample = next(s for s in case.few(device, case.dtypes[0]) if s.tensors)
    left = []
    vmap(lambda t: left.append(t) or t)(torch.stack([sample.tensors[0]] * 2))
    args = [left[0] if a is sample.tensors[0] else a for a in sample.args]
    with pytest.raises(RuntimeError, match="outside of the function|escaped"):
        case.op(*args, **sample.kwargs)
