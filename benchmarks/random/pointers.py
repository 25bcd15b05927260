"""Random calls with row pointers, lengths and positions of values that nobody checked. Results are unspecified, but memory is not.

    python -m benchmarks fuzz pointers --calls 2000     so many calls of every family
    python -m benchmarks fuzz pointers spmm --seed 17 --calls 1     one call again, as a failure prints it
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --error-exitcode 1 python -m benchmarks fuzz pointers --calls 300

Pointers descend, are shuffled, negative, beyond the data or any numbers. Column indices are right, because a wrong one fails a
device-side assertion. Operands must stay as they are, and the CUDA context must survive. Half of the calls have poison around their
operands. The other operands end where their memory ends, so that compute-sanitizer sees the first byte behind them. CPU kernels may
raise an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from benchmarks.harness.traffic import results
from benchmarks.random.fuzz import between_poison
from benchmarks.random.override import replaced
from benchmarks.random.processes import Mode
from benchmarks.random.views import FLOATING, Draw, View
from torch_ops.compat import torch_scatter

ops = torch.ops.gpuopt
KINDS = ("descending", "shuffled", "negative", "beyond", "any")
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


Call = tuple[str, Callable, tuple[torch.Tensor | None, ...]]  # what it is, a function, and its tensors


class Wrong(Draw):
    """Draws a problem: sizes, a kind of wrong numbers, and tensors."""

    def __init__(self, seed: str, device: str):
        super().__init__(seed, device)
        self.rows, self.columns, self.entries = self.choice((1, 5, 40, 700)), 30, self.choice((1, 7, 60, 500, 3000))
        self.features, self.kind = self.size(1, 70), self.choice(KINDS)
        self.number, self.dtype = self.choice((torch.int32, torch.int64)), self.choice(FLOATING)

    def numbers(self, count: int, *of: int) -> torch.Tensor:
        """Integers in a range, or any integers."""
        limit = torch.iinfo(self.number).max
        return torch.randint(*(of or (-limit, limit)), (count,), dtype=self.number, device=self.device)

    def ptr(self) -> torch.Tensor:
        right = self.numbers(self.rows + 1, 0, self.entries + 1).sort().values
        return {
            "descending": right.flip(0),
            "shuffled": right[torch.randperm(self.rows + 1, device=self.device)],
            "negative": right - self.entries // 2 - 1,
            "beyond": right + self.entries // 2 + 1,
            "any": self.numbers(self.rows + 1),
        }[self.kind]

    def dense(self, *shape: int) -> torch.Tensor:
        return (torch.randn(shape, device=self.device) * 8).to(self.dtype)

    def matrix(self, needs_index: bool = False) -> tuple[torch.Tensor | None, ...]:
        """ptr, index and entry. Without an index, the columns are the entries. Half of the positions lie near the values."""
        index = self.numbers(self.entries, 0, self.columns) if needs_index or self.chance(0.7) else None
        self.columns = self.entries if index is None else self.columns
        near = (-5, 2 * self.entries + 1) if self.chance(0.5) else ()
        return self.ptr(), index, self.numbers(self.entries, *near) if self.chance(0.5) else None


def _segments(d: Wrong, op: Callable, reductions: tuple = (), integers: bool = False, of_rows: bool = False) -> Call:
    reduce = (d.choice(reductions),) if reductions else ()
    if integers and d.chance(0.2):
        d.dtype = d.choice((torch.int32, torch.int64, torch.uint8))
    x = d.dense(d.rows if of_rows else d.entries, d.features)
    return "".join(reduce), lambda x, ptr: op(x, ptr, *reduce), (x, d.ptr())


def segment_csr(d: Wrong) -> Call:
    return _segments(d, lambda x, ptr, reduce: torch_scatter.segment_csr(x, ptr, None, reduce), REDUCTIONS[:4], True)


def segment_expand(d: Wrong) -> Call:
    return _segments(d, lambda x, ptr: ops.segment_expand(x, ptr, d.entries), of_rows=True)


def gather_csr(d: Wrong) -> Call:
    """The last number is right, because it is the size of the result."""
    last = torch.tensor([d.entries], dtype=d.number, device=d.device)
    return _segments(d, lambda x, ptr: torch_scatter.gather_csr(x, torch.cat([ptr[:-1], last])), of_rows=True)


def aten_segment_reduce(d: Wrong) -> Call:
    is_lengths = d.chance(0.5)

    def op(x: torch.Tensor, ptr: torch.Tensor, reduce: str) -> torch.Tensor:
        where = {"lengths": ptr[1:].clone()} if is_lengths else {"offsets": ptr}
        return torch.segment_reduce(x, reduce, **where, unsafe=True)

    return _segments(d, op, REDUCTIONS)


def _spmm(d: Wrong, op: Callable, reductions: tuple = ()) -> Call:
    reduce, heads = (d.choice(reductions),) if reductions else (), d.choice(((), (), (1,), (4,)))
    matrix = d.matrix()
    value = d.dense(d.entries, *heads) if heads or d.chance(0.5) else None
    return "".join(reduce), lambda *of: op(*of, *reduce), (*matrix, value, d.dense(d.columns, *heads, d.features))


def sddmm(d: Wrong) -> Call:
    heads, matrix = d.choice(((), (1,), (4,))), d.matrix()
    a, b = (d.dense(n, *heads, d.features) for n in (d.rows, d.columns))
    return "", lambda *of: ops.sddmm(*of, bool(heads)), (*matrix, a, b)


def graph_attention(d: Wrong) -> Call:
    heads, keys, (ptr, index, entry) = d.choice((1, 2, 4)), d.choice(((), (d.size(1, 32),))), d.matrix(needs_index=True)
    if entry is not None:  # heads that are no vectors are computed by operators that assert that positions exist
        entry = torch.randperm(d.entries, device=d.device).to(entry.dtype)
    left, right = (d.dense(n, heads, *keys) for n in (d.rows, d.columns))
    value, bias = d.dense(d.columns, heads, d.features), d.dense(d.entries, heads) if d.chance(0.3) else None
    return "", lambda *of: ops._graph_attention(*of, 0.2), (ptr, index, entry, left, right, value, bias)


FAMILIES: dict[str, Callable[[Wrong], Call]] = {
    "segment_reduce": lambda d: _segments(d, ops.segment_reduce, REDUCTIONS, integers=True),
    "_segment_reduce_arg": lambda d: _segments(d, ops._segment_reduce_arg, ("max", "min"), integers=True),
    "segment_expand": segment_expand,
    "segment_softmax": lambda d: _segments(d, ops.segment_softmax),
    "segment_csr": segment_csr,
    "gather_csr": gather_csr,
    "torch.segment_reduce": aten_segment_reduce,
    "spmm": lambda d: _spmm(d, ops.spmm, ("sum", "mean", "max", "min")),
    "_spmm_arg": lambda d: _spmm(d, ops._spmm_arg, ("max", "min")),
    "_spmm_wide": lambda d: _spmm(d, ops._spmm_wide),
    "sddmm": sddmm,
    "_graph_attention": graph_attention,
}


def exact(t: torch.Tensor) -> View:
    """A copy of a tensor in memory of its size."""
    return View(tuple(t.shape), t.stride(), 0, t.dtype, False, False, t.clone().view(-1).view(torch.uint8))


def draw(family: str, seed: int, device: str) -> tuple[str, Callable, tuple, Wrong]:
    torch.manual_seed(seed)
    d = Wrong(f"{family} {seed}", device)
    form, function, tensors = FAMILIES[family](d)
    shapes = [f"{str(t.dtype)[6:]}{list(t.shape)}" for t in tensors if t is not None]
    return f"{family} {form}, {d.kind} pointers, {'; '.join(shapes)}", function, tensors, d


def faults(form: str, function: Callable, tensors: tuple, d: Wrong) -> Iterator[str]:
    """What is wrong with one call, and with a gradient. That of a product is ATen's, whose kernel trusts the numbers."""
    is_poisoned = d.chance(0.5)
    views = [t if t is None else between_poison(t, d.randrange(9)) if is_poisoned else exact(t) for t in tensors]
    before = [view and view.buffer.clone() for view in views]
    operands = [view and view.tensor(view.buffer) for view in views]
    if operands[0].is_floating_point() and "prod" not in form and d.chance(0.3):
        operands[0].requires_grad_()
    try:
        with replaced(d.device):
            out = results(function(*operands))[0]
            if out.requires_grad:
                torch.autograd.grad(out, operands[0], torch.ones_like(out))
        if d.device == "cuda":
            torch.cuda.synchronize()
    except (IndexError, ValueError, RuntimeError):
        if d.device == "cuda":
            raise
    for k, (view, expected) in enumerate(zip(views, before)):
        if view and not torch.equal(view.buffer, expected):
            yield f"operand {k}, or memory around it, has changed"


MODE = Mode("pointers", tuple(FAMILIES), draw, faults)


def main(argv: list[str]) -> int:
    return MODE.main(__doc__, argv)
