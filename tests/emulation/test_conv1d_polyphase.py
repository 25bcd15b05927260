"""polyphase_kernel: rows that are cut into phases, by a step, by a dilation or not at all, each at its ends."""

from __future__ import annotations

import pytest

from .conv1d_model import BACKWARD_INPUT, BF16, CHUNKS, F16, F32, F64, FORWARD, Layout, Problem

CUT = {"polyphase_outputs": 1}
LONG = CUT | {"chunk_outputs": 1, "polyphase_taps": 1}


def cut(problem: Problem, conv1d, which=FORWARD, **limits):
    taken = problem.run(conv1d, which, **(CUT | limits))
    assert (taken.path, taken.polyphase) == (CHUNKS, 1)
    return taken


@pytest.mark.parametrize("step, dilation", [(1, 1), (2, 1), (3, 1), (1, 2), (1, 7)])
def test_every_end_of_a_row(conv1d, step, dilation):
    """Rows that begin and end anywhere in their sectors and warps, in memory that begins and ends there too."""
    taps = 9 if dilation > 1 else 10 * step
    for size in (1, 7, 8, 9, 255, 256, 257, 512, 520):
        for own, other in ((0, 0), (0, 1), (1, 0), (3, 7)):
            at_end = (own + size) % 2 > 0
            signals = [Layout(offset=o, at_end=at_end) for o in (own, other)]
            reach = (taps - 1) * dilation
            problem = Problem(
                F32, 2, 1, (1 + own % 2, 1), size * step, taps, step=step, padding=(reach // 2 + own, reach),
                dilation=dilation, layouts=(*signals, Layout()), special=int(at_end), seed=size,
            )  # fmt: skip
            assert cut(problem, conv1d).phases == max(step, dilation)


@pytest.mark.parametrize("warps", [0, 2**60], ids=["two segments", "one"])
def test_any_taps(conv1d, warps):
    """With and without an end of whole turns of 16 taps."""
    for taps in [*range(3, 41), 70]:
        problem = Problem(
            F32, 1, 2, (1, 1), 300, taps, padding=(taps, taps % 5 + 1), bias=True, activation=taps % 4, seed=taps,
            layouts=(Layout(gaps=(1, 0, 0)), Layout(gaps=(3, 0, 0)), Layout()),
        )  # fmt: skip
        taken = cut(problem, conv1d, polyphase_warps=warps)
        assert taken.products == (1 if warps else 2)


@pytest.mark.parametrize("dilation", [*range(2, 17), 31, 32])
def test_any_dilation(conv1d, dilation):
    """Phases of the outputs, which lanes have in turns; some lanes have none."""
    for taps, size, channels in ((24, 40, 1), (25, 700, 1), (29, 300, 3)):
        problem = Problem(
            F32, 1, 2, (channels, 1), size, taps, padding=(taps * dilation // 2, taps * dilation), dilation=dilation,
            bias=True, layouts=(Layout(), Layout(offset=5), Layout()), special=size % 3, seed=dilation,
        )  # fmt: skip
        assert cut(problem, conv1d, polyphase_warps=taps % 2 * 2**60).phases == dilation


@pytest.mark.parametrize("dtype", [F16, BF16, F32], ids=str)
def test_any_step(conv1d, dtype):
    """Phases of the input; with a dilation of which the step is a multiple, or the other way around, only every gap-th value is read."""
    half = dtype is not F32
    for step in range(2, 6 if half else 17):
        for gap in (1, 2, 3):
            taps = 6 * step + 12 if half else 10 * step
            problem = Problem(
                dtype, 1, 2, (1 + gap % 2, 1), 90 * step * gap, taps + step % 3, step=step * gap, dilation=gap,
                padding=(taps * gap, taps), bias=gap > 1, activation=step % 4, special=step % 2, seed=step,
            )  # fmt: skip
            assert cut(problem, conv1d).phases == step
    for gap in (2, 3):
        problem = Problem(F32, 1, 1, (1, 1), 400, 11, step=gap, dilation=3 * gap, padding=(30, 33))
        assert cut(problem, conv1d).phases == 3
        problem = Problem(F32, 1, 1, (1, 1), 400, 11, step=gap, dilation=gap, padding=(30, 33))
        assert cut(problem, conv1d).phases == 1


def test_input_channels_two_at_a_time_and_all_at_once(conv1d):
    """All where there is shared memory for all warps of a multiprocessor, else the next while one is worked on."""
    met = set()
    for channels in (1, 2, 3, 8):
        for batch in (1, 30):
            for step, dilation, taps in ((1, 1, 9), (2, 1, 10), (1, 3, 9)):
                problem = Problem(
                    F32, batch, 1, (channels, 2), 270, taps, step=step, dilation=dilation, padding=(20, 7), bias=True,
                    special=channels % 2, seed=channels,
                )  # fmt: skip
                met.add((channels, cut(problem, conv1d).stages))
    assert met == {(1, 1), (2, 2), (3, 3), (3, 2), (8, 8), (8, 2)}


def test_input_gradients_of_step_one(conv1d):
    """Taps from behind, with a negative stride."""
    for dilation in (1, 5):
        for taps in (9, 17):
            problem = Problem(
                F32, 2, 2, (2, 1), 200, taps, padding=(taps * dilation // 2, 3), dilation=dilation, seed=taps,
                layouts=(Layout(offset=1), Layout(gaps=(1, 0, 0)), Layout("first")),
            )  # fmt: skip
            cut(problem, conv1d, BACKWARD_INPUT)


def test_infinite_values_make_no_nan_elsewhere(conv1d):
    """Nothing is multiplied by a tap that isn't there."""
    for step, dilation in ((1, 1), (2, 1), (1, 3)):
        for taps in (10, 13, 30, 31):
            problem = Problem(
                F32, 1, 1, (1, 1), 300 * step, taps, step=step, dilation=dilation, padding=(3, 5), infinite=(0, 17, 200, 299)
            )  # fmt: skip
            cut(problem, conv1d)


def test_what_is_left_to_other_kernels(conv1d):
    few = {"step": 4, "padding": (3, 3)}
    for dtype, taps, given in (
        (F32, 9, few),
        (F64, 60, few),
        (F16, 30, {"padding": (3, 3)}),
        (BF16, 30, {"dilation": 2}),
    ):
        problem = Problem(dtype, 1, 1, (1, 1), 700, taps, **given)
        assert problem.run(conv1d, FORWARD, **LONG).polyphase == 0
    # Of both, no phase's neighbours meet neighbouring taps.
    problem = Problem(F32, 1, 1, (1, 1), 700, 30, step=2, dilation=3)
    assert problem.run(conv1d, FORWARD, **LONG).polyphase == 0
    # Of few warps, which have more to do to cut than to multiply.
    problem = Problem(F32, 1, 1, (1, 1), 700, 20, step=2)
    assert problem.run(conv1d, FORWARD, **LONG, polyphase_few_warps=16).polyphase == 0
    assert cut(problem, conv1d, chunk_outputs=1).strided == 0


def test_many_taps_of_long_rows(conv1d):
    taken = []
    for taps in (191, 192):
        problem = Problem(F32, 1, 1, (1, 1), 700, taps, padding=(taps // 2, taps // 2))
        taken.append(problem.run(conv1d, FORWARD, polyphase_outputs=1, chunk_outputs=1).polyphase)
    assert taken == [0, 1]
