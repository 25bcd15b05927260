"""Calls of convolutions that must be refused."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import ErrorCase
from .tensors import Maker


def _operand_errors(device: str, **given) -> Iterator[ErrorCase]:
    """Errors of every form, for an input (2, 4, 9) and a weight (6, 2, 3) in two groups."""
    make = Maker(device, torch.float32)
    x, w, b = make(2, 4, 9), make(6, 2, 3), make(6)
    for name, args, steps, *says in (
        ("0-d input", (make(), w), {}, r"\binput\b"),
        ("1-d input", (make(9), w), {}, r"\binput\b", r"\[9\]"),
        ("4-d input", (make(1, 2, 4, 9), w), {}, r"\binput\b", r"\[1, 2, 4, 9\]"),
        ("2-d weight", (x, make(2, 3)), {}, r"\bweight\b", r"\[2, 3\]"),
        ("4-d weight", (x, make(1, 6, 2, 3)), {}, r"\bweight\b", r"\[1, 6, 2, 3\]"),
        ("other channels", (make(2, 5, 9), w), {}, r"\binput\b|\bweight\b", r"\b4\b", r"\b5\b"),
        ("other groups", (x, w), {"groups": 3}, r"\b6\b", r"\b4\b"),
        ("outputs that groups do not divide", (x, make(5, 2, 3)), {}, r"\bgroups?\b", r"\b5\b", r"\b2\b"),
        ("fewer outputs than groups", (x, make(2, 1, 3)), {"groups": 4}, r"\bgroups?\b", r"\b4\b"),
        ("no groups", (x, w), {"groups": 0}, r"\bgroups\b", r"\b0\b"),
        ("negative groups", (x, w), {"groups": -1}, r"\bgroups\b", r"-1\b"),
        ("short bias", (x, w, b[:5]), {}, r"\bbias\b", r"\b6\b", r"\[5\]"),
        ("bias that would broadcast", (x, w, b[:1]), {}, r"\bbias\b", r"\b6\b", r"\[1\]"),
        ("2-d bias", (x, w, b[None]), {}, r"\bbias\b", r"\[1, 6\]"),
        ("0-d bias", (x, w, b[0]), {}, r"\bbias\b", r"\[\]"),
        ("stride 0", (x, w), {"stride": [0]}, r"\bstride\b", r"\b0\b"),
        ("negative stride", (x, w), {"stride": [-2]}, r"\bstride\b", r"-2\b"),
        ("dilation 0", (x, w), {"dilation": [0]}, r"\bdilation\b", r"\b0\b"),
        ("negative dilation", (x, w), {"dilation": [-1]}, r"\bdilation\b", r"-1\b"),
        ("two strides", (x, w), {"stride": [1, 1]}, r"\bstride\b"),
        ("two dilations", (x, w), {"dilation": [1, 1]}, r"\bdilation\b"),
        ("no stride", (x, w), {"stride": []}, r"\bstride\b"),
        ("float64 weight", (x, w.double()), {}, r"\bweight\b", "Float", "Double"),
        ("integer weight", (x, w.int()), {}, r"\bweight\b", "Float", "Int"),
        ("half input", (x.half(), w), {}, r"\bweight\b", "Half", "Float"),
        ("float64 bias", (x, w, b.double()), {}, r"\bbias\b", "Float", "Double"),
    ):
        yield ErrorCase(name, args, {"groups": 2, **given, **steps}, tuple(says))


def _size_errors(device: str, **given) -> Iterator[ErrorCase]:
    """Wrong padding, and signals that are too short."""
    make = Maker(device, torch.float32)
    x, w = make(2, 4, 9), make(6, 2, 3)
    for name, args, steps, *says in (
        ("negative padding", (x, w), {"padding": [-1]}, r"\bpadding\b", r"-1\b"),
        ("taps beyond the signal", (x, make(6, 2, 10)), {}, r"\b9\b", r"\b10\b"),
        ("dilated beyond the signal", (x, w), {"dilation": [5]}, r"\b9\b", r"\b11\b"),
        ("taps beyond the padded signal", (x, make(6, 2, 12)), {"padding": [1]}, r"\b11\b", r"\b12\b"),
        ("too short, of no signals", (make(0, 4, 2), w), {}, r"\b2\b", r"\b3\b"),
        ("no values", (make(2, 4, 0), w), {"padding": [2]}, r"\binput\b", r"\b0\b"),
    ):
        yield ErrorCase(name, args, {"groups": 2, **given, **steps}, tuple(says))


def _device_errors(device: str, *args: torch.Tensor, **given) -> Iterator[ErrorCase]:
    """One operand at a time is on the CPU."""
    for k in range(len(args)) if device != "cpu" else ():
        mixed = tuple(t.cpu() if j == k else t for j, t in enumerate(args))
        yield ErrorCase(f"argument {k} on the CPU", mixed, given, ("cpu",), on_meta=False)


def plain(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    yield from _operand_errors(device)
    yield from _size_errors(device)
    for name, padding in (("two paddings", [1, 1]), ("no padding", [])):
        yield ErrorCase(name, (make(2, 4, 9), make(6, 4, 3)), {"padding": padding}, (r"\bpadding\b",))
    yield from _device_errors(device, make(2, 4, 9), make(6, 4, 3), make(6))


def string(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x, w = make(2, 4, 9), make(6, 4, 3)
    for padding in ("same", "valid"):
        yield from _operand_errors(device, padding=padding)
    for name, given, *says in (
        ("unknown", {"padding": "full"}, r"\bpadding\b", "full"),
        ("empty", {"padding": ""}, r"\bpadding\b"),
        ("upper case", {"padding": "SAME"}, r"\bpadding\b", "SAME"),
        ("same, with a stride", {"padding": "same", "stride": [2]}, r"\bpadding\b", r"\bstride|strided\b"),
        ("too short", {"padding": "valid", "dilation": [5]}, r"\b9\b", r"\b11\b"),
    ):
        yield ErrorCase(name, (x, w), given, tuple(says))
    yield from _device_errors(device, x, w, make(6), padding="same")


def act(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x, w = make(2, 4, 9), make(6, 4, 3)
    yield from _operand_errors(device, activation="relu")
    yield from _size_errors(device, activation="silu")
    for name, given, *says in (
        ("unknown activation", {"activation": "tanh"}, r"\bactivation\b", "tanh", "silu"),
        ("empty activation", {"activation": ""}, r"\bactivation\b"),
        ("three paddings", {"padding": [1, 1, 1]}, r"\bpadding\b"),
        ("negative left padding", {"padding": [-1, 2]}, r"\bpadding\b", r"-1\b"),
        ("negative right padding", {"padding": [2, -1]}, r"\bpadding\b", r"-1\b"),
        ("too short between its paddings", {"padding": [1, 0], "dilation": [5]}, r"\b10\b", r"\b11\b"),
    ):
        yield ErrorCase(name, (x, w), given, tuple(says))
    yield from _device_errors(device, x, w, make(6))


def backward(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    grad, x, w = make(2, 6, 7), make(2, 4, 9), make(6, 2, 3)
    plain = {"stride": [1], "padding": [0, 0], "dilation": [1], "groups": 2, "output_mask": [True, False, False]}
    for name, args, given, *says in (
        ("shorter grad_output", (make(2, 6, 6), x, w), {}, r"\bgrad_output\b", r"\b6\b", r"\b7\b"),
        ("longer grad_output", (make(2, 6, 8), x, w), {}, r"\bgrad_output\b", r"\b8\b", r"\b7\b"),
        ("grad_output of other channels", (make(2, 4, 7), x, w), {}, r"\bgrad_output\b", r"\b4\b", r"\b6\b"),
        ("grad_output of other signals", (make(1, 6, 7), x, w), {}, r"\bgrad_output\b", r"\b1\b", r"\b2\b"),
        ("4-d grad_output", (grad[None], x, w), {}, r"\bgrad_output\b", r"\[1, 2, 6, 7\]"),
        ("other channels", (grad, make(2, 5, 9), w), {}, r"\b5\b", r"\b4\b"),
        ("2-d weight", (grad, x, w[0]), {}, r"\bweight\b", r"\[2, 3\]"),
        ("no groups", (grad, x, w), {"groups": 0}, r"\bgroups\b", r"\b0\b"),
        ("stride 0", (grad, x, w), {"stride": [0]}, r"\bstride\b", r"\b0\b"),
        ("negative padding", (grad, x, w), {"padding": [-1, -1]}, r"\bpadding\b", r"-1\b"),
        ("taps beyond the signal", (grad, x, make(6, 2, 10)), {}, r"\b9\b", r"\b10\b"),
        ("bias of another length", (grad, x, w, make(5)), {"activation": "silu"}, r"\bbias\b", r"\b5\b", r"\b6\b"),
        ("2-d bias", (grad, x, w, make(6, 1)), {"activation": "silu"}, r"\bbias\b", r"\[6, 1\]"),
        ("unknown activation", (grad, x, w), {"activation": "tanh"}, r"\bactivation\b", "tanh"),
    ):
        for k in range(3):
            mask = {"output_mask": [k == i for i in range(3)]}
            yield ErrorCase(f"gradient {k}, {name}", args, {**plain, **given, **mask}, tuple(says))
    yield from _device_errors(device, grad, x, w, **plain)


def causal(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x, w, b = make(2, 4, 9), make(4, 3), make(4)
    for name, args, given, *says in (
        ("1-d input", (make(9), w), {}, r"\binput\b", r"\[9\]"),
        ("4-d input", (x[None], w), {}, r"\binput\b", r"\[1, 2, 4, 9\]"),
        ("3-d weight", (x, w[:, None]), {}, r"\bweight\b", r"\[4, 1, 3\]"),
        ("1-d weight", (x, w[0]), {}, r"\bweight\b", r"\[3\]"),
        ("other channels", (x, make(5, 3)), {}, r"\bweight\b|\binput\b", r"\b5\b", r"\b4\b"),
        ("one weight for all", (x, make(1, 3)), {}, r"\bweight\b|\binput\b", r"\b1\b", r"\b4\b"),
        ("short bias", (x, w, b[:3]), {}, r"\bbias\b", r"\b4\b", r"\b3\b"),
        ("unknown activation", (x, w, b), {"activation": "swish"}, r"\bactivation\b", "swish", "silu"),
        ("no values", (make(2, 4, 0), w), {}, r"\binput\b", r"\b0\b"),
    ):
        yield ErrorCase(name, args, given, tuple(says))
    yield from _device_errors(device, x, w, b)


def update(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    x, s, w, b = make(2, 4), make(2, 4, 3), make(4, 3), make(4)
    for name, args, given, *says in (
        ("1-d input", (x[0], s, w), {}, r"\binput\b", r"\[4\]"),
        ("3-d input", (make(2, 4, 1), s, w), {}, r"\binput\b", r"\[2, 4, 1\]"),
        ("2-d state", (x, s[0], w), {}, r"\bstate\b", r"\[4, 3\]"),
        ("state of other signals", (x, make(1, 4, 3), w), {}, r"\bstate\b", r"\b1\b", r"\b2\b"),
        ("state of other channels", (x, make(2, 5, 3), w), {}, r"\bstate\b", r"\b5\b", r"\b4\b"),
        ("short state", (x, make(2, 4, 1), w), {}, r"\bstate\b", r"\b1\b", r"\b2\b"),
        ("3-d weight", (x, s, w[:, None]), {}, r"\bweight\b", r"\[4, 1, 3\]"),
        ("weight of other channels", (x, s, make(5, 3)), {}, r"\bweight\b", r"\b5\b", r"\b4\b"),
        ("short bias", (x, s, w, b[:3]), {}, r"\bbias\b", r"\b4\b", r"\b3\b"),
        ("2-d bias", (x, s, w, b[None]), {}, r"\bbias\b", r"\[1, 4\]"),
        ("unknown activation", (x, s, w, b), {"activation": "swish"}, r"\bactivation\b", "swish", "silu"),
    ):
        yield ErrorCase(name, args, given, tuple(says))


def convolve(device: str) -> Iterator[ErrorCase]:
    make = Maker(device, torch.float32)
    a, v = make(2, 9), make(3)
    for name, args, given, *says in (
        ("0-d a", (make(), v), {}, r"\ba\b", r"\[\]|0"),
        ("0-d v", (a, make()), {}, r"\bv\b", r"\[\]|0"),
        ("2-d v", (a, make(2, 3)), {}, r"\bv\b", r"\[2, 3\]|2"),
        ("empty v", (a, make(0)), {}, r"\bv\b"),
        ("empty a", (make(2, 0), v), {}, r"\ba\b"),
        ("both empty", (make(0), make(0)), {}, r"\ba\b"),
        ("unknown mode", (a, v), {"mode": "circular"}, r"\bmode\b", "circular", "valid"),
        ("empty mode", (a, v), {"mode": ""}, r"\bmode\b"),
    ):
        yield ErrorCase(name, args, given, tuple(says))
    yield from _device_errors(device, a, v)
