"""The operators that tell whether tensors are what they were."""

import pytest
import torch
from torch import nn

_OPS = torch.ops.gpuopt


def _change_data(x):
    x.data = x.data.clone()


@pytest.mark.parametrize(
    "change",
    [
        _change_data,
        lambda x: x.requires_grad_(False),
        lambda x: setattr(x, "data", x.data.t()),
        lambda x: setattr(x, "data", x.data.view(2, 8)),
        lambda x: setattr(x, "data", x.data.double()),
    ],
    ids=["memory", "requires_grad", "strides", "shape", "dtype"],
)
def test_a_change_is_noticed(change):
    tensors = [nn.Parameter(torch.randn(4, 4)) for _ in range(3)]
    watch = _OPS._watch(tensors)
    with torch.no_grad():
        tensors[1].add_(1)
    assert _OPS._watch_unchanged(watch)
    change(tensors[1])
    assert not _OPS._watch_unchanged(watch)
    _OPS._watch_forget(watch)


def test_a_forgotten_watch_holds_no_tensor():
    tensor = torch.randn(4)
    watch = _OPS._watch([tensor])
    assert tensor._use_count() == 2
    _OPS._watch_forget(watch)
    _OPS._watch_forget(watch)
    assert tensor._use_count() == 1
    with pytest.raises(ValueError, match="watch must be a number that _watch returned"):
        _OPS._watch_unchanged(watch)
