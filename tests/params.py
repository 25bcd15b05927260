"""What tests are parametrised over. CUDA parameters carry the `gpu` marker; conftest.py skips those where there is no GPU."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from .cases import OpCase, all_cases

CASES = all_cases()


def _on(device: str, *values, name: str):
    marks = [pytest.mark.gpu] if device == "cuda" else []
    return pytest.param(*values, marks=marks, id=name)


each_device = pytest.mark.parametrize("device", [_on(d, d, name=d) for d in ("cpu", "cuda")])

each_case = pytest.mark.parametrize(
    ("case", "device"), [_on(d, c, d, name=f"{c.name}-{d}") for c in CASES for d in ("cpu", "cuda")]
)


def each_dtype(of: str = "dtypes", only: tuple = (), only_cpu: tuple | None = None, cases: Sequence[OpCase] = CASES):
    """Every case with every dtype of its `dtypes` or `grad_dtypes`, or with those of them that are in `only`. `only_cpu` takes fewer
    on the CPU, where the kernels are ATen's and one dtype shows what there is to see."""
    params = []
    for case in cases:
        for device, wanted in (("cpu", only if only_cpu is None else only_cpu), ("cuda", only)):
            taken = getattr(case, of) + (case.cuda_dtypes if device == "cuda" and of == "dtypes" else ())
            dtypes = [d for d in taken if not wanted or d in wanted]
            params += [_on(device, case, device, d, name=f"{case.name}-{device}-{str(d)[6:]}") for d in dtypes]
    return pytest.mark.parametrize(("case", "device", "dtype"), params)


def with_variant(variant: str) -> list[OpCase]:
    """The cases that have an 'inplace' or 'out' variant."""
    return [c for c in CASES if getattr(c, variant) is not None]
