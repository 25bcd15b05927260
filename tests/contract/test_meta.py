"""Meta and fake tensors: the answer's dtype, shape and strides without its values, and the same refusals."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from ..compare import Failures, different_metadata, raised_by
from ..params import each_case, each_dtype

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def _meta(t: torch.Tensor) -> torch.Tensor:
    """Size and strides without memory. 0-d CPU tensors become Meta too: Meta kernels know no other device."""
    return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="meta")


@each_dtype(only=(torch.float32, torch.float16, torch.int64, torch.complex64), only_cpu=(torch.float32, torch.float16))
def test_meta_agrees_with_real(case, device, dtype):
    failures = Failures()
    for sample in case.samples(device, dtype):
        if any(t.is_conj() or t.is_neg() for t in sample.tensors):
            continue  # a lazy bit of a real tensor, which Meta tensors made from sizes don't carry
        with failures.sample(sample.name):
            real = case.op(*sample.args, **sample.kwargs)
            meta = sample.map(_meta)
            got = case.op(*meta.args, **meta.kwargs)
            assert got.is_meta
            failures.add(sample.name, different_metadata(got, real, device=False))
    failures.check(at_least=130)


@each_dtype(only=(torch.float32, torch.bfloat16))
def test_fake_agrees_with_real(case, device, dtype):
    """Under FakeTensorMode, which also tracks the device: tracing sees what eager gives."""
    failures = Failures()
    for sample in case.few(device, dtype):
        with failures.sample(sample.name):
            real = case.op(*sample.args, **sample.kwargs)
            mode = FakeTensorMode()
            fake = sample.map(mode.from_tensor)
            with mode:
                got = case.op(*fake.args, **fake.kwargs)
            if got.device.type != real.device.type:
                failures.add(sample.name, f"device is {got.device}, expected {real.device}")
            failures.add(sample.name, different_metadata(got, real, device=False))
    failures.check(at_least=8)


@each_case
def test_meta_refuses_what_the_device_refuses(case, device):
    """The same checks run before shapes are known, so that tracing fails where eager does, with the same exception."""
    failures = Failures()
    for error in case.errors(device):
        if not error.on_meta:
            continue
        with failures.sample(f"{error.variant}, {error.name}"):
            variant = case.of_variant(error.variant)
            expected = raised_by(variant.aten, *error.args, **error.kwargs)
            args, kwargs = pytree.tree_map_only(torch.Tensor, _meta, (error.args, error.kwargs))
            with pytest.raises(type(expected), match=r"gpuopt"):
                variant.op(*args, **kwargs)
    failures.check(at_least=3)
