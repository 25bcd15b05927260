"""Limits of plans, which tests lower because small problems would not reach them (limits.h)."""

from __future__ import annotations

import ctypes


def set_limits(library: ctypes.CDLL, **limits: int) -> None:
    """Sets limits by name. All others get the values of the product."""
    library.reset_limits()
    for name, value in limits.items():
        assert library.set_limit(name.encode(), ctypes.c_int64(value)), f"the shim has no limit {name}"
