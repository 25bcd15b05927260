"""Parameters of tests. CUDA parameters have the `gpu` marker, and conftest.py skips them on a machine without a GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import pytest
import torch

from ..cases import OpCase, all_cases

EVERY_CASE = all_cases()
# The operators that users call.
CASES = tuple(case for case in EVERY_CASE if not case.internal)

# ATen computes on the CPU, so tests there only check the wrapper: promotion, conjugation, integers without gradients. One dtype of
# each kind is enough.
ON_CPU = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)


def on(device: str, *values, name: str):
    marks = [pytest.mark.gpu] if device == "cuda" else []
    return pytest.param(*values, marks=marks, id=name)


each_device = pytest.mark.parametrize("device", [on(d, d, name=d) for d in ("cpu", "cuda")])


def _each(cases: Sequence[OpCase]):
    params = [on(d, c, d, name=f"{c.name}-{d}") for c in cases for d in ("cpu", "cuda")]
    return pytest.mark.parametrize(("case", "device"), params)


each_case = _each(CASES)
each_differentiable = _each([c for c in CASES if c.grad_dtypes])


def each_dtype(of: str = "dtypes", only: tuple = (), only_cpu: tuple | None = None, cases: Sequence[OpCase] = CASES):
    """Parametrizes a test with every case and every dtype in the case's `dtypes` or `grad_dtypes`.

    `only` restricts the dtypes. On the CPU `only_cpu` restricts them. Its default is the intersection of `only` and ON_CPU.
    """
    only_cpu = only_cpu or tuple(d for d in ON_CPU if not only or d in only)
    params = []
    for case in cases:
        for device, wanted in (("cpu", only_cpu), ("cuda", only)):
            taken = getattr(case, of) + (case.cuda_dtypes if device == "cuda" and of == "dtypes" else ())
            dtypes = [d for d in taken if not wanted or d in wanted]
            params += [on(device, case, device, d, name=f"{case.name}-{device}-{str(d)[6:]}") for d in dtypes]
    return pytest.mark.parametrize(("case", "device", "dtype"), params)


def spread(choices: Iterable, at_most: int) -> list:
    """At most so many of a list of combinations, evenly spread.

    The distance has no divisor in common with 2 and 3, the usual numbers of choices, so that all choices of each kind remain.
    """
    every = list(choices)
    step = -(-len(every) // at_most)
    while step > 1 and math.gcd(step, 6) > 1:
        step += 1
    return every[::step]


def thinned(samples: Iterable, device: str, keep: int = 3) -> Iterator:
    """All samples on CUDA. On the CPU, the first and `keep` of every seven, because other layouts run the same kernels of ATen
    there.

    Samples alternate between two, three and four kinds (masks, biases, activations). Seven has no divisor in common with these
    numbers, so all kinds remain.
    """
    kept = (0, 3, 5, 1, 2, 4, 6)[:keep]
    return (sample for k, sample in enumerate(samples) if device == "cuda" or k == 0 or k % 7 in kept)


def kept(samples: int, device: str, keep: int = 3) -> int:
    """The number of samples that `thinned` keeps out of `samples`, for Failures.check."""
    return samples if device == "cuda" else max(samples * keep // 7, 1)


def with_variant(variant: str) -> list[OpCase]:
    """The cases that have an 'inplace' or 'out' variant."""
    return [c for c in CASES if getattr(c, variant) is not None]
