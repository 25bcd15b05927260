"""What the measurements of a trial mean, in sentences."""

from __future__ import annotations

from torch_ops.trial.measured import AGAIN, GRAPHS, OVERRIDE, PYTORCH, Measurements

__all__ = ["conclusion"]

_LEAST_GPU_GAIN = 0.02  # a smaller share of the GPU time is not worth a sentence
_LEAST_IDLE = 0.1  # as a share of the wall clock


def conclusion(measured: Measurements) -> list[str]:
    """Sentences, the most important one first. Empty if nothing was measured."""
    if measured.reason:
        return []
    sentences = [
        _of_wall_clock(measured),
        *_of_graphs(measured),
        *_of_gpu_time(measured),
        *_of_operators(measured),
        *_of_idle_time(measured),
    ]
    return sentences


def _of_wall_clock(measured: Measurements) -> str:
    before, after = (measured.ways[name].clock.median for name in (PYTORCH, OVERRIDE))
    takes = f"a step takes {before:.3g} ms with PyTorch's kernels and {after:.3g} ms with the override"
    chance = f"By chance they differ by {measured.noise:.0%}."
    ratio = before / after
    if ratio > 1 + measured.noise:
        return f"The override gains: {takes}, {ratio:.2f} times as fast. {chance}"
    if 1 / ratio > 1 + measured.noise:
        return f"The override loses: {takes}, {1 / ratio:.2f} times as long. {chance}"
    return f"The override gains nothing: {takes}. {chance}"


def _of_graphs(measured: Measurements) -> list[str]:
    if GRAPHS not in measured.ways:
        return []
    before, after = (measured.ways[name].clock.median for name in (PYTORCH, GRAPHS))
    return [
        f"With CUDA graphs of the modules, too, it takes {after:.3g} ms: {before / after:.2f} times PyTorch's speed."
    ]


def _of_gpu_time(measured: Measurements) -> list[str]:
    ratio, wall = measured.gpu_ratio, measured.ratio
    before, again = measured.ways[PYTORCH].gpu_ms, measured.ways[AGAIN].gpu_ms
    if ratio is None or wall is None:
        return []
    if not before or not again:
        return []
    noise = max(_LEAST_GPU_GAIN, abs(before / again - 1))
    if ratio > 1 + noise and wall <= 1 + measured.noise:
        return [f"The kernels take {1 - 1 / ratio:.0%} less time, but the step doesn't: the GPU waits for the host."]
    if 1 / ratio > 1 + noise:
        return [f"The kernels take {1 / ratio:.2f} times as long. Please report this step."]
    return []


def _of_operators(measured: Measurements) -> list[str]:
    total = measured.ways[PYTORCH].gpu_ms
    if not measured.operators:
        return ["The step calls no operator that the override replaces."]
    sentences = []
    if not any(row.taken for row in measured.operators):
        sentences.append("No call was taken.")
    if total:
        share = min(1.0, sum(row.pytorch_ms or 0.0 for row in measured.operators) / total)
        saved = sum(row.saved_ms or 0.0 for row in measured.operators)
        gain = f"the override saved {saved:.3g} ms" if saved > 0 else "the override saved nothing"
        sentences.append(
            f"Replaced operators have {share:.0%} of PyTorch's GPU time. There {gain}. The rest stays as it is."
        )
        declined = sum(row.declined_ms or 0.0 for row in measured.operators)
        if declined > _LEAST_GPU_GAIN * total:
            sentences.append(f"Declined calls of these operators take {declined:.3g} ms of GPU time.")
    return sentences


def _of_idle_time(measured: Measurements) -> list[str]:
    way = measured.ways[OVERRIDE]
    if way.idle_ms is None or way.idle_ms < _LEAST_IDLE * way.clock.median:
        return []
    waits = f"With the override, the GPU waits for the host in {way.idle_ms / way.clock.median:.0%} of the time."
    return [
        waits if GRAPHS in measured.ways else f"{waits} trial(step, cuda_graph=True) says whether CUDA graphs help."
    ]
