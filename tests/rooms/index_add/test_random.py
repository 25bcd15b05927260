"""index_add with random shapes, dims, strides, offsets, indices, dtypes and modes: errors are within the bound."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from ...cases import Sample, tensors
from ...cases.index_add import CASES
from ...cases.samples.index_add_samples import DISTRIBUTIONS, MODES, indices
from ...support.compare import different_bits, different_metadata, different_repeats, different_results
from ...support.params import each_device
from ...support.random_layouts import LENGTHS, layouts, shapes
from ...support.seeded import seeded

(CASE,) = CASES
DTYPES = (*tensors.FLOATS, torch.int8, torch.uint8, torch.int64, torch.bool, torch.complex64)
COUNTS = st.one_of(st.integers(0, 40), st.sampled_from((*LENGTHS, 12_000, 40_000)))
LARGEST = 200_000  # elements of a tensor


@st.composite
def problems(draw):
    """self's shape, dim, the number of indices, and the layouts and values of all tensors."""
    shape = draw(shapes(5, LARGEST))
    rank = len(shape)
    dim = draw(st.integers(0, rank - 1)) if rank else 0
    others = torch.Size(shape[:dim] + shape[dim + 1 :]).numel()
    count = min(draw(COUNTS), LARGEST // others) if rank else 1
    dtype = draw(st.sampled_from(DTYPES))
    alphas = (1, 1, 2, -1, 0) if dtype != torch.bool else (True,)
    if dtype.is_floating_point or dtype.is_complex:
        alphas += (0.5, 0.3)
    return {
        "shape": shape, "dim": dim, "count": count, "dtype": dtype, "negative": draw(st.booleans()),
        "mode": draw(st.sampled_from(MODES)), "alpha": draw(st.sampled_from(alphas)), "distribution": draw(st.sampled_from(list(DISTRIBUTIONS))),
        "index_dtype": draw(st.sampled_from((torch.int64, torch.int32))), "index_step": draw(st.sampled_from((1, 1, 2, 3))),
        "self": draw(layouts(rank, written=True)), "source": draw(layouts(rank)), "out": draw(layouts(rank, written=True)),
    }  # fmt: skip


def _sample(device: str, problem: dict) -> Sample:
    shape, dim, count = problem["shape"], problem["dim"], problem["count"]
    make = tensors.Maker(device, problem["dtype"], seed=len(shape))
    self = problem["self"].tensor(make, shape)
    source = problem["source"].tensor(make, [*shape[:dim], count, *shape[dim + 1 :]] if shape else [])
    step = problem["index_step"]
    memory = tensors.poison([count * step], problem["index_dtype"], device)
    index = memory[::step].copy_(indices(problem["distribution"], shape[dim] if shape else 1, count))
    dim = dim - max(len(shape), 1) if problem["negative"] else dim
    return Sample("", (self, dim, index, source), {"alpha": problem["alpha"], "mode": problem["mode"]})


@each_device
def test_random_calls(device):
    """Every form has ATen's metadata and is within the bound of the reference. Repeated calls give the same bits where promised."""

    @seeded(200 if device == "cpu" else 3000)
    @given(problems())
    def check(problem):
        sample = _sample(device, problem)
        want = CASE.aten(*sample.args, **sample.kwargs)
        got = CASE.op(*sample.args, **sample.kwargs)
        written = sample.twin()
        before = tensors.twin(written.args[3])
        CASE.inplace.op(*written.args, **written.kwargs)
        out = problem["out"].tensor(tensors.Maker(device, problem["dtype"]), problem["shape"])
        CASE.out.op(*sample.args, **sample.kwargs, out=out)
        again = CASE.op(*sample.args, **sample.kwargs)
        for wrong in (
            different_metadata(got, want), different_results(CASE, device, sample, got, want), different_bits(written.args[3], before),
            different_results(CASE, device, sample, written.args[0], want), different_results(CASE, device, sample, out, want),
            different_repeats(CASE, device, sample, again, got),
        ):  # fmt: skip
            told = pytree.tree_map_only(torch.Tensor, lambda t: (tuple(t.shape), t.stride(), t.dtype), sample.args)
            assert wrong is None, f"{told}, {sample.kwargs}, {problem['distribution']}: {wrong}"

    check()
