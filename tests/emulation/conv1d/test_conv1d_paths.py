"""The paths of convolutions, run on the CPU on random problems and compared with numpy. Problems are drawn until every template
instance of every kernel has some."""

from __future__ import annotations

import ctypes
import re
import subprocess
from functools import cache
from itertools import product

import numpy as np
import pytest

from tools.test_build import FOLDER, ROOT

from ...support.conv1d_problem import (
    FLOAT16,
    FLOAT32,
    FOLDERS,
    FORWARD,
    INPUT_GRADIENT,
    ITEM,
    PASSES,
    WEIGHT_GRADIENT,
    Device,
    own_paths,
    problem_of,
)  # fmt: skip
from ..memory import decode, encode, far_apart
from .conv1d_model import (
    DTYPES,
    POISON,
    Case,
    Emulated,
    activated,
    check,
    compare,
    draw,
    draw_strides,
    extent,
    pick,
)  # fmt: skip
from .test_conv1d_fused import kernels as kernels_of_fused

DRAWN = 20_000  # problems per pass
ENOUGH, LARGE = 20, 8  # problems per path and set of launched kernels, and how many of these may be large
MOST_THREADS, FEW_THREADS = 10_000, 3000  # threads per problem, and of one that is not large


@cache
def emulated() -> Emulated:
    return Emulated()


@cache
def cases() -> dict[str, list[tuple[Case, list[str]]]]:
    """Random problems for each path, with the symbols of the kernels that they launch."""
    found, counts = {name: [] for _, name in own_paths()}, {}
    for which in PASSES:
        random = np.random.default_rng(which)
        for _ in range(DRAWN):
            case = draw(random, which, emulated())
            if case is None:
                continue
            for name, (threads, kernels) in emulated().launches(case).items():
                key = (name, *kernels)
                count = counts.get(key, 0)
                if threads <= (MOST_THREADS if count < LARGE else FEW_THREADS) and count < ENOUGH:
                    counts[key] = count + 1
                    found[name].append((case, kernels))
    return found


@pytest.mark.parametrize("name", [name for _, name in own_paths()])
def test_path(name):
    seen = set()
    for case, kernels in sorted(cases()[name], key=lambda case: case[0].problem.macs):
        try:
            assert emulated().run(case, name) == (name, 1, kernels)
            if tuple(kernels) not in seen:
                seen.add(tuple(kernels))
                emulated().run(case, name, exact=False)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{case}") from None
    assert seen


