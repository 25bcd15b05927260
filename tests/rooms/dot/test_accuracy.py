"""Accuracy of large dot products on a GPU: errors against float64 beside ATen's, and the bound of dot_fast_atomic."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...cases import tensors
from ...cases.dot import CASES, dot_bound, dot_reference, sizes_of_products
from ...cases.samples.dot_samples import LAYOUTS
from ...support.compare import Failures, different_bits, different_from_reference

pytestmark = pytest.mark.gpu
CASE = {case.name: case for case in CASES}
HALVES = (torch.float16, torch.bfloat16)


# ---------------------------------------------------------------- any data


def _uniform(n, **like):
    return torch.rand(n, **like), torch.rand(n, **like)


def _normal(n, **like):
    return torch.randn(n, **like), torch.randn(n, **like)


def _ill_conditioned(n, **like):
    """Operands whose products span twelve orders of magnitude and cancel in distant pairs, except some small ones."""
    x, y = (torch.randn(n, **like) * torch.exp2(20 * torch.rand(n, **like) - 10) for _ in range(2))
    x[n // 2 :] = x[: n - n // 2].flip(0)
    y[n // 2 :] = -y[: n - n // 2].flip(0)
    x[::1009] += 1
    return x, y


DATA = {"uniform": _uniform, "normal": _normal, "ill-conditioned": _ill_conditioned}
each_data = pytest.mark.parametrize("data", DATA)


def _operands(data: str, n: int, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator("cuda").manual_seed(seed)
    real = torch.float64 if dtype.itemsize == 16 or dtype == torch.float64 else torch.float32
    x, y = DATA[data](2 * n if dtype.is_complex else n, generator=generator, device="cuda", dtype=real)
    if dtype.is_complex:
        return torch.view_as_complex(x.view(n, 2)), torch.view_as_complex(y.view(n, 2))
    return x.to(dtype), y.to(dtype)


def _in_chunks(function, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.stack([function(a, b) for a, b in zip(x.split(2**24), y.split(2**24))]).sum(0)


@each_data
@pytest.mark.parametrize(
    ("dtype", "n"),
    [(torch.float32, 2**26), (torch.float32, 2**18 + 13), (torch.float64, 2**20), (torch.complex64, 2**22)],
    ids=str,
)
def test_accuracy_of_dot(data, dtype, n):
    """The mean error over many seeds is compared with ATen's, because the error of one sum may be zero by chance."""
    ours = theirs = ulps = 0.0
    failures = Failures()
    for seed in range(48):
        x, y = _operands(data, n, dtype, seed)
        exact = dot_reference(x, y) if dtype == torch.float64 else _in_chunks(dot_reference, x, y)
        got = torch_ops.dot(x, y)
        ours += float((got - exact).abs())
        theirs += float((torch.dot(x, y) - exact).abs())
        ulps += float(exact.abs()) * torch.finfo(dtype).eps
        if seed < 3:
            size = _in_chunks(sizes_of_products, x, y)
            for name, result in (
                ("dot", got),
                ("vdot", torch_ops.vdot(x.conj(), y)),
                ("step 2", torch_ops.dot(LAYOUTS["step2"](x), y)),
                ("misaligned", torch_ops.dot(x, LAYOUTS["misaligned1"](y))),
                ("one row", torch_ops.dot_rows(x[None], y[None])[0]),
            ):
                with failures.sample(f"{name}, seed {seed}"):
                    bound = (n.bit_length() + 10) * torch.finfo(dtype).eps * size
                    failures.add(f"{name}, seed {seed}", different_from_reference(result, exact, bound))
    failures.check(at_least=15)
    assert ours <= 1.5 * theirs + ulps, f"summed error {ours}, ATen's is {theirs}"


@each_data
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_half_types_are_rounded_once(data, dtype):
    """fp16 and bf16 results are within half an ulp plus the error of a float32 sum: no intermediate value is rounded to the
    dtype."""
    failures = Failures()
    for seed, n in enumerate((1000, 2**14 + 5, 2**18 + 13, 2**22, 2**26)):
        x, y = _operands(data, n, dtype, seed)
        exact = _in_chunks(dot_reference, x, y)
        bound = (n.bit_length() + 10) * 2.0**-23 * _in_chunks(sizes_of_products, x, y)
        for layout in ("contiguous", "misaligned3", "step2"):
            a, b = LAYOUTS[layout](x), LAYOUTS[layout](y)
            for name, got in (("dot", torch_ops.dot(a, b)), ("one row", torch_ops.dot_rows(a[None], b[None])[0])):
                with failures.sample(f"{n}, {layout}, {name}"):
                    failures.add(f"{n}, {layout}, {name}", different_from_reference(got, exact, bound))
    failures.check(at_least=30)


