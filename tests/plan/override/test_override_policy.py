"""Which calls torch_ops.override takes, held to the measurements of the sweep."""

from __future__ import annotations

import ctypes
import itertools
import json
import math
import statistics

import pytest
import torch

from benchmarks.harness.operands import restored
from tools.native_build import ROOT
from tools.test_build import load

RESULTS = ROOT / "benchmarks/results/nvidia-h200"
SWEEPS = [RESULTS / name for name in ("sweep.json", "sweep-47.json", "sweep-48.json")]
TAKEN = 0
MORE_HOST_TIME = 1.5  # us that a call costs more than ATen's


@pytest.fixture(scope="module")
def policy():
    library = load("plan/override")
    for name in ("index_add_in_graph", "sums_in_float32", "is_count", "adds_bags"):
        getattr(library, name).restype = ctypes.c_bool
    return library


def measured():
    """The rows of all sweeps. Integers are never taken."""
    rows = [row for file in SWEEPS for row in json.loads(file.read_text())["rows"]]
    return [row for row in rows if row["dtype"] in ("f32", "f16", "bf16")]


def numbers(values):
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def dense(shape):
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def channels_last(shape):
    n, c, h, w = shape
    return [c * h * w, 1, w * c, c]


def mul(policy, row):
    a, b = restored(row)
    if not isinstance(b, torch.Tensor):
        return None  # numbers are declined before any policy
    shape = torch.broadcast_shapes(a.shape, b.shape)
    moved = (2 * math.prod(shape) + b.numel()) * a.itemsize
    strides = (numbers(operand.expand(shape).stride()) for operand in (a, b))
    return policy.mul_reason(len(shape), numbers(shape), *strides, ctypes.c_int64(moved))


def reduce(policy, row):
    x, dim = restored(row)
    dims = (dim,) if isinstance(dim, int) else dim or range(x.dim())
    mask, item = (ctypes.c_int64(n) for n in (sum(1 << d for d in dims), x.itemsize))
    return policy.reduce_reason(x.dim(), numbers(x.shape), numbers(x.stride()), mask, item)


def upsample(policy, row, backward=False):
    """The operand is the image, or the gradient of the result. Both have the layout of the result."""
    x, size, *of_image = restored(row)
    images, values = math.prod(x.shape[:2]), math.prod(of_image[0] if backward else x.shape)
    moved = (images * math.prod(size) + values) * x.itemsize
    is_channels_last = not x.is_contiguous()
    return policy.upsample_reason(backward, is_channels_last, ctypes.c_int64(images), ctypes.c_int64(moved))


def transpose2d(policy, row):
    (x,) = restored(row)
    x, address = x.mT, (1 << 20) + x.storage_offset() * x.itemsize
    lists = map(numbers, (x.shape, dense(x.shape), x.stride()))
    return policy.copy_reason(x.dim(), *lists, ctypes.c_int64(x.itemsize), ctypes.c_int64(address))


def addition_of(row):
    """The elements of the result and of the source, the bytes of an element, the entries of the index, and the rows."""
    bins, _, index, source = restored(row)
    return numbers((bins.numel(), source.numel(), bins.itemsize, len(index), len(bins)))


def index_add(policy, row, mode="fast"):
    """None for calls that are computed in another mode, and for counts, which are taken for their precision."""
    addition = addition_of(row)
    in_float32 = policy.sums_in_float32(addition)
    if mode != "deterministic" and (in_float32 != (mode == "accurate") or policy.is_count(addition)):
        return None
    return policy.index_add_reason(addition, mode == "deterministic")


def index_select(policy, row):
    table, index = restored(row)
    return policy.index_select_reason(*map(ctypes.c_int64, (len(index), table[0].numel() * table.itemsize)))


def cumsum(policy, row):
    x, dim = restored(row)
    return policy.cumsum_reason(*map(ctypes.c_int64, (x.numel(), x.shape[dim], x.itemsize)))


def dot(policy, row):
    """The override takes all sizes."""
    return TAKEN


