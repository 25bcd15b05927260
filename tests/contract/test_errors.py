"""Errors have ATen's exception type and a message that names the operator and the argument, and write nothing."""

from __future__ import annotations

import re

import pytest
import torch

from ..cases import tensors
from ..support.compare import Failures, different_bits, raised_by
from ..support.params import each_case

pytestmark = pytest.mark.torch_version


@each_case
def test_refuses_as_aten_does(case, device):
    failures = Failures()
    # Two runs of the generator give equal but separate tensors, so that ATen does not see what gpuopt may have written.
    for for_aten, error in zip(case.errors(device), case.errors(device), strict=True):
        name = f"{error.variant}, {error.name}"
        variant = case.of_variant(error.variant)
        with failures.sample(name):
            theirs = raised_by(variant.aten, *for_aten.args, **for_aten.kwargs)
            assert theirs is not None, "ATen takes this call: the case is wrong"
            before = [tensors.twin(t) for t in error.tensors]
            versions = [t._version for t in error.tensors]
            shapes = [t.shape for t in error.tensors]
            ours = raised_by(variant.op, *error.args, **error.kwargs)
            if type(ours) is not type(theirs):
                failures.add(name, f"{ours!r}, expected {type(theirs).__name__} as from ATen: {theirs}")
                continue
            failures.add(name, _message_lacks(str(ours), variant.overload._schema.name, error.says))
            if [t._version for t in error.tensors] != versions:
                failures.add(name, "a version counter moved")
            if [t.shape for t in error.tensors] != shapes:
                failures.add(name, "a tensor was resized")
                continue
            for now, then in zip(error.tensors, before, strict=True):
                failures.add(name, different_bits(now, then))
    failures.check(at_least=3)
    if device == "cuda":
        torch.cuda.synchronize()  # reports an asynchronous error here, not in a later test
        assert torch.ones(2, device=device).sum().item() == 2


def _message_lacks(message: str, operator: str, patterns) -> str | None:
    missing = [p for p in (re.escape(operator) + r"\b", *patterns) if not re.search(p, message)]
    return f"message lacks {missing}: {message!r}" if missing else None


@each_case
def test_wrong_kinds_of_argument(case, device):
    """None or a string is passed for a tensor, or an argument is missing."""
    sample = next(iter(case.few(device, torch.float32)))
    for k, argument in enumerate(sample.args):
        if not isinstance(argument, torch.Tensor):
            continue
        for wrong in (None, "text"):
            args = [*sample.args[:k], wrong, *sample.args[k + 1 :]]
            assert raised_by(case.aten, *args) is not None
            assert raised_by(case.op, *args) is not None, f"argument {k} = {wrong!r} was taken"
    with pytest.raises((TypeError, RuntimeError)):
        case.op(*sample.args[:-1])
