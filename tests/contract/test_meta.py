"""Meta and fake tensors: dtype, shape and strides of the result without its values, and the same errors."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from ..support.compare import Failures, different_metadata, raised_by
from ..support.params import EVERY_CASE, each_case, each_dtype

pytestmark = [pytest.mark.torch_version, pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")]


def _meta(t: torch.Tensor) -> torch.Tensor:
    """A Meta tensor of the same size and strides. 0-d CPU tensors become Meta too, because Meta kernels accept no other device."""
    return torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device="meta")


@each_dtype(
    only=(torch.float32, torch.float16, torch.int64, torch.complex64),
    only_cpu=(torch.float32, torch.float16),
    cases=EVERY_CASE,
)
def test_meta_agrees_with_real(case, device, dtype):
    failures = Failures()
    for sample in case.samples(device, dtype):
        if any(t.is_conj() or t.is_neg() for t in sample.tensors):
            continue  # Meta tensors made from sizes lack the lazy conj and neg bits
        with failures.sample(sample.name):
            real = case.op(*sample.args, **sample.kwargs)
            meta = sample.map(_meta)
            got = case.op(*meta.args, **meta.kwargs)
            assert got.is_meta
            failures.add(sample.name, different_metadata(got, real, device=False))
    failures.check(at_least=130)


@each_dtype(only=(torch.float32, torch.bfloat16), cases=EVERY_CASE)
def test_fake_agrees_with_real(case, device, dtype):
    """FakeTensorMode, which also tracks devices, gives the metadata of the eager result."""
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
    """Tracing raises the same exception as eager mode, because the same checks run on Meta tensors."""
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
