"""index_add, beyond the contract of every operator: public functions, the three modes, untouched elements, gradients through a
graph layer, and vmap over the index.

test_cuda.py tests repeatability and memory.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.autograd import gradcheck, gradgradcheck

import torch_ops

from ...cases import tensors
from ...cases.index_add import CASES, index_add_reference
from ...cases.samples.index_add_samples import DISTRIBUTIONS, MODES, indices
from ...support.compare import Failures, all_close, close, different_bits, different_metadata, raised_by
from ...support.params import each_device
from ...support.runtime import deterministic_algorithms

(CASE,) = CASES
OPS = torch.ops.gpuopt
HALVES = (torch.float16, torch.bfloat16)
each_mode = pytest.mark.parametrize("mode", MODES)
each_half = pytest.mark.parametrize("dtype", HALVES, ids=str)


def _all_forms(self, dim, index, source, **given) -> dict[str, torch.Tensor]:
    """The result of every form of the operator."""
    return {
        "functional": torch_ops.index_add(self, dim, index, source, **given),
        "in place": torch_ops.index_add_(self.clone(), dim, index, source, **given),
        "out": torch_ops.index_add(self, dim, index, source, out=torch.empty_like(self), **given),
    }


# ---------------------------------------------------------------- the public functions


@each_device
def test_forms_of_arguments(device):
    """Arguments by position or by name, with and without keywords. The functions and the operators agree."""
    x, source = torch.randn(5, 3, device=device), torch.randn(2, 3, device=device)
    index = torch.tensor([4, 1], device=device)
    for given in ({}, {"alpha": 2}, {"alpha": -0.5, "mode": "accurate"}, {"mode": "deterministic"}):
        want = torch.index_add(x, 0, index, source, alpha=given.get("alpha", 1))
        out = torch.empty_like(x)
        assert torch_ops.index_add(x, 0, index, source, **given, out=out) is out
        written = x.clone()
        assert torch_ops.index_add_(written, 0, index, source, **given) is written
        for got in (
            out,
            written,
            torch_ops.index_add(x, 0, index, source, **given),
            torch_ops.index_add(input=x, dim=-2, index=index, source=source, **given),
            torch_ops.index_add_(input=x.clone(), dim=0, index=index, source=source, **given),
            OPS.index_add(x, 0, index, source, **given),
            OPS.index_add_(x.clone(), 0, index, source, **given),
            OPS.index_add(x, 0, index, source, **given, out=torch.empty_like(x)),
        ):
            assert different_bits(got, want) is None and different_metadata(got, want) is None
    for too_many in ((1,), (1, "fast")):  # alpha and mode are keyword-only
        assert isinstance(raised_by(torch_ops.index_add, x, 0, index, source, *too_many), TypeError)


@each_device
@pytest.mark.parametrize("mode", ["", "Fast", "exact", "fast ", "deterministic,accurate"])
def test_refuses_other_modes(device, mode):
    """Every form refuses another mode by an error that names the three modes. It writes nothing, also if there is nothing to
    add."""
    for count in (2, 0):
        index = torch.arange(count, device=device)
        x, source, out = (torch.ones(n, 3, device=device) for n in (4, count, 4))
        for call in (
            lambda x=x, i=index, s=source: torch_ops.index_add(x, 0, i, s, mode=mode),
            lambda x=x, i=index, s=source: torch_ops.index_add_(x, 0, i, s, mode=mode),
            lambda x=x, i=index, s=source, out=out: torch_ops.index_add(x, 0, i, s, mode=mode, out=out),
            lambda x=x, i=index, s=source: torch_ops.index_add(x.to("meta"), 0, i.to("meta"), s.to("meta"), mode=mode),
            lambda x=x, i=index, s=source: torch_ops.index_add(x.clone().requires_grad_(), 0, i, s, mode=mode),
        ):  # fmt: skip
            refusal = raised_by(call)
            assert isinstance(refusal, ValueError), f"{refusal!r}"
            assert all(word in str(refusal) for word in ("gpuopt::index_add", "mode", *MODES)), f"{refusal}"
        assert (x == 1).all() and (out == 1).all() and x._version == out._version == 0
    assert raised_by(torch_ops.index_add, x, 0, index, source, mode=None) is not None


# ---------------------------------------------------------------- the three modes


@each_device
@pytest.mark.parametrize("width", [1, 16, 64])
def test_partial_sums_beyond_float16(device, width):
    """The sum of all values for a bin, without self, exceeds float16, but self plus the values does not. The result must be
    finite."""
    self = torch.zeros(2000, width, dtype=torch.float16, device=device)
    self[7] = -60000
    index, source = torch.arange(4096, device=device) % 1000 + 1000, torch.zeros(4096, width, device=device).half()
    index[[5, 6, 9]], source[[5, 6, 9]] = 7, 30000
    for mode in MODES:
        result = torch_ops.index_add(self, 0, index, source, mode=mode)
        assert (result[7] == 30000).all() and torch.count_nonzero(result) == width


@each_device
@pytest.mark.parametrize("width", [1, 16, 64])
def test_sums_far_beyond_float16(device, width):
    """Sums of up to 2^20 * 60000 * 60000 are infinite in float16, in any order of additions."""
    index = torch.zeros(2**20 // width, dtype=torch.int64, device=device)
    source = torch.full((len(index), width), 60000.0, dtype=torch.float16, device=device)
    for mode, alpha in itertools.product(MODES, (1, 8000, 60000)):
        self = torch.zeros(2000, width, dtype=torch.float16, device=device)
        torch_ops.index_add_(self, 0, index, source, alpha=alpha, mode=mode)
        assert (self[0] == torch.inf).all() and (self[1:] == 0).all(), f"{mode}, alpha {alpha}"


@each_device
@each_half
@pytest.mark.parametrize("width", [None, 1, 3, 8, 33])
def test_a_hot_row_of_ones(device, dtype, width):
    """Many ones are added to one row (100 000 in bfloat16, 50 000 in float16). A running sum would stop at 256 or 2048."""
    count = 100_000 if dtype == torch.bfloat16 else 50_000
    row = () if width is None else (width,)
    x, source = (torch.ones(n, *row, dtype=dtype, device=device) for n in (3, count))
    index = torch.ones(count, dtype=torch.int64, device=device)
    want = x.clone()
    want[1] = float(count + 1)
    for mode in ("accurate", "deterministic"):
        for form, got in _all_forms(x, 0, index, source, mode=mode).items():
            assert different_bits(got, want) is None, f"{mode}, {form}"
    if device == "cpu":
        assert different_bits(torch_ops.index_add(x, 0, index, source), torch.index_add(x, 0, index, source)) is None


@each_device
@pytest.mark.parametrize("dtype", [*HALVES, torch.complex32], ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_half_types_are_rounded_once(device, dtype):
    """fp16 and bf16 results are the nearest to the exact sums, in every regime. Values are integers, with exact sums in float32."""
    failures = Failures()
    generator = torch.Generator().manual_seed(3)
    shapes = (
        ((1000,), 0, 20_000), ((3,), 0, 40_000), ((7, 3), 0, 12_000), ((100, 8), 0, 3000), ((20, 129), 0, 700), ((40, 5), 1, 400),
        ((3, 9, 4), 1, 2000),
    )  # fmt: skip
    for (shape, dim, count), distribution in itertools.product(shapes, ("equal", "zipf", "runs", "ends")):
        source_shape = [*shape[:dim], count, *shape[dim + 1 :]]
        parts = (torch.randint(-3, 9, (*s, 2), generator=generator).float() for s in (shape, source_shape))
        x, source = (torch.view_as_complex(t) if dtype.is_complex else t[..., 0] for t in parts)
        x, source, index = (
            x.to(device, dtype),
            source.to(device, dtype),
            indices(distribution, shape[dim], count).to(device),
        )
        for mode, alpha in itertools.product(("accurate", "deterministic"), (1, -2)):
            name = f"{shape}, dim {dim}, {count} {distribution}, {mode}, alpha={alpha}"
            with failures.sample(name):
                exact = index_add_reference(x, dim, index, source, alpha=alpha)
                wide = torch.complex64 if dtype.is_complex else torch.float32
                for form, got in _all_forms(x, dim, index, source, mode=mode, alpha=alpha).items():
                    failures.add(f"{name}, {form}", different_bits(got, exact.to(wide).to(dtype)))
    failures.check(at_least=100)


@each_device
@pytest.mark.parametrize("dtype", [*tensors.INTEGERS, torch.bool], ids=str)
def test_modes_agree_on_integers(device, dtype):
    """All modes give the same integers, because sums that wrap around do not depend on the order."""
    make = tensors.Maker(device, dtype)
    for (shape, count), distribution in itertools.product(
        (((50,), 1000), ((3,), 33_000), ((9, 17), 300)), DISTRIBUTIONS
    ):
        given = make(*shape), 0, indices(distribution, shape[0], count).to(device), make(count, *shape[1:])
        want = torch_ops.index_add(*given)
        for mode in MODES:
            for form, got in _all_forms(*given, mode=mode).items():
                assert different_bits(got, want) is None, f"{shape}, {count} {distribution}, {mode}, {form}"


@each_device
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.complex64], ids=str
)
def test_under_deterministic_algorithms(device, dtype):
    """use_deterministic_algorithms refuses no mode. Every mode gives the bits of 'deterministic', although new memory is filled
    with NaN."""
    make = tensors.Maker(device, dtype)
    plain_differs = False
    for shape, dim, count in (((20, 40), 0, 3000), ((50,), 0, 5000), ((3, 2), 0, 20_000), ((6, 30), 1, 500)):
        source = make(*shape[:dim], count, *shape[dim + 1 :])
        given = make(*shape), dim, indices("zipf", shape[dim], count).to(device), source
        want = torch_ops.index_add(*given, mode="deterministic")
        plain_differs |= different_bits(torch_ops.index_add(*given), want) is not None
        with deterministic_algorithms():
            for mode, _ in itertools.product(MODES, range(3)):
                for form, got in _all_forms(*given, mode=mode).items():
                    assert different_bits(got, want) is None, f"{shape}, {mode}, {form}"
            leaf = source.clone().requires_grad_()
            torch_ops.index_add(given[0], dim, given[2], leaf).abs().sum().backward()
        assert leaf.grad.isfinite().all()
    assert plain_differs or device == "cuda" or dtype not in HALVES, "the samples cannot tell the modes apart"


# ---------------------------------------------------------------- what is left as it was


@each_device
@each_mode
@pytest.mark.parametrize("dtype", tensors.ALL, ids=str)
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_what_no_index_names_stays(device, mode, dtype):
    """Elements without an index keep their bits, including NaN and zeros of either sign, in every regime: histograms, narrow and
    wide rows, and dimensions in the middle."""
    values = tensors.specials(dtype, device)
    for (row, dim, count), layout in itertools.product(
        (((), 0, 40), ((), 0, 70_000), ((3,), 0, 12_000), ((40,), 0, 40), ((40,), 0, 2000), ((2,), 1, 20)),
        ("contiguous", "transposed"),
    ):
        bins = 2 * len(values)
        column = values.repeat_interleave(2)
        x = column.view(-1, *[1] * len(row)).expand(bins, *row).contiguous().movedim(0, dim)
        x = tensors.LAYOUTS[layout](x)
        if x is None:
            continue
        source = torch.ones([*x.shape[:dim], count, *x.shape[dim + 1 :]], device=device).to(dtype)
        odd = 2 * indices("zipf", bins // 2, count).to(device) + 1
        for form, got in _all_forms(x, dim, odd, source, mode=mode).items():
            kept, before = (t.movedim(dim, 0)[::2] for t in (got, x))
            assert different_bits(kept, before) is None, f"{row}, {count}, {layout}, {form}"


@each_device
@each_mode
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_zeros_keep_their_sign(device, mode, dtype):
    """Signs of zeros follow IEEE 754: a sum of only -0 is -0, and with one +0 it is +0."""
    for shape, count in (((6,), 60), ((6,), 40_000), ((6, 3), 14_000), ((6, 40), 60), ((6, 40), 3000)):
        x = torch.full(shape, -0.0, dtype=dtype, device=device)
        source = torch.full((count, *shape[1:]), -0.0, dtype=dtype, device=device)
        index = torch.arange(count, device=device) % 4
        source[5] = 0.0  # for bin 1
        want = x.clone()
        want[1] = 0.0
        for form, got in _all_forms(x, 0, index, source, mode=mode).items():
            assert different_bits(got, want) is None, f"{shape}, {count}, {form}"


@each_device
@each_mode
def test_views(device, mode):
    """index_add_ to a view changes only the view's elements in its base, and the versions of both increase."""
    base = torch.zeros(6, 8, device=device)
    view = base[1:5, ::2]
    versions = base._version
    index, source = torch.tensor([3, 0, 3], device=device), torch.ones(3, 4, device=device)
    assert torch_ops.index_add_(view, 0, index, source, mode=mode) is view
    want = torch.zeros(6, 8, device=device)
    want[4, ::2], want[1, ::2] = 2, 1
    assert torch.equal(base, want)
    assert base._version == view._version == versions + 1
    torch_ops.index_add_(base.mT, 0, index, torch.ones(3, 6, device=device), mode=mode)
    want[:, 3] += 2
    want[:, 0] += 1
    assert torch.equal(base, want) and base._version == versions + 2