@each_data
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(2**12, 2**12), (64, 2**18), (2**18, 64), (2**20, 9), (3, 2**20 + 1)], ids=str)
def test_accuracy_of_rows(data, dtype, shape):
    """Errors of dot_rows are no larger than a matrix product's, also for transposed rows."""
    rows, n = shape
    x, y = (t.view(shape) for t in _operands(data, rows * n, dtype, seed=1))
    exact = torch.cat([dot_reference(a, b) for a, b in zip(x.split(2**14), y.split(2**14))])
    bound = torch.cat([dot_bound("cuda", dtype, None, a, b) for a, b in zip(x.split(2**14), y.split(2**14))])
    across = x.mT.contiguous().mT, y.mT.contiguous().mT
    for given in ((x, y), across, (x, across[1]), (x.conj(), y)):
        want = dot_reference(*given) if given[0].is_conj() else exact
        assert different_from_reference(torch_ops.dot_rows(*given), want, bound) is None
    theirs = torch.bmm(x[:, None], y[:, :, None])[:, 0, 0]
    ours, theirs = (float((t - exact).abs().double().mean()) for t in (torch_ops.dot_rows(x, y), theirs))
    ulp = float(exact.abs().mean()) * torch.finfo(dtype).eps
    assert ours <= 1.5 * theirs + ulp, f"mean error {ours}, ATen's is {theirs}"


@pytest.mark.parametrize("n", [2**26, 2**26 - 2**15])
def test_many_equal_terms(n):
    """Sums of n ones are right. A running sum would stop at 2^24 in float32, 2^11 in float16 and 2^8 in bfloat16."""
    for dtype, value, weight in (
        (torch.float32, 1, 1), (torch.float32, 3, 0.25), (torch.float16, 2.0**-8, 2.0**-5), (torch.bfloat16, 1, 1),
        (torch.bfloat16, 3, -0.5), (torch.float64, 3, 0.25), (torch.complex64, 1 + 1j, 1),
    ):  # fmt: skip
        x, y = (torch.full((n,), v, dtype=dtype, device="cuda") for v in (value, weight))
        exact = dot_reference(x[:1], y[:1]) * n
        eps = torch.finfo(torch.float32 if dtype in HALVES else dtype).eps
        bound = (n.bit_length() + 10) * eps * exact.abs()
        for a, b in ((x, y), (x[:1].expand(n), y), (LAYOUTS["misaligned1"](x), y)):
            for got in (torch_ops.dot(a, b), torch_ops.dot_rows(a[None], b[None])[0]):
                problem = different_from_reference(got, exact, bound)
                assert problem is None, f"{dtype}, {value}: {problem}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_many_equal_terms_that_are_rounded(dtype):
    """In one long running sum of equal terms, many roundings have the same sign. The error is far larger than in runs of a few
    hundred terms."""
    n = 2**26
    x, y = (torch.full((n,), v, dtype=dtype, device="cuda") for v in (0.1, 0.3))
    exact = dot_reference(x[:1], y[:1]) * n
    bound = 128 * torch.finfo(dtype).eps * exact
    for got in (torch_ops.dot(x, y), torch_ops.dot(x[:1].expand(n), y), torch_ops.dot_rows(x[None], y[None])[0]):
        assert different_from_reference(got, exact, bound) is None


