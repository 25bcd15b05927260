"""embedding_bag beside torch.nn.functional.embedding_bag on the CPU in float64, and what PyTorch's lacks: second derivatives, vmap."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F

from torch_ops import embedding_bag

from ...support.params import each_device
from .matrices import F64

pytestmark = pytest.mark.torch_version
MODES = ("sum", "mean", "max")
ROWS, FEATURES = 11, 5


def bags(form: str, number: torch.dtype = torch.int64) -> dict:
    """The input and offsets of 7 bags, three of them empty, or of a matrix."""
    generator = torch.Generator().manual_seed(3)
    if form == "matrix":
        return {"input": torch.randint(ROWS, (6, 4), generator=generator).to(number), "offsets": None}
    ends = torch.tensor([3, 0, 4, 1, 0, 7, 0]).cumsum(0)
    rows = torch.randint(ROWS, (int(ends[-1]),), generator=generator).to(number)
    offsets = F.pad(ends, (1, 0))
    if form == "with the end":
        return {"input": rows, "offsets": offsets.to(number), "include_last_offset": True}
    return {"input": rows, "offsets": offsets[:-1].to(torch.int32 if form == "other offsets" else number)}


FORMS = ("matrix", "vector", "with the end", "other offsets")


def moved(given: dict, device: str) -> dict:
    return {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in given.items()}


def table(device: str, dtype: torch.dtype = F64) -> torch.Tensor:
    """Rows with a pitch."""
    values = torch.randn(ROWS, 2 * FEATURES, generator=torch.Generator().manual_seed(1), dtype=F64)
    return values.to(device, dtype)[:, :FEATURES].detach().requires_grad_()


def weights_like(input: torch.Tensor, device: str, dtype: torch.dtype = F64) -> torch.Tensor:
    values = torch.randn(input.shape, generator=torch.Generator().manual_seed(2), dtype=F64)
    return values.to(device, dtype).requires_grad_()


def outputs(function, weight: torch.Tensor, given: dict) -> list[torch.Tensor]:
    """The result and its gradients, on the CPU."""
    result = function(weight=weight, **given)
    value = given.get("per_sample_weights")
    leaves = [weight] if value is None else [weight, value]
    grad = torch.linspace(-1, 2, result.numel(), dtype=F64).view(result.shape).to(result)
    return [t.detach().cpu() for t in (result, *torch.autograd.grad(result, leaves, grad))]


@each_device
@pytest.mark.parametrize("mode", [*MODES, "weighted"])
@pytest.mark.parametrize("form", FORMS)
def test_results_and_gradients(device, form, mode):
    for number, padding in itertools.product((torch.int32, torch.int64), (None, 3, -1)):
        given = {**bags(form, number), "mode": "sum" if mode == "weighted" else mode, "padding_idx": padding}
        mine = moved(given, device)
        if mode == "weighted":
            given["per_sample_weights"] = weights_like(given["input"], "cpu")
            mine["per_sample_weights"] = weights_like(given["input"], device)
        want = outputs(F.embedding_bag, table("cpu"), given)
        torch.testing.assert_close(outputs(embedding_bag, table(device), mine), want)


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_other_dtypes(device, dtype):
    """Half types are summed in float32."""
    for mode in MODES:
        given = {**bags("vector"), "mode": mode}
        found = outputs(embedding_bag, table(device, dtype), moved(given, device))
        exact = outputs(F.embedding_bag, table("cpu", dtype).detach().double().requires_grad_(), given)
        assert all(t.dtype == dtype for t in found)
        for mine, want in zip(found, exact, strict=True):
            unit = torch.finfo(dtype).eps
            torch.testing.assert_close(mine.double(), want, rtol=2 * unit, atol=2 * unit * want.abs().amax().item())


@each_device
@pytest.mark.parametrize("mode", MODES)
def test_derivatives_of_any_order(device, mode):
    given = moved({**bags("vector"), "mode": mode, "padding_idx": 2}, device)
    weight = table(device)
    arguments = (weight, weights_like(given["input"], device)) if mode == "sum" else (weight,)

    def function(weight, value=None):
        return embedding_bag(weight=weight, per_sample_weights=value, **given)

    assert gradcheck(function, arguments, check_forward_ad=True)
    assert gradgradcheck(function, arguments)


@each_device
def test_vmap_over_tables(device):
    given = moved(bags("matrix"), device)
    tables = torch.stack([table(device).detach() * k for k in range(1, 4)])
    found = torch.vmap(lambda weight: embedding_bag(given["input"], weight))(tables)
    want = torch.stack([embedding_bag(given["input"], weight) for weight in tables])
    torch.testing.assert_close(found, want)


@each_device
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(device, dynamic):
    compiled = torch.compile(embedding_bag, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for given in (bags("vector"), bags("matrix"), {**bags("vector"), "padding_idx": 1}):
        mine = moved(given, device)
        torch.testing.assert_close(
            outputs(lambda weight, **rest: compiled(weight=weight, **rest), table(device), mine),
            outputs(F.embedding_bag, table("cpu"), given),
        )


@each_device
def test_autocast_does_not_round(device):
    given = moved(bags("matrix"), device)
    weight = table(device, torch.float32)
    with torch.autocast(device, dtype=torch.bfloat16):
        found = embedding_bag(given["input"], weight)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, embedding_bag(given["input"], weight), rtol=0, atol=0)


@each_device
def test_rows_are_scaled_to_a_norm(device):
    given, weight = bags("matrix"), table("cpu").detach()
    mine, want = weight.to(device).clone(), weight.clone()
    found = embedding_bag(given["input"].to(device), mine, max_norm=1.0)
    torch.testing.assert_close(found.cpu(), F.embedding_bag(given["input"], want, max_norm=1.0))
    torch.testing.assert_close(mine.cpu(), want)


@each_device
def test_a_nan_in_a_row_of_padding_does_not_count(device):
    weight = table(device).detach()
    weight[3] = torch.nan
    weight.requires_grad_()
    given = moved({**bags("vector"), "padding_idx": 3}, device)
    for mode in MODES:
        found = outputs(embedding_bag, weight, {**given, "mode": mode})
        assert all(t.isfinite().all() for t in found)
        assert (found[1][3] == 0).all()


@each_device
def test_nothing_to_reduce(device):
    weight = table(device)
    none = torch.empty(0, dtype=torch.int64, device=device)
    for mode in MODES:
        result = embedding_bag(none, weight, none.new_zeros(3), mode=mode)
        assert result.shape == (3, FEATURES) and not result.any()
        assert not torch.autograd.grad(result.sum(), weight)[0].any()
        assert embedding_bag(none, weight, none.new_zeros(1), mode=mode, include_last_offset=True).shape == (
            0,
            FEATURES,
        )


def test_what_pytorch_computes():
    """Sparse gradients, and gradients that are scaled by frequency."""
    given = bags("vector")
    for options in ({"sparse": True}, {"scale_grad_by_freq": True}):
        weight, other = table("cpu"), table("cpu")
        embedding_bag(weight=weight, **given, **options).sum().backward()
        F.embedding_bag(weight=other, **given, **options).sum().backward()
        assert weight.grad.is_sparse == other.grad.is_sparse
        torch.testing.assert_close(weight.grad.to_dense(), other.grad.to_dense())


VECTOR, TABLE = torch.zeros(6, dtype=torch.int64), torch.ones(4, 3)
REFUSED = [
    (ValueError, "mode must be known", (VECTOR, TABLE, VECTOR[:1]), {"mode": "min"}),
    (ValueError, "expected a vector, got None", (VECTOR, TABLE), {}),
    (ValueError, "expected None, got shape", (VECTOR.view(2, 3), TABLE, VECTOR[:1]), {}),
    (ValueError, "offsets must be .bags.", (VECTOR, TABLE, VECTOR.view(2, 3)), {}),
    (ValueError, "weight must be", (VECTOR, TABLE[0], VECTOR[:1]), {}),
    (ValueError, "input must be", (VECTOR.view(1, 2, 3), TABLE), {}),
    (ValueError, "expected .6,., got .5,.", (VECTOR, TABLE, VECTOR[:1]), {"mode": "sum", "per_sample_weights": torch.ones(5)}),
    (NotImplementedError, "needs mode 'sum'", (VECTOR, TABLE, VECTOR[:1]), {"per_sample_weights": torch.ones(6)}),
    (RuntimeError, "padding_idx must be a row", (VECTOR, TABLE, VECTOR[:1]), {"padding_idx": 4}),
    (RuntimeError, "weights must have the dtype", (VECTOR, TABLE, VECTOR[:1]), {"mode": "sum", "per_sample_weights": torch.ones(6).half()}),
    (RuntimeError, "input must be int32 or int64", (VECTOR.float(), TABLE, VECTOR[:1]), {}),
    (RuntimeError, "offsets must be int32 or int64", (VECTOR, TABLE, VECTOR[:1].float()), {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "says", "operands", "options"), REFUSED, ids=[row[1] for row in REFUSED])
def test_errors(kind, says, operands, options):
    """The exceptions are PyTorch's."""
    with pytest.raises(kind, match=says):
        embedding_bag(*operands, **options)
    with pytest.raises(kind):
        F.embedding_bag(*operands, **options)