FAMILIES = {
    "cumsum": cumsum,
    "dot": dot,
    "mul": mul,
    "reduce": reduce,
    "upsample": upsample,
    "upsample backward": lambda *given: upsample(*given, backward=True),
    "transpose2d": transpose2d,
    "index_add": index_add,
    "index_add accurate": lambda *given: index_add(*given, mode="accurate"),
    "index_select": index_select,
    "index_add deterministic": lambda *given: index_add(*given, mode="deterministic"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_taken_problems_gain(policy, family):
    """No taken problem is slower than ATen by more than 5 %. Declined problems would save at most a fifth.

    ``index_add`` of single values is about as fast as ATen's unless entries repeat.
    """
    rows = [row for row in measured() if row["op"] == family]
    peer = "ATen deterministic" if "deterministic" in family else "ATen"
    saved = possible = taken = 0
    for row in rows:
        if any(row["contenders"][name]["status"] != "ok" for name in ("gpuopt", peer)):
            continue
        gpuopt, aten = (row["contenders"][name]["us"]["median"] for name in ("gpuopt", peer))
        gain = aten - gpuopt
        reason = FAMILIES[family](policy, row)
        possible += max(gain - MORE_HOST_TIME, 0) if reason is not None else 0
        if reason == TAKEN:
            taken += 1
            saved += gain
            assert gain > -0.05 * aten, (row["case"], row["dtype"], gpuopt, aten)
    assert taken >= 5 and saved >= 0.8 * possible, (taken, saved, possible)


def test_graphs_gain(policy):
    """No addition of rows that torch_ops._graph replaces is slower than Inductor's kernel by more than 5 %."""
    taken = 0
    for row in measured():
        of_inductor = row["contenders"].get("Inductor", {"status": "missing"})
        if row["op"] not in ("index_add", "index_add accurate") or of_inductor["status"] != "ok":
            continue
        addition = addition_of(row)
        is_accurate = policy.sums_in_float32(addition)
        is_measured = is_accurate == (row["op"] == "index_add accurate") and not policy.is_count(addition)
        if is_measured and policy.index_add_in_graph(addition, row["dtype"] == "bf16"):
            taken += 1
            gpuopt, inductor = (row["contenders"][name]["us"]["median"] for name in ("gpuopt", "Inductor"))
            assert gpuopt < 1.05 * inductor, (row["case"], row["dtype"], gpuopt, inductor)
    assert taken >= 1


def long(*values):
    return tuple(ctypes.c_int64(int(n)) for n in values)


def segment_reduce(policy, row):
    data, offsets, _ = restored(row)
    features = data[0].numel()
    return policy.segment_reduce_reason(*long(features, (len(offsets) - 1) * features, data.numel() * data.itemsize))


def scatter_reduce(policy, row):
    """None for sums, which are taken as ``index_add``."""
    source, index, rows, reduce = restored(row)
    features = source[0].numel()
    addition = numbers((rows * features, source.numel(), source.itemsize, len(index), rows))
    return None if reduce == "sum" else policy.scatter_reduce_reason(addition, *long(features))


def product(policy, ptr, index, dense):
    """None where ATen has no such product: of several heads, or of a matrix with more entries than cells."""
    if dense.dim() != 2 or len(index) > (len(ptr) - 1) * len(dense):
        return None
    return policy.sparse_product_reason(*long(len(index), dense.shape[1], dense.itemsize))


def spmm(policy, row):
    """None for reductions, which ATen does not have."""
    ptr, index, *_, dense, reduce = restored(row)
    return product(policy, ptr, index, dense) if reduce == "sum" else None


def sddmm(policy, row):
    """None for half types, which ATen's sampled_addmm does not take."""
    ptr, index, *_, right = restored(row)
    return product(policy, ptr, index, right) if row["dtype"] == "f32" else None


# The decisions whose thresholds are estimates, and what their rows say. A new sweep may change it: policy.h repeats the numbers.
#   the number of taken problems that are faster than ATen
#   the taken problems that are slower by more than 5 %
#   the number of declined problems that would be faster by more than 5 % and MORE_HOST_TIME
ESTIMATES = {
    "segment_reduce": (segment_reduce, 5, [], 8),
    "scatter_reduce": (scatter_reduce, 2, ["pitched 1401759 to 530408 x 11 max int32 bf16"], 3),
    "spmm": (spmm, 7, ["(5680,552,36354) x 130 values bf16"], 0),
    "sddmm": (sddmm, 3, [], 0),
}


@pytest.mark.parametrize("family", ESTIMATES)
def test_estimates_against_their_rows(policy, family):
    """``ESTIMATES`` names the rows that contradict a threshold.

    They are rows of the public functions. After ATen's maxima of segments, the peer replaces infinities (benchmarks/rooms/segment.py).
    """
    decide, *known = ESTIMATES[family]
    gained, missed, slower = 0, 0, []
    for row in (row for row in measured() if row["op"] == family):
        if any(row["contenders"][name]["status"] != "ok" for name in ("gpuopt", "ATen")):
            continue
        gpuopt, aten = (row["contenders"][name]["us"]["median"] for name in ("gpuopt", "ATen"))
        reason = decide(policy, row)
        if reason == TAKEN and gpuopt > 1.05 * aten:
            slower.append(f"{row['case']} {row['dtype']}")
        gained += reason == TAKEN and gpuopt < aten
        missed += reason not in (TAKEN, None) and aten - gpuopt > max(MORE_HOST_TIME, 0.05 * aten)
    assert [gained, slower, missed] == known


def test_estimated_decisions(policy):
    """Reductions of rows and sparse products: what is obviously too small is declined, and large problems are taken."""
    taken, size, aten = 0, 2, 4
    for features, results, bytes_of_data, want in (
        (64, 1 << 20, 1 << 30, taken),
        (8, 1 << 20, 1 << 30, aten),
        (1, 100, 1 << 30, taken),
        (64, 100, 1 << 10, size),
    ):
        assert policy.segment_reduce_reason(*long(features, results, bytes_of_data)) == want
        assert policy.segment_reduce_backward_reason(False, *long(features, results, bytes_of_data)) == want
    assert policy.segment_reduce_backward_reason(True, *long(64, 1 << 20, 1 << 30)) == aten
    assert policy.segment_reduce_backward_reason(True, *long(1, 1 << 10, 1 << 30)) == taken
    edges, nodes = 10**6, 10**5
    for features, want in ((1, aten), (4, aten), (8, taken), (64, taken)):
        addition = numbers((nodes * features, edges * features, 4, edges, nodes))
        assert policy.scatter_reduce_reason(addition, *long(features)) == want
    assert policy.scatter_reduce_reason(numbers((80, 800, 4, 100, 10)), *long(8)) == size
    assert policy.sparse_product_reason(*long(10**6, 64, 4)) == taken
    assert policy.sparse_product_reason(*long(10, 4, 4)) == size
    assert policy.sparse_product_reason(*long(10, 4, 2)) == taken  # PyTorch 2.11 has no gradient of half types
    assert policy.sparse_sum_reason(*long(10**6, 64, 4)) == taken
    assert policy.sparse_sum_reason(*long(62234, 42, 2)) == size
    assert policy.sparse_sum_reason(*long(0, 42, 2)) == taken


def test_decisions_about_norms(policy):
    """Rows of models are taken, and what is small or as fast in ATen's kernels is declined. Pairs are of float32 and of a half type."""
    taken, size, aten = 0, 2, 4
    for rows, length, forward, backward in (
        (65536, 96, (taken, taken), (taken, taken)),
        (16384, 768, (taken, taken), (taken, taken)),
        (512, 768, (size, size), (size, size)),
        (8192, 16, (taken, taken), (taken, taken)),
        (128, 4096, (taken, taken), (size, size)),
        (8, 4096, (size, size), (size, size)),
        (16384, 2041, (taken, taken), (taken, aten)),
        (65536, 197, (taken, taken), (taken, taken)),
        (4096, 8192, (taken, taken), (taken, taken)),
        (2048, 12288, (taken, taken), (aten, taken)),
        (1024, 32768, (aten, taken), (aten, taken)),
        (1024, 65536, (aten, aten), (aten, taken)),
        (64, 262144, (taken, taken), (taken, taken)),
    ):
        for item, decided, of_gradient in zip((4, 2), forward, backward, strict=True):
            assert policy.norm_reason(*long(rows, length, item)) == decided, (rows, length, item)
            assert policy.norm_backward_reason(*long(rows, length, item), True) == of_gradient, (rows, length, item)
    assert policy.norm_backward_reason(*long(65536, 96, 4), False) == aten


def lines(name):
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines()[1:]]


def share_saved(rows, is_taken, least):
    """The share that taken rows have of the time that can be saved. Each of them is ``least`` times as fast as ATen, or more."""
    saved = possible = 0.0
    for row in rows:
        saving = row["us"] * (row["times_aten"] - 1)
        possible += max(saving, 0)
        if is_taken(row):
            assert row["times_aten"] >= least, row
            saved += saving
    return saved / possible


def test_norms_that_are_taken_were_faster(policy):
    """In a run of 29 shapes, of all gradients together. Taken rows save 80 % or more of the time that can be saved."""

    def is_taken(row):
        given = long(*row["shape"], 2 if row["dtype"] == "bf16" else 4)
        if "backward" not in row["op"]:
            return policy.norm_reason(*given) == TAKEN
        return policy.norm_backward_reason(*given, not row["op"].endswith("input")) == TAKEN

    assert share_saved(lines("norm-rows.jsonl"), is_taken, 1) >= 0.8


def channel_norm(shape, item, is_channels_last=False):
    """An argument of decisions about group norm and batch norm."""
    return numbers((math.prod(shape), shape[1], math.prod(shape[2:]), item, is_channels_last))


def test_channel_norms_that_are_taken_were_faster(policy):
    """In runs of 7 shapes, of all gradients together. float32 and float16 are cuDNN's."""

    def is_taken(row):
        given = channel_norm(row["shape"], 4 if row["dtype"] == "f32" else 2, row["layout"] == "NHWC")
        if row["op"].startswith("group_norm"):
            return policy.group_norm_reason(given) == TAKEN
        if row["op"] == "batch_norm_evaluation":
            return policy.batch_norm_evaluation_reason(given) == TAKEN
        if row["dtype"] != "bf16":
            return policy.cudnn_batch_norm_reason(given) == TAKEN
        return policy.batch_norm_reason(given, row["op"].endswith("backward")) == TAKEN

    assert share_saved(lines("norm-channels.jsonl"), is_taken, 1.05) >= 0.9


def test_bags_that_are_taken_were_faster(policy):
    """And the gradient of a table is computed in the faster way, with one exception."""
    lost = []
    for row in lines("bags.jsonl"):
        entries, row_bytes = row["bags"] * row["length"], row["features"] * (4 if row["dtype"] == "f32" else 2)
        adds = policy.adds_bags(*long(entries, row["rows"], row_bytes))
        chosen = row["sum_us" if adds else "product_us"]
        lost.append(chosen / min(row["sum_us"], row["product_us"]))
        assert row["gradient_aten_us"] > 1.2 * chosen, row
        if policy.bags_reason(*long(entries, row_bytes)) == TAKEN:
            assert row["forward_aten_us"] > 1.4 * row["forward_us"], row
        assert row.get("weights_aten_us", math.inf) > 1.3 * row["weights_us"], row
    assert len(lost) > 20 and max(lost) < 1.25 and statistics.geometric_mean(lost) < 1.02


def test_copies_that_are_taken_were_faster(policy):
    """Pads, their gradients, rolls and concatenations. Taken rows save 90 % or more of the time that can be saved."""

    def is_taken(row):
        kind, size, item = row["kind"], row["bytes"], 4 if row["dtype"] == "f32" else 2
        if row.get("gradient"):  # of volumes, none is taken
            dims = len(row["shape"]) - 2
            return dims < 3 and policy.border_backward_reason(*long(size, dims, item)) == TAKEN
        if kind in ("reflect", "replicate"):
            return policy.border_reason(*long(size)) == TAKEN
        if kind == "cat":
            return policy.cat_reason(*long(size), row["dense"], *long(row["tensors"], row["narrowest"])) == TAKEN
        return policy.pad_reason(*long(size)) == TAKEN

    rows = [row for row in lines("pads.jsonl") if row["kind"] != "gather"]
    assert share_saved(rows, is_taken, 0.89) >= 0.9


def test_decisions_about_channel_norms(policy):
    """(group norm, batch norm, its gradients, cuDNN, evaluation) of float32, then of a half type."""
    taken, layout, size, aten, unmeasured = 0, 1, 2, 4, 6
    for shape, is_last, of_float, of_half in (
        ((32, 64, 56, 56), False, (taken,) * 5, (taken,) * 5),
        ((1, 64, 32, 32), False, (size,) * 5, (size,) * 5),
        ((256, 512, 7, 7), False, (taken, aten, aten, aten, taken), (taken, taken, aten, aten, taken)),
        ((32, 256, 28, 28), False, (taken,) * 5, (taken, taken, taken, aten, taken)),
        ((32, 64, 56, 56), True, (layout, aten, aten, aten, taken), (layout, taken, taken, aten, taken)),
        ((32, 256, 28, 28), True, (layout, aten, aten, aten, taken), (layout, taken, aten, aten, taken)),
        ((512, 512, 2, 2), False, (unmeasured,) * 5, (unmeasured,) * 5),
        ((32, 3, 224, 224), True, (layout, *(unmeasured,) * 4), (layout, *(unmeasured,) * 4)),
    ):
        for item, want in ((4, of_float), (2, of_half)):
            given = channel_norm(shape, item, is_last)
            batch = (policy.batch_norm_reason(given, backward) for backward in (False, True))
            others = (policy.cudnn_batch_norm_reason(given), policy.batch_norm_evaluation_reason(given))
            found = (policy.group_norm_reason(given), *batch, *others)
            assert found == want, (shape, item)


def permutations():
    """Sizes, strides of the result, strides of the input: dense results, and inputs with and without gaps."""
    for sizes in ((3, 4), (2, 3, 4), (1, 3, 4), (2, 3, 4, 5), (2, 1, 3, 4), (2, 2, 3, 2, 2)):
        for order in itertools.permutations(range(len(sizes))):
            for gap in (0, 1):
                inner = [sizes[d] for d in order]
                inner[-1] += gap
                strides = [0] * len(sizes)
                for k, d in enumerate(order):
                    strides[d] = math.prod(inner[k + 1 :])
                for out in (dense(sizes), channels_last(sizes) if len(sizes) == 4 else dense(sizes)):
                    yield sizes, out, strides


def test_transpositions_copy_every_element(policy):
    """The problem that the kernel gets reads the elements that the copy reads, in the order in which the result has them."""
    found = 0
    for sizes, out, strides in permutations():
        fields = numbers([0] * 11)
        dims = policy.transposition(len(sizes), numbers(sizes), numbers(out), numbers(strides), fields)
        if dims < 0:
            continue
        found += 1
        rows, columns, row_stride = fields[:3]
        want = {}
        for index in itertools.product(*map(range, sizes)):
            want[sum(i * s for i, s in zip(index, out))] = sum(i * s for i, s in zip(index, strides))
        batch = [range(size) for size in fields[3 : 3 + dims]]
        got, at = {}, 0
        for position in itertools.product(*reversed(batch)):
            start = sum(i * s for i, s in zip(reversed(position), fields[7 : 7 + dims]))
            for column, row in itertools.product(range(columns), range(rows)):
                got[at] = start + row * row_stride + column
                at += 1
        assert got == want, (sizes, out, strides)
    assert found >= 100
