"""Functions that are wrong, each in a way of its own. Their names say how."""

from __future__ import annotations

import ctypes
import time

import torch

_CACHE: dict = {}


def right(x):
    return x.sum()


def declines(x):
    if not x.is_contiguous():
        raise NotImplementedError("contiguous memory only")
    return x.sum()


def rounds_differently(x):
    """Rounding differs between runs, as with atomic additions."""
    return x.sum() * (1 + 1e-6 * torch.rand((), device=x.device))


def race(x):
    return x.sum() + torch.rand((), device=x.device)


def out_of_bounds(x):
    out = x.new_empty(())
    out.as_strided((3,), (1,)).fill_(1)
    return out.copy_(x.sum())


def out_of_bounds_of_an_operand(x):
    x.as_strided((1,), (1,), x.storage_offset() - 1).fill_(1)
    return x.sum()


def changed_inputs(x):
    found = x.sum()
    x.add_(1)
    return found


def cached_results(x):
    key = x.data_ptr(), x.shape, x._version
    if key not in _CACHE:
        _CACHE[key] = x.sum()
    return _CACHE[key]


def wrong_values(x):
    return x.sum() * 1.01


def wrong_index(x):
    found = x.cumsum(0)
    found[x.shape[0] // 2 + 1 :] += 1
    return found


def wrong_only_of_views(x):
    """Reads memory, and not the view."""
    return x.as_strided((x.numel(),), (1,)).sum()


def unwritten(x):
    return x.new_empty(())


def wrong_dtype(x):
    return x.double().sum()


def wrong_shape(x):
    return x.sum().view(1)


def wrong_device(x):
    return torch.empty((), device="meta")


def wrong_type(x):
    return x.sum().item()


def error(x):
    raise RuntimeError("no such luck")


def crash(x):
    ctypes.string_at(0)


def time_limit(x):
    while True:
        time.sleep(1)