@each_device
@each_mode
def test_more_outer_dimensions_than_a_launch_supports(device, mode):
    """The outer dimensions do not merge. A slice without the innermost of them has another innermost dimension."""
    random = torch.Generator(device).manual_seed(0)
    x = torch.zeros(4, 4, 4, 8, 2, 8, device=device)
    source = torch.randint(0, 9, (4, 4, 4, 2, 64, 8), generator=random, device=device).float().permute(2, 1, 0, 5, 3, 4)
    index = torch.randint(0, 8, (64,), generator=random, device=device)
    assert torch.equal(torch_ops.index_add(x, 5, index, source, mode=mode), torch.index_add(x, 5, index, source))


@each_device
def test_an_out_that_is_self(device):
    """out= may be self, and no other operand. Tested in every layout."""
    make = tensors.Maker(device, torch.float64)
    index, source = indices("hot", 9, 30).to(device), make(30, 33)
    for layout in ("contiguous", "transposed", "sliced", "misaligned1"):
        x = tensors.LAYOUTS[layout](make(9, 33))
        want = torch_ops.index_add(x, 0, index, source, mode="deterministic")
        assert torch_ops.index_add(x, 0, index, source, mode="deterministic", out=x) is x
        assert different_bits(x, want) is None, layout


# ---------------------------------------------------------------- derivatives