@pytest.mark.parametrize("which", [FORWARD, INPUT_GRADIENT])
def test_chosen_paths_in_parts(which):
    """Launches are limited to few threads, so that most plans have several parts."""
    random, met = np.random.default_rng(which), set()
    for _ in range(2000):
        case = draw(random, which, emulated(), most_macs=100_000)
        if case is None:
            continue
        p, result = case.problem, case.problem.to if which == FORWARD else case.problem.from_
        outputs = p.batch * p.groups * result.channels * result.size
        case.device = Device(1, launch_outputs=outputs // pick(random, *range(1, 6)))
        name, parts, _ = emulated().run(case)
        assert name == "aten" or (parts > 1) == (case.device.launch_outputs < outputs and p.batch * p.groups > 1)
        met.add((name, min(parts, 3)))
    assert len({name for name, parts in met if parts > 2}) > 1, met


def test_a_dilation_beyond_the_row():
    """It needs no more threads than there are outputs."""
    p = problem_of(
        2, 100, (1, 1), 5, 2, FLOAT16, padding=(1 << 20, 0), dilation=1 << 20, layouts=("channels last",) * 2
    )
    for i, part in enumerate((p.from_, p.to, p.weight)):
        part.data = emulated().memories[i].bytes.ctypes.data
    case = Case(FORWARD, p, Device(), 0, 0)
    paths = emulated().launches(case)
    assert "channels_last" in paths
    for name, (threads, _) in paths.items():
        assert threads <= 4096, name
        emulated().run(case, name)


@pytest.mark.parametrize("sms", [1, 132])
@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize(
    "channels, taps, size, layout, arguments",
    [
        ((48, 48), 128, 61, "rows", {"padding": (64, 64)}),
        ((64, 64), 5, 301, "strided", {"padding": (1, 9), "dilation": 2}),
        ((64, 33), 23, 131, "channels last", {"padding": (0, -3), "dilation": 2}),
        ((17, 64), 16, 200, "rows apart", {"stride": 3, "padding": (7, 0)}),
    ],
)
def test_groups_of_many_channels(which, channels, taps, size, layout, arguments, sms):
    """Tap GEMMs with and without splits."""
    batch = 1 if taps == 128 else 2
    p = problem_of(batch, 3, channels, size, taps, FLOAT16, layouts=(layout, layout), **arguments)
    name = "weight_tap_gemm" if which == WEIGHT_GRADIENT else "tap_gemm"
    if which == INPUT_GRADIENT and p.stride > 1:
        assert run_exactly(which, p, Device(sms), {name}) == set()
    else:
        assert run_exactly(which, p, Device(sms), {name}) == {name}


def run_exactly(which, p, device, names):
    """Runs the named paths that support a problem, whose operands are made. Sums are exact. Returns the paths' names."""
    random, views = np.random.default_rng(p.taps), []
    shapes = [(p.batch, p.groups * s.channels, s.size) for s in (p.from_, p.to)]
    shapes.append((p.groups * p.to.channels, p.from_.channels, p.taps))
    for part, shape in zip((p.from_, p.to, p.weight), shapes):
        strides = list(vars(part).values())[2 if part is p.weight else 1 :][:3]
        memory = np.zeros(extent(strides, shape), f"f{p.item}")
        views.append(np.lib.stride_tricks.as_strided(memory, shape, [p.item * stride for stride in strides]))
        views[-1][...] = random.integers(-1, 2, shape) / 2
        part.data = memory.ctypes.data
    case = Case(which, p, device, 0, 0)
    supporting = names & emulated().launches(case).keys()
    for name in supporting:
        views[case.written][...] = 100
        got, _, intact, *_ = emulated().call(case, name)
        assert (got, intact) == (name, "1")
        check(case, views[case.written], [view.astype(np.float64) for view in views], exact=True)
    return supporting


@pytest.mark.parametrize("sms", [1, 132])
@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32])
@pytest.mark.parametrize("which, name", list(enumerate(["implicit_gemm", "col2im", "im2col"])))
@pytest.mark.parametrize(
    "channels, taps, size, layout, arguments",
    [
        ((1, 512), 10, 390, "rows", {"stride": 5}),
        ((1, 48), 80, 1301, "channels last", {"stride": 16, "padding": (39, 39)}),
        ((2, 17), 160, 131, "channels last", {"padding": (80, 80)}),
        ((2, 64), 50, 233, "strided", {"stride": 2, "dilation": 3, "padding": (7, -3)}),
        ((1, 37), 49, 300, "rows apart", {"stride": 3}),
        ((2, 33), 65, 60, "rows", {"stride": 4, "padding": (66, 31)}),
    ],
)
def test_stems(which, name, dtype, channels, taps, size, layout, arguments, sms):
    """One or two channels and many taps, in tensors of any strides."""
    p = problem_of(2, 1, channels, size, taps, dtype, layouts=(layout, layout), **arguments)
    assert run_exactly(which, p, Device(sms), {name}) == {name}


