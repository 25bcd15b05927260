"""A small set of calls that reaches every kernel path, for compute-sanitizer:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck python -m pytest -m sanitize

The caching allocator is off because it returns parts of larger blocks, and the tool cannot see the ends of parts. Tensors are made
and compared on the CPU, so that the tool watches few kernels of others. The set also runs with all other tests, in a second."""

from __future__ import annotations

import pytest
import torch

from ..cases import tensors
from ..support.compare import Failures, different_from_reference, different_results
from ..support.params import EVERY_CASE

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.sanitize,
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]


def _to_device(t: torch.Tensor) -> torch.Tensor:
    """A copy on the device with the same strides and offset, in an allocation that ends where the tensor's storage ends."""
    storage = t.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8).set_(storage)
    if t.dtype in (
        torch.uint8,
        torch.int8,
    ):  # atomic additions exchange the aligned pair of bytes (csrc/common/atomic.cuh)
        flat = torch.nn.functional.pad(flat, (0, flat.numel() % 2))
    flat = flat.cuda()
    copy = torch.empty(0, dtype=t.dtype, device="cuda").set_(
        flat.untyped_storage(), t.storage_offset(), t.size(), t.stride()
    )
    copy = copy.conj() if t.is_conj() else copy
    return torch._neg_view(copy) if t.is_neg() else copy


def _ends_in_half_a_pair(case, sample) -> bool:
    """Whether a new result ends with the first half of an aligned pair. It cannot be padded for the tool.

    The access is harmless, because memory is allocated in larger pieces, but the tool only knows the requested size.
    """
    return case.name.startswith("index_add") and sample.tensors[0].dtype == torch.int8 and sample.tensors[0].numel() % 2


# One dtype per item size and kind of arithmetic.
DTYPES = (torch.bool, torch.int8, torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex128)


@pytest.mark.parametrize(
    ("case", "dtype"),
    [pytest.param(c, d, id=f"{c.name}-{str(d)[6:]}") for c in EVERY_CASE for d in DTYPES if d in c.dtypes],
)
def test_every_path(case, dtype):
    failures = Failures()
    for k, sample in enumerate(case.samples("cpu", dtype)):
        # Every fourth sample covers all layouts and paths. Large samples are slow under the tool, so only marked ones run.
        if not sample.sanitize and (k % 4 or any(t.numel() > 10_000 for t in sample.tensors)):
            continue
        if _ends_in_half_a_pair(case, sample):
            continue
        with failures.sample(sample.name):
            on_device = sample.map(_to_device)
            got = case.op(*on_device.args, **on_device.kwargs).cpu()
            if sample.exact_inputs:
                reference = case.reference(*sample.args, **sample.kwargs)
                bound = case.bound("cuda", got.dtype, reference, *sample.args, **sample.kwargs)
                failures.add(sample.name, different_from_reference(got, reference, bound))
            if case.out is not None:
                out = _to_device(tensors.in_layout("misaligned1", tensors.poison(got.shape, got.dtype, "cpu")))
                case.out.op(*on_device.args, out=out, **on_device.kwargs)
                failures.add(f"{sample.name}, out", different_results(case, "cuda", sample, out.cpu(), got))
    failures.check(at_least=30)