def _mean_aggregation(op, nodes, weight, importance, sender, receiver):
    """A layer of a graph network, which gives each node the mean of its neighbours' features."""
    messages = (nodes @ weight).index_select(0, sender) * importance[:, None]
    count = len(nodes)
    total = op(messages.new_zeros(count, weight.shape[1]), 0, receiver, messages)
    degree = op(messages.new_zeros(count), 0, receiver, torch.ones_like(importance))
    return torch.relu(total / degree.clamp(min=1)[:, None]) + nodes @ weight


def _graph(device, dtype=torch.float32, nodes=60, edges=500, features=8):
    generator = torch.Generator().manual_seed(5)
    sender, receiver = (indices(d, nodes, edges, seed=s).to(device) for s, d in enumerate(("uniform", "zipf")))
    leaves = (
        torch.randn(s, generator=generator, dtype=torch.float64) for s in ((nodes, features), (features, 5), (edges,))
    )
    return [t.to(device, dtype).requires_grad_() for t in leaves], (sender, receiver)


@each_device
@each_mode
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_through_a_graph_layer(device, mode, dtype):
    """Two layers, in place and functional, have torch's results and gradients."""

    def ours(*args):
        return torch_ops.index_add(*args, mode=mode)

    def in_place(x, *args):
        return torch_ops.index_add_(x, *args, mode=mode)

    outcomes = []
    for op in (ours, in_place, torch.index_add):
        leaves, edges = _graph(device, dtype)
        nodes, weight, importance = leaves
        hidden = _mean_aggregation(op, nodes, weight, importance, *edges)
        result = _mean_aggregation(op, hidden, weight.mT @ weight, importance, *edges)
        result.square().mean().backward()
        outcomes.append([result, *(leaf.grad for leaf in leaves)])
    for got in outcomes[:2]:
        assert all_close(got, outcomes[2], ulps=64) is None


