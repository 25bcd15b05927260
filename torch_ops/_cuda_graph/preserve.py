"""Puts the state of a module and of random numbers back after calls that nobody asked for."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import _autograd  # pyright: ignore[reportAttributeAccessIssue]

from torch_ops._cuda_graph.backend import Backend
from torch_ops._cuda_graph.snapshot import RUNTIME
from torch_ops._cuda_graph.tensors import same_bits

__all__ = ["Preserved", "hooks_off", "host_random_state"]


def host_random_state(backend: Backend) -> tuple[Any, ...]:
    """The states of the generators of the host."""
    numpy = sys.modules.get("numpy")
    found = numpy.random.get_state() if numpy is not None else ()
    of_torch = () if backend.generator() is torch.default_generator else tuple(torch.get_rng_state().tolist())
    return random.getstate(), tuple(x.tobytes() if hasattr(x, "tobytes") else x for x in found), of_torch


class Preserved:
    """The values of buffers, attributes and generators, as they were when this object was made.

    Args:
        modules: The modules whose attributes are kept.
        tensors: The tensors whose values are kept.
    """

    def __init__(self, modules: Sequence[torch.nn.Module], tensors: Sequence[Tensor], backend: Backend) -> None:
        self._tensors, self._versions = list(tensors), [tensor._version for tensor in tensors]
        self._values = [tensor.detach().clone() for tensor in tensors]
        self._attributes = [(vars(module), dict(vars(module))) for module in modules]
        self._entries = [
            (x, x.copy()) for _, entries in self._attributes for x in entries.values() if type(x) in (list, dict, set)
        ]
        self._generators = _generators(x for _, entries in self._attributes for x in entries.values())
        self._generator_states = [get() for get, _ in self._generators]
        self._generator = backend.generator()
        self._device_state = self._generator.get_state()
        self._host = torch.get_rng_state(), random.getstate()
        numpy = sys.modules.get("numpy")
        self._numpy = numpy.random.get_state() if numpy is not None else None

    def written(self) -> list[Tensor]:
        """The tensors that have other values now. Batch norms write to statistics without a new version of them."""
        return [tensor for tensor, value in zip(self._tensors, self._values) if not same_bits(tensor, value)]

    def versioned(self) -> list[Tensor]:
        """The tensors that have another version now."""
        return [tensor for tensor, version in zip(self._tensors, self._versions) if tensor._version != version]

    def draws_random_numbers(self) -> bool:
        """Whether a generator in an attribute has moved since."""
        return any(str(get()) != str(state) for (get, _), state in zip(self._generators, self._generator_states))

    def restore(self) -> None:
        """Puts everything back. Versions too, so that a backward pass from before finds what it saved."""
        for tensor, value, version in zip(self._tensors, self._values, self._versions):
            tensor.data.copy_(value)
            _autograd._unsafe_set_version_counter((tensor,), (version,))
        for entries, before in self._entries:
            _refill(entries, before)
        for now, before in self._attributes:
            for name in now.keys() - before.keys():
                del now[name]
            for name, value in before.items():
                if name != RUNTIME and now.get(name, self) is not value:
                    now[name] = value
        for (_, put), state in zip(self._generators, self._generator_states):
            put(state)
        self._generator.set_state(self._device_state)
        torch.set_rng_state(self._host[0])
        random.setstate(self._host[1])
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)


def _generators(values: Iterable[Any]) -> list[tuple[Callable[[], Any], Callable[[Any], object]]]:
    """How to read and write the states of generators of random numbers."""
    found: list[tuple[Callable[[], Any], Callable[[Any], object]]] = []
    for value in values:
        if isinstance(value, torch.Generator):
            found.append((value.get_state, value.set_state))
        elif isinstance(value, random.Random):
            found.append((value.getstate, value.setstate))
        elif hasattr(value, "bit_generator"):  # numpy
            bits = value.bit_generator
            found.append((lambda bits=bits: bits.state, lambda state, bits=bits: setattr(bits, "state", state)))
    return found


def _refill(entries: Any, before: Any) -> None:
    if isinstance(entries, list):
        entries[:] = before
    else:
        entries.clear()
        entries.update(before)


@contextlib.contextmanager
def hooks_off(tensors: Sequence[Tensor]) -> Iterator[None]:
    """A block in which derivatives with respect to tensors run no hooks of them. Autograd runs them later, on the results."""
    kept = [(tensor, tensor._backward_hooks) for tensor in tensors if tensor._backward_hooks]
    for tensor, _ in kept:
        tensor._backward_hooks = None
    try:
        yield
    finally:
        for tensor, hooks in kept:
            tensor._backward_hooks = hooks