# Batch, channels, size, taps, other arguments, layouts, offset.
MANY_TAPS = [
    (1, 72, 150, 33, {"padding": (16, 16)}, ("whole channels",) * 2, 0),
    (2, 67, 700, 19, {"padding": (18, 0)}, ("channels last",) * 2, 0),
    (1, 64, 700, 17, {"padding": (3, -2)}, ("channels last", "whole channels"), 1),
    (2, 40, 270, 18, {"padding": (51, 0), "dilation": 3}, ("channels last",) * 2, 0),
    (1, 33, 90, 140, {"padding": (139, 70)}, ("channels last",) * 2, 3),
    (8, 8, 640, 20, {"padding": (19, 0)}, ("channels last",) * 2, 0),
    (1, 8, 1400, 300, {"padding": (150, 149)}, ("channels last",) * 2, 0),
    (3, 9, 20, 270, {"padding": (269, 0), "dilation": 2}, ("whole channels", "channels last"), 0),
]


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32])
@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("batch, channels, size, taps, arguments, layouts, offset", MANY_TAPS)
def test_channels_last_with_many_taps(which, dtype, batch, channels, size, taps, arguments, layouts, offset):
    """Several tiles of channels, of positions and of taps, aligned to vectors and not."""
    random, name = np.random.default_rng(taps), "weight_channel_tiles" if which == WEIGHT_GRADIENT else "channel_tiles"
    p = problem_of(batch, channels, (1, 1), size, taps, dtype, layouts=layouts, **arguments)
    shapes = [(batch, channels, s.size) for s in (p.from_, p.to)] + [(channels, 1, taps)]
    views = []
    for part, shape in zip((p.from_, p.to, p.weight), shapes):
        strides = list(vars(part).values())[2 if part is p.weight else 1 :][:3]
        memory = np.zeros(extent(strides, shape) + offset, DTYPES[dtype].numpy)[offset:]
        views.append(np.lib.stride_tricks.as_strided(memory, shape, [p.item * stride for stride in strides]))
        part.data = memory.ctypes.data
    for sms, special in ((1, 0), (132, 3)):
        case = Case(which, p, Device(sms), 0, 0)
        for i, view in enumerate(views):
            values = random.integers(-1, 2, view.shape) / 2
            if special and i < (3 if case.has_special_taps else 2):
                values.flat[random.integers(values.size, size=special)] = [np.inf, -np.inf, np.nan]
            view[...] = 100 if i == case.written else encode(DTYPES[dtype], values)
        got, _, intact, *_ = emulated().call(case, name)
        assert (got, intact) == (name, "1")
        check(case, views[case.written], [view.astype(np.float64) for view in views], exact=True)


OF_SIGNALS = ("batch_stride", "channel_stride", "stride")
OF_WEIGHT = ("group_stride", "out_stride", "in_stride", "tap_stride")


@pytest.mark.parametrize("far", [2**29, 2**31 + 8])
@pytest.mark.parametrize("which, field", [*product(PASSES, OF_SIGNALS), *product((FORWARD, INPUT_GRADIENT), OF_WEIGHT)])
def test_values_that_lie_far_apart(which, field, far):
    """A large stride of a tensor, in every path that supports it."""
    p = problem_of(2, 2, (2, 3), 9, 3, FLOAT16, padding=(1, 1))
    for part in (p.weight,) if field in OF_WEIGHT else (p.from_, p.to):
        setattr(part, field, far)
    random, views = np.random.default_rng(0), []
    for part, shape in ((p.from_, (2, 4, 9)), (p.to, (2, 6, 9)), (p.weight, (2, 3, 2, 3))):
        strides = list(vars(part).values())[1 : len(shape) + 1]
        memory = far_apart(2 * extent(strides, shape)).view(np.float16)
        views.append(np.lib.stride_tricks.as_strided(memory, shape, [2 * stride for stride in strides]))
        views[-1][...] = random.integers(-8, 9, shape) / 4
        part.data = memory.ctypes.data
    case = Case(which, p, Device(), 0, 0)
    paths = list(emulated().launches(case))
    assert paths
    for name in paths:
        views[case.written][...] = 100
        emulated().call(case, name)
        x, y, w = (view.astype(np.float64) for view in views)
        got = views[case.written].reshape((6, 2, 3) if which == WEIGHT_GRADIENT else x.shape if which else y.shape)
        check(case, got, [x, y, w.reshape(6, 2, 3)], exact=True)


