"""Cases of sparse products: references, error bounds and errors. Samples are in spmm_samples.py.

PyTorch has no such operators for all dtypes and reductions. The references loop over the rows of the matrix. What stands for ATen
gathers a padded row of entries for each row of the matrix, which is differentiable in every mode.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch

from . import ErrorCase, OpCase, Sample, exact, internal_case, workspace_of
from .samples import spmm_samples as calls
from .tensors import FLOATS, Maker, finite_sizes, without_autocast

OPS = torch.ops.gpuopt

# ---------------------------------------------------------------- references


def _terms(dense, value, index, entry, first: int, last: int) -> torch.Tensor:
    """What the entries of a row contribute, (..., entries, N) or (..., entries, heads, F)."""
    row_dim = -3 if value is not None and value.dim() == 2 else -2
    columns = torch.arange(first, last, device=dense.device) if index is None else index[first:last].long()
    rows = dense.index_select(row_dim, columns)
    if value is None:
        return rows
    of = slice(first, last) if entry is None else entry[first:last].long()
    return value[of][..., None] * rows


def _by_rows(dense, value, ptr, index, entry, function) -> torch.Tensor:
    """function(terms, positions) for each row, stacked. A dense vector is a matrix of one column."""
    if dense.dim() == 1:
        return _by_rows(dense[:, None], value, ptr, index, entry, function)[:, 0]
    row_dim = -3 if value is not None and value.dim() == 2 else -2
    starts, found = ptr.tolist(), []
    for first, last in zip(starts, starts[1:], strict=False):
        terms = _terms(dense, value, index, entry, first, last)
        at = torch.arange(first, last, device=ptr.device) if entry is None else entry[first:last].long()
        found.append(function(terms.movedim(row_dim, 0), at))
    if found:
        return torch.stack(found, row_dim % dense.dim())
    return dense.narrow(row_dim, 0, 0)


def _reduced(reduce: str, terms: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    if terms.shape[0] == 0:
        return terms.sum(0)
    return {"sum": terms.sum, "mean": terms.mean, "max": terms.amax, "min": terms.amin}[reduce](0)


def _arg(reduce: str, terms: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """The position of the first extreme term."""
    if terms.shape[0] == 0:
        return terms.sum(0) - 1
    return at[(terms.argmax if reduce == "max" else terms.argmin)(0)].to(terms.dtype)


def _wide(*tensors) -> list:
    return [None if t is None else t.double() for t in tensors]


def reference(dense, value=None, *, ptr, index=None, entry=None, reduce="sum", **transpose) -> torch.Tensor:
    return _by_rows(*_wide(dense, value), ptr, index, entry, functools.partial(_reduced, reduce))


def _sddmm_reference(a, b, *, ptr, index=None, entry=None, heads=False, **transpose) -> torch.Tensor:
    rows = torch.arange(ptr.shape[0] - 1, device=ptr.device).repeat_interleave(ptr.diff().long())
    a, b = _wide(a, b)
    products = torch.einsum("e...f,e...f->e...", a[rows], b if index is None else b[index.long()])
    if entry is None:
        return products
    return products[torch.argsort(entry)]


# ---------------------------------------------------------------- error bounds


def _eps(dtype: torch.dtype) -> tuple[float, float]:
    info = torch.finfo(torch.float32 if dtype.itemsize < 4 else dtype)
    return info.eps, info.smallest_normal


def bound(
    device, result_dtype, reference, dense, value=None, *, ptr, index=None, entry=None, reduce="sum", **transpose
):
    """A rounding for each term and for each addition, relative to the sum of the sizes of the terms."""
    eps, tiny = _eps(result_dtype)
    sizes = [None if t is None else finite_sizes(t.double()) for t in (dense, value)]

    def of_row(terms, at):
        size = terms.sum(0) if reduce == "sum" else terms.sum(0) / max(terms.shape[0], 1)
        return size * (terms.shape[0] + 4) if reduce in ("sum", "mean") else 2 * _reduced("max", terms, at)

    return eps * _by_rows(*sizes, ptr, index, entry, of_row) + tiny


def _sddmm_bound(device, result_dtype, reference, a, b, **matrix):
    eps, tiny = _eps(result_dtype)
    return eps * (a.shape[-1] + 4) * _sddmm_reference(finite_sizes(a), finite_sizes(b), **matrix) + tiny


# ---------------------------------------------------------------- what stands for ATen


def _lowered(*tensors):
    """Operands in the lower precision under autocast, as in torch.matmul. float64 stays."""
    kind = tensors[0].device.type
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return tensors
    low = torch.get_autocast_dtype(kind)
    return [t.to(low) if t is not None and t.is_floating_point() and t.dtype != torch.float64 else t for t in tensors]


def _refuse(operands, matrix: dict, rows: int | None, columns: int, entries: int | None) -> None:
    """The exceptions that the library documents. A message is not compared."""
    first, others = operands[0], [t for t in operands[1:] if t is not None]
    if first.dtype not in FLOATS:
        raise TypeError("a real floating-point dtype")
    structure = [t for t in matrix.values() if isinstance(t, torch.Tensor)]
    ptr = matrix["ptr"]
    fits = all(t.dtype == first.dtype for t in others) and all(t.device == first.device for t in others + structure)
    fits = fits and ptr.dtype in (torch.int32, torch.int64) and all(t.dtype == ptr.dtype for t in structure)
    fits = fits and ptr.dim() == 1 and ptr.shape[0] > 0 and rows in (None, ptr.shape[0] - 1)
    index = matrix.get("index")
    count = columns if index is None else index.numel()
    fits = fits and (index is None or index.dim() == 1) and entries in (None, count)
    for name in ("entry", "t_index", "t_entry"):
        t = matrix.get(name)
        fits = fits and (t is None or t.shape == (count,))
    t_ptr = matrix.get("t_ptr")
    fits = fits and (t_ptr is None or t_ptr.shape == (columns + 1,))
    fits = fits and (t_ptr is not None or matrix.get("t_index") is None)
    if not fits:
        raise RuntimeError("the documented shapes")


def _padded(ptr: torch.Tensor, entry: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each row as many numbers as the longest row has entries: of its entries, of their values, and whether there is an
    entry."""
    ptr = ptr.detach().long()
    lengths = ptr.diff()
    longest = int(lengths.max()) if lengths.numel() else 0
    at = torch.arange(longest, device=ptr.device).expand(lengths.numel(), longest)
    valid = at < lengths[:, None]
    number = torch.where(valid, ptr[:-1, None] + at, 0)
    return number, number if entry is None else entry.long()[number], valid


