"""Plans of convolutions, made without a GPU: the paths that support a problem, and the chosen path. tests/emulation tests the
values that a path computes."""

from __future__ import annotations

import ctypes
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.test_build import load

from ...support.conv1d_calls import MANY
from ...support.conv1d_problem import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    FORWARD,
    INPUT_GRADIENT,
    ITEM,
    PASSES,
    SM_75,
    SM_90,
    WEIGHT_GRADIENT,
    Device,
    Problem,
    own_paths,
    problem_of,
)  # fmt: skip
from ...support.seeded import seeded

SIZES = [1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33, 64, 100, 128, 129, 255, 256, 257, 1000, 1024, 2047, 4099, 16384, 65537]
SIZES += [99991, 2**20 + 3, 2**24, 2**29 - 1, 2**30 - 1, 2**30, 2**31 + 5, 2**33]
TAPS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 70, 129, 1000, 4096]
CHANNELS = [*[(1, 1)] * 6, (1, 2), (1, 4), (2, 3), (3, 8), (8, 8), (4, 100), (1, 513), (9, 1), (16, 20), (64, 64)]
BATCHES = [1, 1, 1, 2, 3, 8, 33, 100, 257, 4096, 65537, 2**20 + 1, 2**31 + 7]
LAYOUTS = ["rows", "rows", "whole rows", "channels last", "channels last", "channels last", "whole channels", "strided"]
ATEN, ROWS, H100 = "aten", "rows", Device()


