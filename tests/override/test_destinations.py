"""Calls that write into memory which the caller chose, under torch_ops.override: every offset, pitch and order of its dimensions.

The memory around and between the elements is filled with poison, which must stay. Results are those without the override.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from ..contract.test_guard_zones import Guarded
from ..support.compare import Failures
from ..support.overriding import counted, nothing_is_left, override, rows  # noqa: F401
from ..support.params import each_device

# Shapes that end inside vectors and tiles, and shapes of whole vectors: as tiles (64 and more), strips, and batches of both.
SHAPES = ((128, 64), (64, 192), (257, 65), (96, 16), (12, 160), (3, 64, 128), (40, 16, 16), (2, 3, 24, 32))


def destinations(shape: tuple[int, ...], dtype: torch.dtype, device: str):
    """(name, guarded tensor) of the shape: at each element of two vectors, then with gaps, then with dimensions exchanged."""
    dense = torch.empty(shape, dtype=dtype, device=device)
    for shift in range(32 // dtype.itemsize):
        yield f"at {shift}", Guarded(dense, shift)
    layouts = {
        "wider": dense.new_empty(*shape[:-1], shape[-1] + 3)[..., : shape[-1]],
        "stepped": dense.new_empty(*shape[:-1], 2 * shape[-1])[..., ::2],
        "turned": dense.mT.contiguous().mT,
    }
    for (name, like), shift in itertools.product(layouts.items(), (0, 1, 3)):
        yield f"{name} at {shift}", Guarded(like, shift)


def sources(shape: tuple[int, ...], dtype: torch.dtype, device: str):
    """Tensors of the shape whose last two dimensions are exchanged in memory: dense, inside of a vector, with gaps, repeated."""
    turned = (*shape[:-2], shape[-1], shape[-2])
    yield rows(device, dtype, *turned).mT
    yield rows(device, dtype, *turned[:-1], turned[-1] + 5)[..., 5:].mT
    yield rows(device, dtype, *turned[-2:]).mT.expand(shape)


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.complex128], ids=str)
def test_copies(device, dtype):
    failures, taken = Failures(), 0
    shapes = SHAPES if device == "cuda" else SHAPES[::3]
    for shape in shapes:
        for source, (name, guard) in itertools.product(
            sources(shape, dtype, device), destinations(shape, dtype, device)
        ):
            with failures.sample(f"{shape} from {source.stride()}, {name}"):
                with counted() as calls, override(device, "copy_"):
                    result = guard.tensor.copy_(source)
                taken += calls["copy_"].get("taken", 0)
                assert result is guard.tensor
                failures.add(f"{shape} from {source.stride()}, {name}", guard.problem(source))
    failures.check(at_least=33 * len(shapes))
    assert taken >= 2 * (32 // dtype.itemsize) * len(shapes)  # dense destinations, from two of three sources


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_additions(device, dtype):
    """index_add_, scatter_add_, scatter_reduce_ and index_put_ of small integers, whose sums are exact."""
    failures = Failures()
    shape, index = (64, 24), torch.arange(96, device=device) % 13
    wide = index[:, None].expand(96, 24)
    source = rows(device, dtype, 96, 26)[:, 2:]
    forms = {
        "index_add": lambda self: self.index_add_(0, index, source),
        "scatter_add": lambda self: self.scatter_add_(0, wide, source),
        "scatter_reduce": lambda self: self.scatter_reduce_(0, wide, source, "sum"),
        "index_put": lambda self: self.index_put_((index,), source, accumulate=True),
    }
    for form, call in forms.items():
        for name, guard in destinations(shape, dtype, device):
            with failures.sample(f"{form}, {name}"):
                guard.tensor.copy_(rows(device, dtype, *shape))
                want = call(rows(device, dtype, *shape))
                with counted() as calls, override(device, form):
                    result = call(guard.tensor)
                assert result is guard.tensor and calls[form] == {"taken": 1}
                failures.add(f"{form}, {name}", guard.problem(want))
    failures.check(at_least=60)


@each_device
def test_operands(device):
    """Tables, factors and summands that begin at each element of a vector, or are repeated by a stride of 0."""
    failures = Failures()
    for dtype, shift in itertools.product((torch.float32, torch.bfloat16), range(9)):
        x = Guarded(rows(device, dtype, 48, 64), shift, fill=True).tensor
        index = torch.arange(70, device=device).remainder(48)[shift % 3 :]
        for name, call in {
            "index_select": lambda x=x, index=index: x.index_select(0, index),
            "mul": lambda x=x: x * x[:, :1],
            "sum": lambda x=x: x.sum(0),
            "cumsum": lambda x=x: x[:6].cumsum(0),
            "amax": lambda x=x: x[:, 1:].amax(1),
            "copy_": lambda x=x: x.t().contiguous(),
            "dot": lambda x=x: torch.dot(x[1], x[2, :1].expand(64)),
        }.items():
            with failures.sample(f"{name} at {shift}, {dtype}"):
                want = call()
                with override(device):
                    got = call()
                torch.testing.assert_close(got, want, rtol=0, atol=0)
    failures.check(at_least=100)