@pytest.mark.parametrize("n", [2, 100, 5000, 2**18, 2**21])
def test_float16_does_not_overflow_on_the_way(n):
    """pytorch#3660, #152676: every product exceeds the largest float16, but the result does not. Everything is exact in float32."""
    x = torch.full((n,), 256.0, dtype=torch.float16, device="cuda")
    y = torch.cat([x[: n // 2], -x[: n // 2]])
    y[-1] = -128
    want = torch.tensor(2.0**15, dtype=torch.float16, device="cuda")
    for layout in ("contiguous", "misaligned1", "misaligned3", "step2", "step3"):
        a, b = LAYOUTS[layout](x), LAYOUTS[layout](y)
        for got in (
            torch_ops.dot(a, b),
            torch_ops.vdot(b, a),
            torch_ops.dot(a, y),
            torch_ops.dot_rows(a[None], b[None])[0],
        ):
            assert different_bits(got, want) is None, layout
        rows = torch_ops.dot_rows(a.expand(3, n), torch.stack([b, -b, b]))
        assert rows.tolist() == [2.0**15, -(2.0**15), 2.0**15]


@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_subnormal_numbers_are_kept(dtype):
    """Subnormal operands, products and results. They are multiples of the smallest subnormal number, so sums are exact."""
    info = torch.finfo(dtype)
    least = info.smallest_normal * info.eps
    for n in (1, 2, 33, 1000, 2**17 + 3):
        steps = torch.arange(n, device="cuda", dtype=torch.float64) % 5 + 1
        x = (steps * least).to(dtype)
        assert (x > 0).all()
        root = 2.0 ** (-10 if dtype == torch.float16 else -60)  # normal operands, subnormal product
        total = steps.sum() * least
        for name, a, b, want in (
            ("times 1", x, torch.ones_like(x), total),
            ("times 2", x, torch.full_like(x, 2), 2 * total),
            ("normal times normal", (steps * (least / root)).to(dtype), torch.full_like(x, root), total),
        ):
            for layout in ("contiguous", "misaligned1", "step2"):
                c, d = LAYOUTS[layout](a), LAYOUTS[layout](b)
                rows = torch_ops.dot_rows(c.expand(2, n), d.expand(2, n))
                for got in (torch_ops.dot(c, d), torch_ops.vdot(d, c), *rows):
                    assert different_bits(got, want.to(dtype)) is None, f"{n}, {name}, {layout}"


# ---------------------------------------------------------------- dot_fast_atomic

FAST_SIZES = (1, 2, 33, 1000, 2**12 + 1, 2**16, 2**18 + 13, 2**22, 2**26)


@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_atomic_product_is_exact_where_its_additions_are(dtype):
    """dot_fast_atomic equals dot bit for bit if all partial sums are small integers, because these are exact in any order."""
    most = {torch.float16: 2000, torch.bfloat16: 250}.get(dtype, 2**20)
    generator = torch.Generator("cuda").manual_seed(1)
    for n in FAST_SIZES:
        count = min(n, most)
        x = torch.zeros(n, dtype=dtype, device="cuda")
        positions = torch.randperm(n, generator=generator, device="cuda")[:count]
        x[positions] = torch.randint(0, 2, (count,), generator=generator, device="cuda").mul(2).sub(1).to(dtype)
        y = torch.ones_like(x)
        for layout in ("contiguous", "misaligned1", "misaligned3", "step2", "step3", "column"):
            a, b = LAYOUTS[layout](x), LAYOUTS[layout](y)
            for _ in range(3):
                for got in (torch_ops.dot_fast_atomic(a, b), torch_ops.dot_fast_atomic(b, x)):
                    assert different_bits(got, torch_ops.dot(x, y)) is None, f"{n}, {layout}"


@each_data
@pytest.mark.parametrize("dtype", tensors.FLOATS, ids=str)
def test_error_of_the_atomic_product(data, dtype):
    """Errors of dot_fast_atomic are within its bound. A sum by one block is rounded once."""
    failures, case = Failures(), CASE["dot_fast_atomic"]
    for seed, n in enumerate(FAST_SIZES[:-1]):
        x, y = _operands(data, n, dtype, seed)
        exact = dot_reference(x, y)
        bound = case.bound("cuda", dtype, exact, x, y)
        for repeat in range(4):
            with failures.sample(f"{n}, {repeat}"):
                got = torch_ops.dot_fast_atomic(x, y)
                failures.add(f"{n}, {repeat}", different_from_reference(got, exact, bound))
                if n <= 33:
                    once = dot_bound("cuda", dtype, exact, x, y)
                    failures.add(f"{n}, {repeat}, rounded once", different_from_reference(got, exact, once))
    failures.check(at_least=30)