def aten(dense, value=None, *, ptr, index=None, entry=None, reduce="sum", **transpose):
    if reduce not in calls.REDUCTIONS:
        raise ValueError("an unknown reduction")
    dense, value = _lowered(dense, value)
    heads = value is not None and value.dim() == 2
    if dense.dim() < (3 if heads else 1) or value is not None and value.dim() not in (1, 2):
        if dense.dtype not in FLOATS:
            raise TypeError("a real floating-point dtype")
        raise RuntimeError("too few dimensions")
    if dense.dim() == 1:
        matrix = dict(ptr=ptr, index=index, entry=entry, reduce=reduce, **transpose)
        return aten(dense[:, None], value, **matrix)[:, 0]
    row_dim = dense.dim() - (3 if heads else 2)
    if heads and value.shape[1] != dense.shape[-2]:
        raise RuntimeError("other heads")
    _refuse((dense, value), dict(ptr=ptr, index=index, entry=entry, **transpose), None, dense.shape[row_dim],
            None if value is None else value.shape[0])  # fmt: skip
    with without_autocast(dense):
        compute = torch.float64 if dense.dtype == torch.float64 else torch.float32
        number, place, valid = _padded(ptr, entry)
        sizes = [*dense.shape]
        sizes[row_dim] = ptr.shape[0] - 1
        if valid.numel() == 0 or dense.shape[row_dim] == 0 or not bool(valid.any()):
            return dense.new_zeros(sizes) + 0 * dense.sum() + (0 if value is None else 0 * value.sum())
        columns = number if index is None else index.long()[number]
        wide = dense.to(compute).index_select(row_dim, columns.flatten()).unflatten(row_dim, columns.shape)
        if value is not None:
            factors = value.to(compute).index_select(0, place.flatten()).unflatten(0, place.shape)
            wide = wide * factors[..., None]
        mask = valid.view(*valid.shape, *[1] * (dense.dim() - row_dim - 1))
        if reduce in ("sum", "mean"):
            result = torch.where(mask, wide, 0).sum(row_dim + 1)
            if reduce == "mean":
                result = result / mask.sum(1).clamp(min=1)
        else:
            lowest = float("-inf") if reduce == "max" else float("inf")
            best = torch.where(mask, wide, lowest)
            best = (best.max if reduce == "max" else best.min)(row_dim + 1).values
            result = torch.where(mask.any(1), best, 0)
        return result.to(dense.dtype).contiguous()