@cache
def kernels_of_updates(dtype: int) -> set[str]:
    """Runs causal_conv1d_update. The state is shifted in place, and nothing else changes except the result. Returns the kernels."""
    random, kernels, own = np.random.default_rng(dtype), set(), DTYPES[dtype]
    for _ in range(40):
        batch, channels = pick(random, 1, 2, 3), pick(random, 1, 3, 8, 100, 300)
        taps, activation, has_bias = (
            pick(random, 1, 2, 3, 4, 5, 9, 17),
            pick(random, *range(4)),
            pick(random, False, True),
        )
        size = taps - 1 + pick(random, 0, 0, 1, 7)
        shapes = (batch, channels), (batch, channels, max(size, 1)), (channels, taps), (channels,), (batch, channels)
        views, nears, numbers = [], [], []
        for i, shape in enumerate(shapes):  # input, state, weight, bias, output
            strides = [channels, 1] if i == 4 else draw_strides(random, shape)
            numbers += [emulated().random_address(random, i, ITEM[dtype], extent(strides, shape)), *strides]
            view, near = emulated().near(i, ITEM[dtype], numbers[-1 - len(shape)], shape, strides)
            near[:] = POISON
            values = random.integers(-8, 9, shape) / 4
            values.flat[0] = pick(random, 1, 1, np.nan, np.inf) if i == 0 else 1
            view[...] = encode(own, values).view(view.dtype)
            views.append(view.view(own.numpy))
            nears.append(near)
        initial, before = [view.copy() for view in views], [near.copy() for near in nears]
        x, state, w, bias, _ = (decode(own, view) for view in initial)
        window = np.concatenate([state[..., :size], x[..., None]], 2)
        numbers[-5] *= has_bias
        numbers = [*numbers[:-2], dtype, batch, channels, taps, size, activation]
        answer = emulated().library.run_update((ctypes.c_int64 * len(numbers))(*numbers))
        kernels.update(answer.decode().split())
        with np.errstate(all="ignore"):
            sums = (window[..., -taps:] * w).sum(2) + bias * has_bias
            compare(dtype, views[4], activated(sums, activation), activation)
        np.testing.assert_array_equal(decode(own, views[1])[..., :size], window[..., 1:])
        for i in (1, 4):
            views[i][...] = initial[i]
        assert all(map(np.array_equal, nears, before))
    return kernels


@pytest.mark.parametrize("dtype", list(ITEM))
def test_updates(dtype):
    assert len(kernels_of_updates(dtype)) == 1


def test_every_kernel_instance_has_run():
    """Every template instance of every kernel is launched by the cases, which the other tests run."""
    run = {kernel for drawn in cases().values() for _, kernels in drawn for kernel in kernels}
    for batch, channels, size, taps, arguments, layouts, _ in MANY_TAPS:
        p = problem_of(batch, channels, (1, 1), size, taps, FLOAT16, layouts=layouts, **arguments)
        for i, part in enumerate((p.from_, p.to, p.weight)):
            part.data = emulated().memories[i].bytes.ctypes.data
        for which, sms in product(PASSES, (1, 132)):
            launched = emulated().launches(Case(which, p, Device(sms), 0, 0)).values()
            run |= {kernel for _, kernels in launched for kernel in kernels if "channel_tiles" in kernel}
    run |= kernels_of_fused()
    for dtype in ITEM:
        run |= kernels_of_updates(dtype)
    library = FOLDER / "emulation" / "conv1d.so"
    names = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    defined = dict(re.findall(r" (_ZN6gpuopt6conv1d\d+(\w+?_kernel)I\w+)$", names, re.MULTILINE))
    sources = [
        path.read_text()
        for folder in (*FOLDERS, "device", "fused_gradient")
        for path in (ROOT / "csrc" / "conv1d" / folder).glob("*.cuh")
    ]
    assert len(set(defined.values())) == sum(text.count("__global__") for text in sources)
    assert sorted(set(defined) - run) == []
