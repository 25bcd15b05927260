"""Norms of more than 2^31 values. Rows are compared with the same rows alone, and sums over rows with sums of parts."""

from __future__ import annotations

import pytest
import torch

import torch_ops

from ...support.compare import different_bits

pytestmark = [pytest.mark.gpu, pytest.mark.large, pytest.mark.gib(30)]


def _rows(rows: int, length: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows that differ, made in place."""
    x = torch.empty(rows, length, dtype=dtype, device="cuda")
    generator = torch.Generator("cuda").manual_seed(length)
    step = max((1 << 28) // length, 1)
    for start in range(0, rows, step):
        x[start : start + step].normal_(generator=generator)
    return x


@pytest.mark.parametrize("rows, length", [(2**21 + 3, 1032), (2**24 + 1, 129), (2**28 + 5, 8), (3, 2**30 + 8)])
def test_rows(rows, length):
    x = _rows(rows, length, torch.bfloat16)
    weight, bias = torch.randn(length, device="cuda"), torch.randn(length, device="cuda")
    out = torch_ops.layer_norm(x, length, weight, bias)
    few = max(min(rows // 4, 1000), 1)
    for first in (0, rows // 2, rows - few):
        part = slice(first, first + few)
        want = torch.nn.functional.layer_norm(x[part].float(), (length,), weight, bias)
        torch.testing.assert_close(out[part].float(), want, rtol=1e-2, atol=1e-2)


def test_gradients():
    rows, length = 2**21 + 3, 1032
    x, grad = (_rows(rows, length, torch.bfloat16) for _ in range(2))
    ones = torch.ones(length, device="cuda")

    def gradients(part: slice) -> list[torch.Tensor]:
        inputs = [x[part].detach().requires_grad_(), ones.clone().requires_grad_(), ones.clone().requires_grad_()]
        return list(torch.autograd.grad(torch_ops.layer_norm(inputs[0], length, *inputs[1:]), inputs, grad[part]))

    of_input, of_weight, of_bias = gradients(slice(None))
    half = rows // 2
    parts = [gradients(slice(0, half)), gradients(slice(half, None))]
    assert different_bits(of_input[:half], parts[0][0]) is None
    assert different_bits(of_input[half:], parts[1][0]) is None
    torch.testing.assert_close(of_weight, parts[0][1] + parts[1][1], rtol=1e-4, atol=0.5)
    torch.testing.assert_close(of_bias, parts[0][2] + parts[1][2], rtol=1e-4, atol=0.5)


@pytest.mark.parametrize("is_last", [False, True], ids=["planes", "columns"])
def test_channels(is_last):
    samples, channels, positions = 3, 24, 30_000_001
    if is_last:
        x = _rows(samples * positions, channels, torch.bfloat16).view(samples, positions, channels).mT
    else:
        x = _rows(samples * channels, positions, torch.bfloat16).view(samples, channels, positions)
    found = torch_ops.group_norm(x, 4)[-1:, -6:].float()
    want = torch.nn.functional.group_norm(x[-1:, -6:].float().contiguous(), 1)
    torch.testing.assert_close(found, want, rtol=1e-2, atol=1e-2)
    last = x[:, -1].float()
    found = torch_ops.batch_norm(x, None, None, training=True)[:, -1].float()
    torch.testing.assert_close(found, (last - last.mean()) / last.std(), rtol=1e-2, atol=1e-2)