def _aten_sddmm(a, b, *, ptr, index=None, entry=None, heads=False, **transpose):
    a, b = _lowered(a, b)
    if a.dtype not in FLOATS:
        raise TypeError("a real floating-point dtype")
    if not a.dim() == b.dim() == (3 if heads else 2) or a.shape[1:] != b.shape[1:]:
        raise RuntimeError("other dimensions")
    _refuse((a, b), dict(ptr=ptr, index=index, entry=entry, **transpose), a.shape[0], b.shape[0], None)
    with without_autocast(a):
        compute = torch.float64 if a.dtype == torch.float64 else torch.float32
        rows = torch.arange(ptr.shape[0] - 1, device=ptr.device).repeat_interleave(ptr.detach().diff().long())
        right = b.to(compute)
        products = a.to(compute).index_select(0, rows) * (right if index is None else right.index_select(0, index))
        result = products.sum(-1).to(a.dtype)
        return result if entry is None else result.index_select(0, torch.argsort(entry.detach()))


# ---------------------------------------------------------------- the operators as functions of their operands


def _spmm(dense, value=None, *, ptr, index=None, entry=None, **rest):
    return OPS.spmm.default(ptr, index, entry, value, dense, **rest)


def _sddmm(a, b, *, ptr, index=None, entry=None, **rest):
    return OPS.sddmm.default(ptr, index, entry, a, b, **rest)


def _spmm_call(sample: Sample) -> Sample:
    """The arguments of the operator itself."""
    dense, value = (*sample.args, None)[:2]
    rest = {k: v for k, v in sample.kwargs.items() if k not in ("ptr", "index", "entry")}
    ptr, index, entry = (sample.kwargs.get(k) for k in ("ptr", "index", "entry"))
    return Sample(sample.name, (ptr, index, entry, value, dense), rest)


def _sddmm_call(sample: Sample) -> Sample:
    rest = {k: v for k, v in sample.kwargs.items() if k not in ("ptr", "index", "entry")}
    return Sample(sample.name, (*(sample.kwargs.get(k) for k in ("ptr", "index", "entry")), *sample.args), rest)


# ---------------------------------------------------------------- errors


def _structure_errors(operands: tuple, given: dict, count: int, columns: int) -> Iterator[ErrorCase]:
    """What spmm and sddmm refuse of the tensors that describe a matrix."""
    ptr, index = given["ptr"], given["index"]

    def error(name: str, *says: str, on_meta: bool = True, **changes) -> ErrorCase:
        return ErrorCase(name, operands, {**given, **changes}, says=says, on_meta=on_meta)

    yield error("float ptr", r"\bptr\b", "int32 or int64", "Float", ptr=ptr.float())
    yield error("int16 ptr", r"\bptr\b", "int32 or int64", "Short", ptr=ptr.short())
    yield error("2-d ptr", r"\bptr\b", r"\[1, \d+\]", ptr=ptr[None])
    yield error("empty ptr", r"\bptr\b", r"\[0\]", ptr=ptr[:0])
    yield error("2-d index", r"\bindex\b", r"\[1, \d+\]", index=index[None])
    yield error("int64 index", r"\bindex\b", "Int", "Long", index=index.long())
    yield error("short entry", r"\bentry\b", rf"\[{count}\]", entry=index[1:])
    yield error("float entry", r"\bentry\b", "Float", entry=index.float())
    yield error("short t_ptr", r"\bt_ptr\b", rf"\[{columns + 1}\]", t_ptr=given["t_ptr"][1:])
    yield error("short t_index", r"\bt_index\b", rf"\[{count}\]", t_index=given["t_index"][1:])
    yield error("long t_entry", r"\bt_entry\b", "Long", t_entry=given["t_entry"].long())
    yield error("no t_ptr", r"\bt_ptr\b", "None", t_ptr=None)
    if ptr.device.type != "cpu":
        yield error("ptr on the CPU", r"\bptr\b", "cpu", on_meta=False, ptr=ptr.cpu())
        yield error("index on the CPU", r"\bindex\b", "cpu", on_meta=False, index=index.cpu())


