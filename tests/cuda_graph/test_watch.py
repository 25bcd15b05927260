"""The operators that tell whether tensors are what they were."""

import sys
from collections import OrderedDict

import pytest
import torch
from torch import nn

from torch_ops._cuda_graph.watch import python_tells

_OPS = torch.ops.gpuopt
_NOTHING_CHANGED = 2
_watches_dicts = pytest.mark.skipif(not python_tells(), reason="this Python does not tell of all changes of dicts")


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
    watch = _OPS._watch(tensors, [])
    with torch.no_grad():
        tensors[1].add_(1)
    assert _OPS._watch_state(watch)
    change(tensors[1])
    assert not _OPS._watch_state(watch)
    _OPS._watch_forget(watch)


def test_a_forgotten_watch_holds_no_tensor():
    tensor = torch.randn(4)
    watch = _OPS._watch([tensor], [])
    assert tensor._use_count() == 2
    _OPS._watch_forget(watch)
    _OPS._watch_forget(watch)
    assert tensor._use_count() == 1
    with pytest.raises(ValueError, match="watch must be a number that _watch returned"):
        _OPS._watch_state(watch)


class _Holder:
    """An object with attributes, whose dict exists before the attributes change."""

    def __init__(self):
        self.x = 1
        vars(self)


def _set_attribute(holder):
    for _ in range(100):  # often enough for the interpreter to specialise the store
        holder.x = object()


def test_python_3_12_tells():
    assert python_tells() or sys.version_info[:2] != (3, 12)


@_watches_dicts
@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda: {"a": 1}, lambda d: d.update(a=2)),
        (lambda: {"a": 1}, lambda d: d.update(b=2)),
        (lambda: {"a": 1}, lambda d: d.pop("a")),
        (lambda: {"a": 1}, lambda d: d.clear()),
        (lambda: OrderedDict(a=1), lambda d: d.update(b=2)),
        (_Holder, _set_attribute),
        (_Holder, lambda holder: delattr(holder, "x")),
        (lambda: nn.Linear(2, 2), lambda module: module.eval()),
        (lambda: nn.Linear(2, 2), lambda module: setattr(module, "scale", 2.0)),
    ],
    ids=["value", "key", "pop", "clear", "ordered", "attribute", "delete", "eval", "module"],
)
def test_a_change_of_a_dict_is_noticed(make, change):
    thing, other = make(), {"other": 1}
    entries = thing if isinstance(thing, dict) else vars(thing)
    watch = _OPS._watch([], [id(other), id(entries)])
    assert _OPS._watch_state(watch) == 1, "nobody has said yet that the dicts are as they should be"
    _OPS._watch_note_dicts(watch, True)
    assert _OPS._watch_state(watch) == _NOTHING_CHANGED
    change(thing)
    assert _OPS._watch_state(watch) == 1
    _OPS._watch_note_dicts(watch, True)
    assert _OPS._watch_state(watch) == _NOTHING_CHANGED
    _OPS._watch_note_dicts(watch, False)
    assert _OPS._watch_state(watch) == 1
    _OPS._watch_forget(watch)


@_watches_dicts
def test_two_watches_of_a_dict():
    entries = {"a": 1}
    first, second = (_OPS._watch([], [id(entries)]) for _ in range(2))
    for watch in (first, second):
        _OPS._watch_note_dicts(watch, True)
    _OPS._watch_forget(first)
    entries["a"] = 2
    assert _OPS._watch_state(second) == 1
    _OPS._watch_forget(second)
    entries["a"] = 3


@_watches_dicts
def test_a_freed_dict_counts_as_changed():
    entries = {"a": 1}
    watch = _OPS._watch([], [id(entries)])
    _OPS._watch_note_dicts(watch, True)
    del entries
    assert _OPS._watch_state(watch) == 1
    _OPS._watch_forget(watch)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python tells of changes of dicts")
def test_without_word_from_python_dicts_may_always_have_changed():
    watch = _OPS._watch([], [id({})])
    _OPS._watch_note_dicts(watch, True)
    assert _OPS._watch_state(watch) == 1
    _OPS._watch_forget(watch)