@st.composite
def problems(draw):
    dtype = draw(st.sampled_from(list(ITEM)))
    vectors = draw(st.integers(0, 9)) == 0  # whole vectors of channels, which other draws rarely have
    channels = (1, 1) if vectors else draw(st.sampled_from(CHANNELS))
    groups = draw(st.sampled_from([1, 8, 64, 100, 4096] if channels == (1, 1) else [1, 1, 2, 3, 8, 64]))
    taps, dilation = draw(st.sampled_from(TAPS)), draw(st.sampled_from([1, 1, 1, 1, 2, 3, 16, 1000]))
    span = (taps - 1) * dilation
    padding = draw(st.sampled_from([0, 0, span // 2, span, span + 3]))
    layout = "whole channels" if vectors else draw(st.sampled_from(LAYOUTS))
    other = layout if vectors or draw(st.integers(0, 3)) else draw(st.sampled_from([*LAYOUTS, "expanded"]))
    size = draw(st.sampled_from(SIZES))
    batch = draw(st.sampled_from([n for n in BATCHES if n * groups * max(channels) * size < 2**48] or [1]))
    return problem_of(
        batch, groups, channels, size, taps, dtype, draw(st.sampled_from([1, 1, 1, 1, 2, 3, 8, 64, 1000])),
        (padding, draw(st.sampled_from([padding, span, 0, *[2**32] * (batch * groups < 2**20)]))), dilation, (other, layout),
        draw(st.sampled_from([(0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (1, 0), (3, 3)])),
    )  # fmt: skip


@st.composite
def long_rows(draw):
    channels = draw(st.sampled_from([(1, 1), (1, 1), (1, 2), (1, 8), (1, 64), (2, 16), (8, 1), (8, 2), (8, 8)]))
    taps, dilation = draw(st.integers(1, 70)), draw(st.sampled_from([1, 1, 1, 1, 2, 7, 16, 17]))
    padding = draw(st.integers(0, (taps - 1) * dilation))
    return problem_of(
        draw(st.sampled_from([1, 2, 33])), draw(st.sampled_from([1, 1, 3, 64, 4096])), channels, draw(st.integers(256, 9000)), taps,
        draw(st.sampled_from(list(ITEM))), draw(st.sampled_from([1, 1, 1, 2, 5])), (padding, padding), dilation,
        (draw(st.sampled_from(LAYOUTS[1:3])), draw(st.sampled_from(LAYOUTS[1:3]))),
        (draw(st.integers(0, 16)), draw(st.integers(0, 16))),
    )  # fmt: skip


@pytest.fixture(scope="module")
def library():
    library = load("plan/conv1d")
    library.chosen.restype = library.supporting.restype = ctypes.c_char_p
    return library


@pytest.fixture(scope="module")
def chosen(library):
    """A function that gives (name, offset in bytes) of each part of a problem's plan. It checks the launches. Names of plans through
    rows are "rows", a space, and the path that rows take."""

    def ask(problem: Problem, which: int, device: Device = H100) -> list[tuple[str, int]]:
        lines = library.chosen(problem.numbers(), which, device.numbers()).decode().splitlines()
        parts = []
        for words in map(str.split, lines):
            through = words[:1] if words[0] == ROWS else []
            check_launch(words[len(through) : -1], device)
            parts.append((" ".join([*through, words[len(through)]]), int(words[-1])))
        return parts

    return ask


@pytest.fixture(scope="module")
def supporting(library):
    """A function that gives the paths that support a problem. It checks the launches."""

    def ask(problem: Problem, which: int, device: Device = H100) -> set[str]:
        paths = [
            line.split()
            for line in library.supporting(problem.numbers(), which, device.numbers()).decode().splitlines()
        ]
        for path in paths:
            check_launch(path, device)
        return {name for name, *_ in paths}

    return ask


def check_launch(path: list[str], device: Device) -> None:
    if path == [ATEN]:
        return
    name, blocks, threads, shared_bytes = path[0], *map(int, path[1:])
    assert 1 <= blocks < 2**31, name
    assert 32 <= threads <= 1024 and threads % 32 == 0, name
    assert 0 <= shared_bytes <= device.shared_bytes, name


def test_any_launch_is_valid(chosen, supporting):
    """Every launch is valid. A signed overflow in the library ends the test, too."""
    met, taken = set(), set()

    @seeded(2000)
    @given(
        problem=problems() | long_rows(),
        which=st.sampled_from(PASSES),
        sms=st.sampled_from([1, 4, 40, 132, 148]),
        shared_bytes=st.sampled_from([SM_75, 99 << 10, SM_90]),
        far=st.sampled_from([""] * 20 + ["group_stride", "out_stride", "in_stride", "tap_stride"]),
        by=st.sampled_from([2**29 // 5, 2**29, 2**31 + 1]),
    )
    def check(problem, which, sms, shared_bytes, far, by):
        if far and which != WEIGHT_GRADIENT:
            setattr(problem.weight, far, by)
        device = Device(sms, shared_bytes)
        parts = chosen(problem, which, device)
        result = problem.from_ if which == INPUT_GRADIENT else problem.to
        rows = problem.batch * problem.groups * result.channels
        if (
            which == WEIGHT_GRADIENT
            or rows * result.size <= device.launch_outputs
            or problem.batch * problem.groups == 1
        ):
            paths = supporting(problem, which, device)
            met.update((which, path) for path in paths)
            path = parts[0][0].removeprefix(f"{ROWS} ")
            assert len(parts) == 1 and parts[0][1] == 0
            assert path in paths | {ATEN} if path == parts[0][0] else path != ATEN
        taken.update((which, name) for name, _ in parts)

    check()
    assert set(own_paths()) <= met, "no problem reaches these paths"
    assert {(which, ATEN) for which in PASSES} < taken


def parts_of(problem: Problem, which: int, parts: list[tuple[str, int]]) -> list[int]:
    """The number of signals (or, if there is one signal, of groups) in each part. Parts must follow one another."""
    result = problem.to if which == FORWARD else problem.from_
    channel_stride = result.size if parts[0][0].startswith(ROWS) else result.channel_stride
    step = result.batch_stride if problem.batch > 1 else result.channels * channel_stride
    begins = [offset // (step * problem.item) for _, offset in parts]
    assert [offset for _, offset in parts] == [begin * step * problem.item for begin in begins]
    assert begins[0] == 0 and begins == sorted(set(begins))
    return [
        end - begin for begin, end in zip(begins, [*begins[1:], problem.batch if problem.batch > 1 else problem.groups])
    ]


@pytest.mark.parametrize("which", [FORWARD, INPUT_GRADIENT])
@pytest.mark.parametrize("layout", ["rows", "channels last", "strided"])
@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize(
    "batch, groups, size", [(7, 1, 100), (100, 3, 37), (1, 9, 500), (2**31 + 5, 1, 4), (1, 2**25, 2**10)]
)
def test_parts_hold_all_outputs_once(chosen, which, layout, stride, batch, groups, size):
    problem = problem_of(batch, groups, (1, 1), size, 3, FLOAT64, stride, (1, 1), layouts=(layout, layout))
    result = problem.to if which == FORWARD else problem.from_
    outputs = batch * groups * result.size
    for launch_outputs in (min(outputs // k, 2**31 - 1024) for k in (1, 2, 5)):
        parts = chosen(problem, which, Device(launch_outputs=launch_outputs))
        counts = parts_of(problem, which, parts)
        assert min(counts) >= 1
        assert max(counts) == 1 or max(counts) * outputs // (batch if batch > 1 else groups) <= launch_outputs
        assert (len(parts) > 1) == (launch_outputs < outputs)


def test_parts_of_parts(chosen):
    """A signal with more outputs than a launch allows is split into parts by groups."""
    problem = problem_of(2, 8, (1, 1), 100, 3, padding=(1, 1))
    offsets = [offset for _, offset in chosen(problem, FORWARD, Device(launch_outputs=250))]
    assert offsets == [i * 200 * 4 for i in range(8)]


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("layout", ["rows", "channels last", "strided"])
@pytest.mark.parametrize("stride", [1, 3])
def test_large_problems(chosen, which, layout, stride):
    """Signals of 2^31 values or more, in one row or in many."""
    for dtype in ITEM:
        for batch, groups, channels, size in (
            (1, 1, (1, 1), 2**31 + 5), (1, 1, (1, 1), 2**33), (2**31 + 5, 1, (1, 1), 3), (2**12, 2**11, (1, 1), 2**11),
            (1, 2**24, (1, 4), 2**10), (2**25, 64, (2, 2), 70), (2**38, 1, (1, 1), 1), (2, 1, (1, 1), 2**38),
        ):  # fmt: skip
            problem = problem_of(batch, groups, channels, size, 3, dtype, stride, (2, 2), layouts=(layout, layout))
            chosen(problem, which)


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("layout", ["rows", "channels last", "strided"])
@pytest.mark.parametrize("stride", [1, 2])
def test_groups_of_many_input_channels_fall_back_to_aten(chosen, which, layout, stride):
    for in_channels, out_channels in ((64, 1), (65, 1), (65, 512), (512, 1), (512, 512)):
        for dtype in (BFLOAT16, FLOAT32, FLOAT64):
            problem = problem_of(4, 2, (in_channels, out_channels), 1000, 3, dtype, stride, layouts=(layout, layout))
            assert (chosen(problem, which) == [(ATEN, 0)]) == (in_channels > 64)


DEPTHWISE, OWN = (1, 1), None  # OWN: any path of gpuopt


@pytest.mark.parametrize(
    "layer, dtype, arguments, rest, expected",
    [
        # The last entry has the expected path of each pass.
        ("Mamba", BFLOAT16, (8, 1536, DEPTHWISE, 2048, 4), {"padding": (3, 0)}, ("toeplitz", OWN, "weight_chunks")),
        ("Mamba, channels last", BFLOAT16, (8, 1536, DEPTHWISE, 2048, 4), {"padding": (3, 0), "layouts": ("channels last",) * 2},
         ("channels_last", "channels_last", "weight_channels_last")),
        ("ECG, channels last with a stride", FLOAT32, (70, 256, DEPTHWISE, 5000, 125), {"stride": 2, "padding": (62, 62), "layouts": ("channels last",) * 2},
         ("rows polyphase", "rows strided_gradient", "weight_columns")),
        ("ConvNeXt, channels-last input", BFLOAT16, (4, 768, DEPTHWISE, 2000, 13), {"padding": (6, 6), "layouts": ("channels last", "rows")},
         ("rows toeplitz", "rows toeplitz", "rows weight_chunks")),
        ("Hyena, long filter", FLOAT32, (2, 64, DEPTHWISE, 8192, 128), {"padding": (127, 0)}, (OWN, OWN, OWN)),
        ("ConvNeXt", FLOAT32, (32, 384, DEPTHWISE, 1024, 7), {"padding": (3, 3)}, (OWN, OWN, OWN)),
        ("ConvNeXt, fp16", FLOAT16, (32, 384, DEPTHWISE, 1024, 7), {"padding": (3, 3)}, (OWN, OWN, OWN)),
        ("Conformer", BFLOAT16, (16, 512, DEPTHWISE, 1500, 31), {"padding": (15, 15)}, (OWN, OWN, OWN)),
        ("wav2vec2, first", FLOAT16, (8, 1, (1, 512), 160000, 10), {"stride": 5}, ("expand", "col2im", "im2col")),
        ("raw audio", FLOAT32, (16, 1, (1, 64), 16000, 80), {"stride": 16}, ("implicit_gemm", "col2im", OWN)),
        ("ECG, channels last", FLOAT32, (1, 1, (2, 64), 9000, 50), {"padding": (24, 24), "layouts": ("channels last",) * 2},
         ("rows polyphase", "col2im", "im2col")),
        ("EnCodec, first", FLOAT32, (8, 1, (1, 32), 48000, 7), {"padding": (6, 0)}, ("sliding", OWN, OWN)),
        ("DAC, downsampling", FLOAT32, (4, 64, DEPTHWISE, 44100, 4), {"stride": 2, "padding": (1, 1)}, (OWN, OWN, OWN)),
        ("every 4th of a low-pass", FLOAT32, (16, 2, DEPTHWISE, 160000, 64), {"stride": 4, "padding": (32, 32)}, (OWN, OWN, OWN)),
        ("short rows", FLOAT32, (4096, 64, DEPTHWISE, 16, 3), {"padding": (1, 1)}, (OWN, OWN, OWN)),
        ("tiny", FLOAT32, (1, 8, DEPTHWISE, 100, 3), {"padding": (1, 1)}, ("small", "small", OWN)),
        ("MelGAN, grouped", BFLOAT16, (16, 4, (4, 16), 8192, 41), {"stride": 4, "padding": (20, 20)}, ("implicit_gemm", OWN, OWN)),
        ("wav2vec2, positions", BFLOAT16, (8, 16, (48, 48), 499, 128), {"padding": (64, 64)},
         ("tap_gemm", "tap_gemm", "weight_tap_gemm")),
        ("WavLM large, positions", FLOAT16, (1, 16, (64, 64), 249, 128), {"padding": (64, 64)},
         ("tap_gemm", "tap_gemm", "weight_tap_gemm")),
        ("wav2vec2, positions in fp32", FLOAT32, (8, 16, (48, 48), 499, 128), {"padding": (64, 64)}, ("polyphase", "polyphase", ATEN)),
        ("grouped, 3 taps", BFLOAT16, (8, 4, (32, 32), 499, 3), {"padding": (1, 1)}, ("tap_gemm", "tap_gemm", "weight_chunks")),
        ("grouped, 2 taps", BFLOAT16, (8, 4, (32, 32), 499, 2), {}, ("tap_gemm", "tap_gemm", "weight_chunks")),
        ("few channels, 15 taps", BFLOAT16, (8, 4, (16, 16), 499, 15), {}, (OWN, OWN, OWN)),
        ("dense", BFLOAT16, (16, 1, (512, 512), 16000, 3), {"stride": 2}, (ATEN, ATEN, ATEN)),
    ],
)  # fmt: skip
def test_real_layers(chosen, layer, dtype, arguments, rest, expected):
    for which, path in zip(PASSES, expected):
        ((name, _),) = chosen(problem_of(*arguments, dtype, **rest), which)
        assert (name != ATEN) if path is OWN else (name == path), f"{layer}, pass {which}"


CHANNELS_LAST = ("channels last",) * 2


@pytest.mark.parametrize(
    "layouts", [CHANNELS_LAST, ("channels last", "rows"), ("rows", "channels last")], ids=" and ".join
)
@pytest.mark.parametrize("dtype", list(ITEM))
def test_plans_through_rows_are_the_plans_of_rows(chosen, layouts, dtype):
    """A plan through rows has the path that contiguous rows take."""
    through = set()
    for which, taps, stride, size in itertools.product(PASSES, (3, 17, 40, 130), (1, 2, 5), (200, 3000)):
        arguments = (8, 192, DEPTHWISE, size, taps, dtype, stride, (taps // 2, taps // 2), 1)
        ((name, _),) = chosen(problem_of(*arguments, layouts), which)
        if name.startswith(ROWS):
            assert [(name.removeprefix(f"{ROWS} "), 0)] == chosen(problem_of(*arguments), which)
            through.add(which)
    assert INPUT_GRADIENT in through


@pytest.mark.parametrize("which", PASSES)
def test_slices_of_channels_go_through_rows(chosen, which):
    """A slice of the channels costs a transposition as much as a whole signal."""
    problem = problem_of(8, 192, DEPTHWISE, 3000, 125, FLOAT32, 2, (62, 62), layouts=CHANNELS_LAST)
    whole = chosen(problem, which)
    for signal in (problem.from_, problem.to):
        signal.stride *= 2
        signal.batch_stride *= 2
    assert chosen(problem, which) == whole
    if which != WEIGHT_GRADIENT:
        assert whole[0][0].startswith(ROWS)


@pytest.mark.parametrize("layout", ["rows", "batch last", "strided", "expanded", "expanded rows"])
def test_only_channels_last_signals_go_through_rows(chosen, layout):
    for which, taps, stride in itertools.product(PASSES, (3, 40, 130), (1, 2)):
        ((name, _),) = chosen(
            problem_of(8, 192, DEPTHWISE, 3000, taps, BFLOAT16, stride, layouts=(layout, layout)), which
        )
        assert not name.startswith(ROWS)


@pytest.mark.parametrize("dtype", list(ITEM))
def test_devices_of_little_shared_memory_keep_their_paths(chosen, dtype):
    for which in PASSES:
        for arguments in ((1, 1, DEPTHWISE, 2**20, 5), (8, 16, DEPTHWISE, 4096, 4), (8, 1, (1, 64), 16000, 10)):
            problem = problem_of(*arguments, dtype)
            assert chosen(problem, which, Device(shared_bytes=SM_75)) == chosen(problem, which)


@pytest.mark.parametrize("sms", [108, 132, 148])
def test_calls_of_tests_on_a_gpu_reach_every_path(chosen, sms):
    """The calls in MANY reach every path, except the one for small problems, which most other tests use."""
    taken = {(which, name) for which, name in own_paths() if name == "small"}
    for call, dtype, which in itertools.product(MANY, ITEM, PASSES):
        n, c, size = call.input_size
        layout = {"transposed": "channels last", "step2": "strided"}.get(call.layout, "rows")
        problem = problem_of(
            n, call.groups, (c // call.groups, call.out_channels // call.groups), size, call.taps, dtype, call.stride,
            (call.padding, call.padding), call.dilation, (layout, layout),
        )  # fmt: skip
        taken.update((which, name) for name, _ in chosen(problem, which, Device(sms)))
    assert set(own_paths()) - taken == set()