def _spmm_errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    given = calls.matrix(device, [2, 0, 3], 4)
    dense, value = make(4, 6), make(5)
    yield from _structure_errors((dense, value), given, 5, 4)

    def error(name: str, *operands, says: tuple[str, ...], on_meta: bool = True, **kwargs) -> ErrorCase:
        return ErrorCase(name, operands, {**given, **kwargs}, says=says, on_meta=on_meta)

    yield error("unknown reduction", dense, value, says=(r"\breduce\b", "prod"), reduce="prod")
    for dtype in (torch.int64, torch.complex64, torch.bool):
        yield error(f"{dtype} dense", dense.to(dtype), says=(r"\bdense\b", "floating-point"))
    yield error("0-d dense", make(), says=(r"\bdense\b", r"\[\]"))
    yield error("3-d value", dense, make(5, 1, 1), says=(r"\bvalue\b", r"\[5, 1, 1\]"))
    yield error("0-d value", dense, make(), says=(r"\bvalue\b", r"\[\]"))
    yield error("short value", dense, make(4), says=(r"\bvalue\b", r"\b5\b", r"\[4\]"))
    yield error("float64 value", dense, value.double(), says=(r"\bvalue\b", "Float", "Double"))
    yield error("heads of a matrix", dense, make(5, 2), says=(r"\bdense\b", "3", r"\[4, 6\]"))
    yield error("other heads", make(4, 3, 2), make(5, 2), says=(r"\bdense\b", "heads", r"\[4, 3, 2\]"))
    yield error("other columns", make(5, 6), value, says=(r"\bt_ptr\b", r"\[6\]", r"\[5\]"))
    own = {**given, "index": None, "t_ptr": None, "t_index": None, "t_entry": None}
    yield ErrorCase("no index, other entries", (dense, value), own, says=(r"\bvalue\b", r"\b4\b", r"\[5\]"))
    if device != "cpu":
        yield error("value on the CPU", dense, value.cpu(), says=(r"\bvalue\b", "cpu"), on_meta=False)


