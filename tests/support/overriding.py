"""What tests of torch_ops.override share."""

from __future__ import annotations

import contextlib
import math

import pytest
import torch

import torch_ops


def override(device: str, ops=None, always: bool = True, **options) -> torch_ops.override:
    """An override of the kernels of `device`. Calls of every size are taken."""
    made = torch_ops.override(ops, **options)
    made._key, made._always = device.upper(), always
    return made


@contextlib.contextmanager
def counted():
    """Counts the calls inside, as a dictionary that is filled at the end."""
    torch_ops.override_report(reset=True)
    calls: dict = {}
    yield calls
    calls.update(torch_ops.override_report().calls)


@pytest.fixture(autouse=True)
def nothing_is_left():
    """No test leaves an operator replaced."""
    yield
    with counted() as calls:
        torch.ones(2, 2).sum(0)
    assert calls == {}


def rows(device, dtype=torch.float32, *shape):
    generator = torch.Generator(device).manual_seed(len(shape))
    return torch.randint(-8, 9, shape, generator=generator, device=device).to(dtype)


def made(device, dtype, *shape):
    """Normally distributed values."""
    generator = torch.Generator(device).manual_seed(math.prod(shape))
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def error_of(out, exact):
    """The largest error, relative to the largest value."""
    return ((out.double() - exact).abs().amax() / exact.abs().amax().clamp(min=1e-3)).item()