@each_device
def test_a_compiled_graph_layer(device):
    """torch.compile makes one graph, without breaks, for graph networks of every size."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")

    def layer(*given):
        return _mean_aggregation(torch_ops.index_add, *given)

    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    for nodes, edges in ((60, 500), (61, 320), (200, 77)):
        grads = []
        for f in (compiled, layer):
            leaves, ends = _graph(device, nodes=nodes, edges=edges)
            result = f(*leaves, *ends)
            grads.append([result, *torch.autograd.grad(result.square().sum(), leaves)])
        assert all_close(*grads, ulps=64) is None
    assert counter.frame_count == 1
    torch._dynamo.reset()


@each_device
@each_mode
def test_derivatives_without_dimensions(device, mode):
    """First and second derivatives, forward and reverse, of 0-d tensors, with complex values and complex alpha."""
    index = torch.tensor([1, 0, 1], device=device)
    one = {dtype: torch.tensor(0, dtype=dtype, device=device) for dtype in (torch.int32, torch.int64)}
    for self, i, source, alpha in (
        ((), one[torch.int64], (), 3), ((), one[torch.int32].view(1), (), -1), ((2,), one[torch.int32], (1,), 2), ((2,), index, (3,), 0.5),
        ((2, 2), one[torch.int64], (1, 2), 1), ((2, 2), index, (3, 2), 1.5 - 2j), ((), one[torch.int64], (), 1j),
    ):  # fmt: skip
        dtype = torch.complex128 if isinstance(alpha, complex) else torch.float64
        leaves = [torch.randn(s, dtype=dtype, device=device, requires_grad=True) for s in (self, source)]

        def f(x, s, i=i, alpha=alpha):
            return torch_ops.index_add(x, 0, i, s, alpha=alpha, mode=mode)

        assert gradcheck(f, leaves, check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True)
        assert gradgradcheck(lambda *given: f(*given) ** 2, leaves, check_fwd_over_rev=True)


# ---------------------------------------------------------------- vmap over the index


@each_device
@each_mode
def test_vmap_over_the_index(device, mode):
    """vmap over the index equals the loop over examples, with and without batched self and source, nested, and in any dimension."""
    make, batch, bins, count = tensors.Maker(device, torch.float64), 4, 7, 9
    index = torch.stack([indices("uniform", bins, count, seed=s) for s in range(batch)]).to(device)

    def loop(f, *given):
        return torch.stack([f(*(t[k] if batched else t for t, batched in given)) for k in range(batch)])

    for shape, dim in (((bins,), 0), ((bins, 3), 0), ((2, bins), -1), ((2, bins, 3), 1)):
        source_shape = list(shape)
        source_shape[dim] = count

        def f(x, i, s, dim=dim):
            return torch_ops.index_add(x, dim, i, s, alpha=2, mode=mode)

        for self_batched, source_batched in itertools.product((False, True), repeat=2):
            x = make(*[batch] * self_batched, *shape)
            source = make(*[batch] * source_batched, *source_shape)
            in_dims = (0 if self_batched else None, -1, 0 if source_batched else None)
            got = torch.vmap(f, in_dims=in_dims)(x, index.mT.contiguous(), source)
            want = loop(f, (x, self_batched), (index, True), (source, source_batched))
            assert close(got, want) is None, f"{shape}, dim {dim}, in_dims {in_dims}"
        inner = torch.vmap(f, in_dims=(None, 0, None))
        x, source = make(*shape), make(*source_shape)
        twice = torch.stack([index, index.flip(0)])
        got = torch.vmap(inner, in_dims=(None, 0, None))(x, twice, source)
        want = torch.stack([loop(f, (x, False), (i, True), (source, False)) for i in twice])
        assert close(got, want) is None, f"{shape}, dim {dim}, twice"


SHORT = (-1, 5, 6, -5, 2**31 - 1, -(2**31))
LONG = (2**32, 2**32 + 5, -(2**32), -(2**32) + 3, 2**63 - 5, -(2**63) + 5)


@pytest.mark.parametrize(
    ("wrong", "dtype"), [(w, torch.int32) for w in SHORT] + [(w, torch.int64) for w in SHORT + LONG], ids=str
)
def test_an_example_out_of_range_reaches_no_other(dtype, wrong):
    """A batch of indices becomes one index into the bins of all examples. An index out of range must not reach another example's
    bin.

    On CUDA a device-side assertion fails instead: test_cuda.py.
    """
    index = torch.tensor([[0, 1], [2, wrong], [4, 3]], dtype=dtype)
    for self_dims, source_dims in itertools.product((None, 0), repeat=2):
        x = torch.zeros(3, 5, 2)[0 if self_dims is None else slice(None)]
        source = torch.ones(3, 2, 2)[0 if source_dims is None else slice(None)]
        call = torch.vmap(lambda a, i, s: torch_ops.index_add(a, 0, i, s), in_dims=(self_dims, 0, source_dims))
        refusal = raised_by(call, x, index, source)
        assert isinstance(refusal, (IndexError, RuntimeError)) and "index_add" in str(refusal), f"{refusal!r}"
    written = torch.zeros(3, 5, 2)
    refusal = raised_by(
        torch.vmap(lambda a, i, s: torch_ops.index_add_(a, 0, i, s)), written, index, torch.ones(3, 2, 2)
    )
    assert isinstance(refusal, (IndexError, RuntimeError)), f"{refusal!r}"
    assert not written.any()