def _sddmm_errors(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    given = calls.matrix(device, [2, 0, 3], 4)
    a, b = make(3, 6), make(4, 6)
    yield from _structure_errors((a, b), given, 5, 4)

    def error(name: str, *operands, says: tuple[str, ...], on_meta: bool = True, **kwargs) -> ErrorCase:
        return ErrorCase(name, operands, {**given, **kwargs}, says=says, on_meta=on_meta)

    for dtype in (torch.int64, torch.complex64):
        yield error(f"{dtype} a", a.to(dtype), b.to(dtype), says=(r"\ba\b", "floating-point"))
    yield error("float64 b", a, b.double(), says=(r"\bb\b", "Float", "Double"))
    yield error("1-d a", make(3), b, says=(r"\ba\b", r"\[3\]"))
    yield error("3-d a", make(3, 2, 3), b, says=(r"\ba\b", r"\[3, 2, 3\]"))
    yield error("1-d b", a, make(4), says=(r"\bb\b", r"\[4\]"))
    yield error("other features", a, make(4, 5), says=(r"\bb\b", r"\[4, 5\]"))
    yield error("2-d a with heads", a, b, says=(r"\ba\b", r"\[3, 6\]"), heads=True)
    yield error("other heads", make(3, 2, 3), make(4, 3, 2), says=(r"\bb\b", r"\[4, 3, 2\]"), heads=True)
    yield error("other rows", make(2, 6), b, says=(r"\ba\b", r"\b3\b", r"\[2, 6\]"))
    if device != "cpu":
        yield error("b on the CPU", a, b.cpu(), says=(r"\bb\b", "cpu"), on_meta=False)


# ---------------------------------------------------------------- operators that only nodes call


def _exact(device, result_dtype, reference, *operands, **kwargs):
    """Small integers, and maxima of them, are exact."""
    return torch.zeros_like(reference)


def _integers(build, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Calls of a maximum with small integers. Many are equal, and all are exact in every dtype."""
    for sample in build(device, dtype):
        if sample.kwargs.get("reduce", "sum") not in ("max", "min"):
            continue
        given = {n: v for n, v in sample.kwargs.items() if not n.startswith("t_")}
        yield Sample(sample.name, sample.map(lambda t: _small(t)).args, given, sanitize=sample.sanitize)
        other = "min" if given["reduce"] == "max" else "max"
        yield Sample(f"{sample.name}, {other}", sample.map(lambda t: _small(t)).args, {**given, "reduce": other})


def _small(t: torch.Tensor) -> torch.Tensor:
    """The same layout, with integers from -2 to 2. NaN stays."""
    if not t.is_floating_point() or t.numel() == 0 or 0 in t.stride() or t.is_neg():
        return t.round().clamp(-2, 2) if t.is_floating_point() else t
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t.round().clamp(-2, 2))


def _both(result: torch.Tensor, arg: torch.Tensor) -> torch.Tensor:
    return torch.stack([result.double(), arg.double()])


def _spmm_arg(dense, value=None, *, ptr, index=None, entry=None, **rest):
    return _both(*OPS._spmm_arg.default(ptr, index, entry, value, dense, **rest))


def _arg_reference(dense, value=None, *, ptr, index=None, entry=None, reduce, **rest):
    dense, value = _wide(dense, value)
    found = [_by_rows(dense, value, ptr, index, entry, functools.partial(f, reduce)) for f in (_reduced, _arg)]
    return _both(*found)


def _sums(build, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """All calls, as sums."""
    for sample in build(device, dtype):
        given = {n: v for n, v in sample.kwargs.items() if not n.startswith("t_") and n != "reduce"}
        yield Sample(sample.name, sample.args, given, sanitize=sample.sanitize)


def _wide_of(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _spmm_wide(dense, value=None, *, ptr, index=None, entry=None, **rest):
    return OPS._spmm_wide.default(ptr, index, entry, value, dense, **rest)


def _selected_samples(build, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Sums in which about half of the entries count: for each feature of a dense row, the value that it selects."""
    generator = torch.Generator().manual_seed(8)
    for sample in build(device, dtype):
        dense = sample.args[0]
        given = {n: v for n, v in sample.kwargs.items() if not n.startswith("t_") and n != "reduce"}
        index = given["index"]
        entries = dense.shape[0 if dense.dim() == 1 else -2] if index is None else index.shape[0]
        selected = torch.randint(-1, max(min(entries, 4), 1), dense.shape, generator=generator)
        kwargs = {**given, "selected": selected.to(given["ptr"])}
        yield Sample(sample.name, sample.args, kwargs, sanitize=sample.sanitize)


def _spmm_selected(dense, value=None, *, ptr, index=None, entry=None, selected, **rest):
    return OPS._spmm_selected.default(ptr, index, entry, value, dense, selected, **rest)


def _selected_by(dense, value, ptr, index, entry, selected, function) -> torch.Tensor:
    if dense.dim() == 1:
        return _selected_by(dense[:, None], value, ptr, index, entry, selected[:, None], function)[:, 0]
    row_dim = -3 if value is not None and value.dim() == 2 else -2

    def of_row(terms, at):
        first = of_row.first
        of_row.first += terms.shape[0]
        columns = torch.arange(first, first + terms.shape[0], device=ptr.device)
        if index is not None:
            columns = index.long()[columns]
        chosen = selected.index_select(row_dim, columns).movedim(row_dim, 0)
        counts = chosen == at.view(-1, *[1] * (terms.dim() - 1))
        return function(torch.where(counts, terms, 0))

    of_row.first = 0
    return _by_rows(dense, value, ptr, index, entry, of_row)


def _selected_reference(dense, value=None, *, ptr, index=None, entry=None, selected, **rest):
    return _selected_by(*_wide(dense, value), ptr, index, entry, selected, lambda terms: terms.sum(0))


def _selected_bound(
    device, result_dtype, reference, dense, value=None, *, ptr, index=None, entry=None, selected, **rest
):
    eps, tiny = _eps(result_dtype)
    sizes = [None if t is None else finite_sizes(t.double()) for t in (dense, value)]
    return eps * _selected_by(*sizes, ptr, index, entry, selected, lambda t: t.sum(0) * (t.shape[0] + 4)) + tiny


def _rounded(function):
    """A reference as what stands for ATen."""

    def aten(dense, *operands, **kwargs):
        result = function(dense, *operands, **kwargs)
        return (result if function is _arg_reference else result.to(dense.dtype)).contiguous()

    return aten


def _transposed_samples(build, device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Matrices of the samples, whose integers have the dtype."""
    dtype = torch.int32 if dtype.is_floating_point else dtype
    for sample in build(device, torch.float32):
        index = sample.kwargs["index"]
        if index is None:
            continue
        dense = sample.args[0]
        heads = len(sample.args) > 1 and sample.args[1].dim() == 2
        columns = dense.shape[0 if dense.dim() == 1 else -3 if heads else -2]
        yield Sample(sample.name, (sample.kwargs["ptr"].to(dtype), index.to(dtype), columns), sanitize=sample.sanitize)


def _transpose(ptr, index, columns):
    return torch.cat(OPS._transpose.default(ptr, index, columns))


def _transpose_reference(ptr, index, columns):
    numbers, rows = index.tolist(), torch.arange(ptr.shape[0] - 1).repeat_interleave(ptr.cpu().diff().long()).tolist()
    order = sorted(range(len(numbers)), key=lambda e: (numbers[e], e))
    starts = [sum(n < c for n in numbers) for c in range(columns + 1)]
    found = starts + [rows[e] for e in order] + order
    return torch.tensor(found, dtype=torch.int64, device=ptr.device)


# ---------------------------------------------------------------- _embedding_bag

# What it returns beside the bags: tests/override/test_embedding_bag.py.
_MODES = ("sum", "mean", "max")


def _bag_samples(device: str, dtype: torch.dtype, matrices=tuple(calls.MATRICES)) -> Iterator[Sample]:
    make = Maker(device, dtype)
    for k, name in enumerate(matrices):
        degrees, columns = calls.MATRICES[name]
        for j, (mode, n) in enumerate(itertools.product((*_MODES, "sum"), range(4))):
            if mode == "mean" and device == "cpu" and dtype.itemsize == 2:
                mode = "sum"  # of a mean, ATen's kernel of the CPU rounds each addition
            features = calls.FEATURES[(3 * k + 5 * n) % len(calls.FEATURES)]
            if sum(degrees) * features > 60_000:
                features = (1, 4, 3, 8)[n]
            number = (torch.int32, torch.int64)[(k + j) % 2]
            given = calls.matrix(device, degrees, columns, dtype=number, transposed=False, seed=k)
            value = make(sum(degrees)) if j >= 12 else None
            more = {"reduce": mode, "last": n % 2 == 0, "padding": (-1, columns // 2)[j % 2]}
            weight = make(columns, features + n % 3)[:, :features]
            yield calls.spmm_sample(f"{name}, {features} {mode}", weight, value, {**given, **more}, sanitize=n == 0)


def _bag_call(sample: Sample) -> Sample:
    (weight, value), given = (*sample.args, None)[:2], sample.kwargs
    offsets = given["ptr"] if given["last"] else given["ptr"][:-1]
    mode = _MODES.index(given["reduce"])
    args = (weight, given["index"], offsets, value, mode, given["last"], given["padding"])
    return replace(sample, args=args, kwargs={})


def _bag(*operands, **given) -> torch.Tensor:
    return OPS._embedding_bag.default(*_bag_call(Sample("", operands, given)).args)[0]


def _aten_bag(*operands, **given) -> torch.Tensor:
    weight, index, offsets, value, mode, *rest = _bag_call(Sample("", operands, given)).args
    return torch.ops.aten._embedding_bag_forward_only(weight, index, offsets, False, mode, False, value, *rest)[0]


def _without_padding(function):
    """A function of a matrix without the entries that do not count."""

    def call(weight, value=None, *, ptr, index, padding, reduce, **rest):
        counts = index != padding
        begin = torch.nn.functional.pad(counts.cumsum(0), (1, 0))[ptr.long()]
        return function(weight, None if value is None else value[counts], ptr=begin, index=index[counts], reduce=reduce)

    return call


# Operands that a kernel can't read are copied. Long rows need a result for each of their pieces.
_shared = {"elementwise": False, "workspace": workspace_of(8)}
_public = functools.partial(OpCase, dtypes=FLOATS, grad_dtypes=FLOATS, saves_inputs=True, cancels=4, **_shared)
_internal = functools.partial(internal_case, **_shared)
_spmm_calls = {"arguments": _spmm_call, "dtypes": FLOATS}
CASES = [
    _public(
        name="spmm", op=_spmm, overload=OPS.spmm.default, arguments=_spmm_call, aten=aten, reference=reference,
        samples=calls.spmm_samples, few=calls.spmm_few, errors=_spmm_errors, bound=bound,
    ),
    _public(
        name="sddmm", op=_sddmm, overload=OPS.sddmm.default, arguments=_sddmm_call, aten=_aten_sddmm, reference=_sddmm_reference,
        samples=calls.sddmm_samples, few=calls.sddmm_few, errors=_sddmm_errors, bound=_sddmm_bound,
    ),
    _internal(
        name="_spmm_arg", op=_spmm_arg, overload=OPS._spmm_arg.default, aten=_rounded(_arg_reference), reference=_arg_reference,
        samples=functools.partial(_integers, calls.spmm_samples), few=functools.partial(_integers, calls.spmm_few),
        bound=_exact, **_spmm_calls,
    ),
    _internal(
        name="_spmm_wide", op=_spmm_wide, overload=OPS._spmm_wide.default, reference=reference,
        aten=lambda dense, *operands, **rest: reference(dense, *operands, **rest).to(_wide_of(dense.dtype)).contiguous(),
        samples=functools.partial(_sums, calls.spmm_samples), few=functools.partial(_sums, calls.spmm_few), bound=bound,
        as_accurate=False, **_spmm_calls,
    ),
    _internal(
        name="_spmm_selected", op=_spmm_selected, overload=OPS._spmm_selected.default, aten=_rounded(_selected_reference),
        reference=_selected_reference, samples=functools.partial(_selected_samples, calls.spmm_samples),
        few=functools.partial(_selected_samples, calls.spmm_few), bound=_selected_bound, as_accurate=False, **_spmm_calls,
    ),
    _internal(
        name="_embedding_bag", op=_bag, overload=OPS._embedding_bag.default, arguments=_bag_call, aten=_aten_bag, dtypes=FLOATS,
        reference=_without_padding(reference), samples=_bag_samples,
        few=functools.partial(_bag_samples, matrices=("mixed", "one row")),
        bound=lambda device, dtype, result, *operands, **given: _without_padding(functools.partial(bound, device, dtype, result))(
            *operands, **given
        ),
    ),
    _internal(
        name="_transpose", op=_transpose, overload=OPS._transpose.default,
        aten=lambda ptr, index, columns: _transpose_reference(ptr, index, columns).to(ptr.dtype), reference=_transpose_reference,
        samples=functools.partial(_transposed_samples, calls.spmm_samples),
        few=functools.partial(_transposed_samples, calls.spmm_few), dtypes=(torch.int32, torch.int64), bound=exact,
    ),
]  # fmt: skip
