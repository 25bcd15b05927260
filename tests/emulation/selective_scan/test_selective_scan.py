"""The launchers and kernels of selective scans, run on the CPU and compared with a loop in float64, forward and backward."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from ..build import load
from ..dtypes import BF16, F16, F32, TYPES
from ..memory import decode, encode

F64 = TYPES[8]
NAMES = ("u", "delta", "A", "B", "C", "D", "z", "bias")


@pytest.fixture(scope="module")
def kernels():
    return load("selective_scan")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(x: dict, softplus: bool, dout=None, dlast=None):
    """The results, or all gradients by their formulas. All values are float64; B and C are (batch, channels, states, length)."""
    u, A, B, C = (x[k] for k in "uABC")
    raw = x["delta"] + (0 if x["bias"] is None else x["bias"][:, None])
    dt = np.logaddexp(0, raw) if softplus else raw
    h = np.zeros((*u.shape[:2], A.shape[1]))
    hs, y = [h], np.zeros_like(u)
    a = np.exp(dt[:, :, None, :] * A[:, :, None])
    for t in range(u.shape[2]):
        h = a[..., t] * h + (dt * u)[:, :, None, t] * B[..., t]
        hs.append(h)
        y[..., t] = (C[..., t] * h).sum(2)
    skip = 0 if x["D"] is None else x["D"][:, None]
    y = y + skip * u
    gate = 1 if x["z"] is None else x["z"] * sigmoid(x["z"])
    if dout is None:
        return y * gate, h
    dy, g = dout * gate, dlast.copy()
    found = {"u": skip * dy, "delta": np.zeros_like(u), "A": 0, "B": np.zeros_like(B), "C": np.zeros_like(C)}
    found["D"] = (dy * u).sum((0, 2))
    if x["z"] is not None:
        s = sigmoid(x["z"])
        found["z"] = dout * y * s * (1 + x["z"] * (1 - s))
    for t in reversed(range(u.shape[2])):
        g = g + C[..., t] * dy[:, :, None, t]
        found["C"][..., t] = hs[t + 1] * dy[:, :, None, t]
        found["B"][..., t] = g * (dt * u)[:, :, None, t]
        s = (g * B[..., t]).sum(2)
        found["u"][..., t] += dt[..., t] * s
        w = g * a[..., t] * hs[t]
        found["A"] = found["A"] + (w * dt[:, :, None, t]).sum(0)
        slope = sigmoid(raw[..., t]) if softplus else 1
        found["delta"][..., t] = ((w * A).sum(2) + u[..., t] * s) * slope
        g = g * a[..., t]
    found["bias"] = found["delta"].sum((0, 2))
    return found


class Sequence:
    """A tensor (batch, channels, length) in guarded memory. The order names its dimensions, outermost first."""

    def __init__(self, dtype, shape, order=(0, 1, 2), pad=0, values=None):
        self.dtype, self.shape, self.values = dtype, shape, values
        sizes = [shape[d] for d in order]
        sizes[-1] += pad
        count = int(np.prod(sizes))
        raw = np.full((count + 64) * dtype.numpy.itemsize + 64, 0xA5, np.uint8)
        start = -raw.ctypes.data % 64
        self.buffer = raw[start : start + (count + 64) * dtype.numpy.itemsize].view(dtype.numpy)
        inner = self.buffer[:count].reshape(sizes)[..., : shape[order[-1]]]
        self.view = np.moveaxis(inner, range(3), order)
        if values is not None:
            self.view[...] = encode(dtype, values)
            self.values = decode(dtype, self.view)

    def numbers(self) -> list:
        return [self.view.ctypes.data, *(s // self.dtype.numpy.itemsize for s in self.view.strides)]

    def found(self) -> np.ndarray:
        assert (self.buffer[-64:].view(np.uint8) == 0xA5).all()
        return decode(self.dtype, self.view)


class Case:
    def __init__(self, dtype, batch, channels, length, states, groups=1, order=(0, 1, 2), pad=0, **given):
        self.dtype, self.sizes, self.groups = dtype, (batch, channels, length, states), groups
        self.softplus, self.order, self.pad = given.get("softplus", True), order, pad
        self.constant = given.get("constant", "")
        without, matrix_dtype = given.get("without", ()), given.get("matrix_dtype", dtype)
        self.wide = F64 if dtype is F64 else F32
        random = np.random.default_rng(given.get("seed", 0))
        normal = random.standard_normal
        shape = (batch, channels, length)
        self.x = {"A": -np.exp(normal((channels, states)) * 0.7).astype(self.wide.numpy)}
        self.x["D"], self.x["bias"] = (normal(channels).astype(self.wide.numpy) for _ in range(2))
        self.x["u"], self.x["z"] = (Sequence(dtype, shape, order, pad, normal(shape)) for _ in range(2))
        delta = normal(shape) - 1 if self.softplus else random.random(shape)
        self.x["delta"] = Sequence(dtype, shape, order, pad, delta)
        for name in "BC":
            if name in self.constant:
                self.x[name] = normal((channels, states)).astype(self.wide.numpy)
            else:
                by_state = given.get("by_state", False)
                own = Sequence(matrix_dtype, (batch * groups, states, length), (0, 2, 1) if by_state else (0, 1, 2), 1,
                               normal((batch * groups, states, length)))  # fmt: skip
                self.x[name] = own
        for name in without:
            self.x[name] = None

    def wide_values(self) -> dict:
        batch, channels, length, states = self.sizes
        values = {k: v.values if isinstance(v, Sequence) else v for k, v in self.x.items()}
        values = {k: None if v is None else v.astype(np.float64) for k, v in values.items()}
        for name in "BC":
            if name in self.constant:
                values[name] = np.broadcast_to(values[name][None, :, :, None], (batch, channels, states, length))
            else:
                own = values[name].reshape(batch, self.groups, states, length)
                values[name] = np.repeat(own, channels // self.groups, 1)
        return values

    def matrix(self, name) -> list:
        x = self.x[name]
        if name in self.constant:
            return [x.ctypes.data, self.wide.number, 0, self.sizes[3], 1, 0, 1]
        data, group, state, position = x.numbers()
        return [data, x.dtype.number, group * self.groups, group, state, position, 0]

    def numbers(self, out, last) -> list:
        batch, channels, length, states = self.sizes
        flags = [self.dtype.number, self.softplus, self.order[-1] == 1]
        sequences = [self.x["u"], self.x["delta"], self.x["z"], out]
        found = [batch, channels, length, states, self.groups, *flags]
        for s in sequences:
            found += [0] * 4 if s is None else s.numbers()
        found += self.matrix("B") + self.matrix("C")
        rows = [self.x["A"], self.x["D"], self.x["bias"], last]
        return found + [0 if x is None else x.ctypes.data for x in rows]

    def new(self):
        return Sequence(self.dtype, self.sizes[:3], self.order, self.pad)

    def forward(self, kernels):
        out, last = self.new(), np.full((self.sizes[0], self.sizes[1], self.sizes[3]), np.nan, self.wide.numpy)
        given = np.array(self.numbers(out, last), np.int64)
        assert kernels.run_forward(ctypes.c_void_p(given.ctypes.data)) == 0
        return out.found(), last

    def backward(self, kernels, dout, dlast) -> dict:
        batch, channels, length, states = self.sizes
        numbers = self.numbers(None, None)
        given = np.array(numbers, np.int64)
        of_batch, parts = ctypes.c_int64(), ctypes.c_int64()
        kernels.parts(ctypes.c_void_p(given.ctypes.data), ctypes.byref(of_batch), ctypes.byref(parts))
        of_batch, parts = of_batch.value, parts.value
        self.segments = of_batch // batch
        rows = {"A": (of_batch, channels, states), "D": (of_batch, channels), "bias": (of_batch, channels)}
        for name in "BC":
            rows[name] = rows["A"] if name in self.constant else (batch, self.groups, parts, length, states)
        found = {k: np.full(shape, np.nan, self.wide.numpy) for k, shape in rows.items()}
        found.update({k: self.new() for k in ("u", "delta", "z")})
        numbers += dout.numbers() if dout else [0] * 4
        for k in ("u", "delta", "z"):
            numbers += found[k].numbers() if self.x[k] is not None else [0] * 4
        numbers += [
            0 if dlast is None else dlast.ctypes.data,
            *(found[k].ctypes.data for k in ("A", "D", "bias", "B", "C")),
        ]
        given = np.array(numbers, np.int64)
        assert kernels.run_backward(ctypes.c_void_p(given.ctypes.data)) == 0
        for k, v in found.items():
            if isinstance(v, Sequence):
                found[k] = v.found()
            elif k in ("A", "D", "bias") or k in self.constant:
                found[k] = v.astype(np.float64).sum(0)
            else:
                found[k] = np.moveaxis(v.astype(np.float64).sum(2), 2, 3)
        return found

    def check(self, kernels, dlast=True, split=False, part_bytes=1 << 30):
        """Compares all results. If `split`, the length is split into segments of 32 positions."""
        kernels.set_limits(ctypes.c_int64(split << 40), ctypes.c_int64(part_bytes))
        batch, channels, length, states = self.sizes
        values = self.wide_values()
        error = {F16: 2e-3, BF16: 1e-2, F32: 2e-5, F64: 1e-12}[self.dtype]
        small = {F64: 1e-12}.get(self.dtype, 2e-5)

        def close(name, got, want, tolerance):
            scale = np.abs(want).max() + 1e-30
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale, err_msg=name)

        out, last = self.forward(kernels)
        want, want_last = reference(values, self.softplus)
        close("out", out, want, error)
        close("last_state", last, want_last, small)

        random = np.random.default_rng(7)
        dout = self.new()
        dout.view[...] = encode(self.dtype, random.standard_normal((batch, channels, length)))
        last_grad = random.standard_normal((batch, channels, states)).astype(self.wide.numpy) if dlast else None
        found = self.backward(kernels, dout, last_grad)
        assert self.segments == (-(length // -32) if split else 1)
        wide_last = np.zeros((batch, channels, states)) if last_grad is None else last_grad.astype(np.float64)
        want = reference(values, self.softplus, decode(self.dtype, dout.view), wide_last)
        for name in "BC":
            if name in self.constant:
                want[name] = want[name].sum((0, 3))
            else:
                own = (batch, self.groups, channels // self.groups, states, length)
                want[name] = want[name].reshape(own).sum(2)
        for name, expected in want.items():
            if self.x[name] is not None:
                rounded = name in ("u", "delta", "z")
                close(f"gradient of {name}", found[name], expected, 2 * error if rounded else 5 * small)


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("split", [False, True])
def test_dtypes(kernels, dtype, split):
    Case(dtype, 2, 40, 70, 16).check(kernels, split=split)


@pytest.mark.parametrize("states", [1, 2, 3, 4, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 200, 256])
def test_states(kernels, states):
    Case(F32, 1, 12, 35, states, seed=states).check(kernels)
    Case(BF16, 1, 35, 40, states, order=(0, 2, 1), by_state=True).check(kernels, split=True)


@pytest.mark.parametrize("states", [3, 30, 128, 250])
def test_states_of_f64(kernels, states):
    Case(F64, 1, 12, 19, states).check(kernels)


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 31, 32, 33, 64, 100])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)], ids=str)
def test_lengths_and_layouts(kernels, length, order):
    Case(BF16, 2, 24, length, 16, order=order).check(kernels)
    Case(F32, 2, 19, length, 16, order=order, pad=3, by_state=length % 2).check(kernels, split=True)


@pytest.mark.parametrize("groups, channels", [(2, 64), (3, 12), (4, 160), (5, 5)])
def test_groups(kernels, groups, channels):
    Case(F16, 2, channels, 40, 16, groups).check(kernels, split=True)
    Case(F32, 1, channels, 20, 5, groups, order=(0, 2, 1)).check(kernels)


@pytest.mark.parametrize("constant", ["B", "C", "BC"])
def test_constant_matrices(kernels, constant):
    for dtype, states in ((F32, 2), (F32, 130), (F64, 16), (F32, 16), (F64, 5)):
        Case(dtype, 2, 20, 37, states, constant=constant).check(kernels, split=states != 16)


@pytest.mark.parametrize("without", [("z",), ("D",), ("bias",), ("z", "D", "bias")], ids=str)
def test_optional_arguments(kernels, without):
    for split in (False, True):
        case = Case(F32, 1, 33, 40, 16, without=without, softplus="bias" not in without)
        case.check(kernels, dlast="z" in without, split=split)


def test_many_segments(kernels):
    """More than a thread has in flight when it combines them, and lengths around their ends."""
    for length in (32 * 18, 32 * 18 + 1, 32 * 19 - 1):
        Case(F32, 1, 5, length, 3).check(kernels, split=True)
    Case(BF16, 1, 200, 300, 1, order=(0, 2, 1)).check(kernels, split=True)


@pytest.mark.parametrize("states", [2, 16, 40, 256])
def test_many_channels_share_a_block(kernels, states):
    """A block goes through several sets of channels, so their gradients are carried through memory."""
    for split in (False, True):
        Case(F32, 2, 1100 // states + 300, 36, states).check(kernels, split=split, part_bytes=1)


def test_dtypes_of_matrices(kernels):
    for dtype in (F16, BF16, F32):
        Case(F32, 1, 10, 20, 16, matrix_dtype=dtype).check(kernels)
        Case(BF16, 1, 10, 20, 16, matrix_dtype=dtype).check(kernels)


def test_repeats_bitwise(kernels):
    case = Case(F32, 2, 40, 40, 16)
    dout = case.new()
    dout.view[...] = 1
    kernels.set_limits(ctypes.c_int64(1 << 40), ctypes.c_int64(1))
    first, second = (case.backward(kernels, dout, None) for _ in range(2))
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name])


# ---------------------------------------------------------------- one position


class Update:
    """An update of states (batch, heads, dim, n). Each operand is an array and its strides in these four dimensions."""

    def __init__(self, state_dtype, dtype, batch, heads, channels, states, groups=1, plain=True, seed=0):
        self.sizes, self.groups, self.plain = (batch, heads, channels, states), groups, plain
        self.wide = F64 in (state_dtype, dtype)
        normal = np.random.default_rng(seed).standard_normal
        small = F64 if self.wide else F32
        shapes = {
            "state": (state_dtype, (0, 1, 2, 3)),
            "x": (dtype, (0, 1, 2)),
            "dt": (dtype, (0, 1, 2)),
            "A": (small, (1, 2, 3)),
            "B": (dtype, (0, 1, 3)),
            "C": (dtype, (0, 1, 3)),
            "D": (small, (1, 2)),
            "z": (dtype, (0, 1, 2)),
            "dt_bias": (small, (1, 2)),
            "out": (dtype, (0, 1, 2)),
        }
        self.operands = {}
        for name, (of, dims) in shapes.items():
            sizes = [groups if d == 1 and name in "BC" else self.sizes[d] for d in dims]
            values = -np.exp(normal(sizes)) if name == "A" else normal(sizes)
            whole = np.zeros([*sizes[:-1], sizes[-1] + (0 if plain else 3)], of.numpy)
            array = whole[..., : sizes[-1]]
            array[...] = encode(of, values)
            self.operands[name] = (of, dims, array)

    def check(self, kernels):
        x = {name: decode(of, array) for name, (of, _, array) in self.operands.items()}
        batch, heads, channels, states = self.sizes
        B, C = (np.repeat(x[name], heads // self.groups, 1)[:, :, None] for name in "BC")
        dt = np.logaddexp(0, x["dt"] + x["dt_bias"])[..., None]
        h = np.exp(dt * x["A"]) * x["state"] + dt * B * x["x"][..., None]
        out = ((h * C).sum(-1) + x["D"] * x["x"]) * x["z"] * sigmoid(x["z"])
        numbers = [*self.sizes, heads // self.groups, 1, self.wide]
        for of, dims, array in self.operands.values():
            strides = dict(zip(dims, (s // of.numpy.itemsize for s in array.strides)))
            numbers += [array.ctypes.data, of.number, *(strides.get(d, 0) for d in range(4))]
        given = np.array(numbers, np.int64)
        assert kernels.run_update(ctypes.c_void_p(given.ctypes.data)) == 0
        for name, want in (("state", h), ("out", out)):
            of, _, array = self.operands[name]
            tolerance = {F16: 2e-3, BF16: 1e-2, F32: 1e-5, F64: 1e-13}[of]
            scale = np.abs(want).max()
            np.testing.assert_allclose(decode(of, array), want, rtol=tolerance, atol=tolerance * scale, err_msg=name)


@pytest.mark.parametrize("states", [1, 3, 4, 16, 17, 64, 128, 256])
def test_update(kernels, states):
    Update(F32, BF16, 2, 1, 37, states).check(kernels)
    Update(F16, F16, 2, 4, 5, states, groups=2, plain=False).check(kernels)


@pytest.mark.parametrize("state_dtype", [F16, BF16, F32, F64], ids=str)
@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64], ids=str)
def test_update_of_dtypes(kernels, state_dtype, dtype):
    Update(state_dtype, dtype, 2, 2, 9, 16).check(kernels)
