"""A sound level meter on a recording: exponential moving averages of its energy, with ``linear_recurrence``.

A meter shows the average of the squared signal, and its weights decay exponentially with age. Two decays are in use: "Fast" has a
time constant of 125 ms and "Slow" one of 1 s (IEC 61672-1). Each average is a recurrence, ``h[t] = a * h[t - 1] + (1 - a) * x[t]``.
One call computes both, with one factor for each row.
"""

import math

import torch
from matplotlib.figure import Figure

import torch_ops
from examples import filtering

TITLE = "sound level"
TIME_CONSTANTS = {"Fast": 0.125, "Slow": 1.0}  # seconds
QUIET = 1e-6  # the energy of -60 dB


def decays(rate: int, device: str) -> torch.Tensor:
    """The factor of each average, (averages, 1). A weight falls to 1/e within the time constant.

    float32 holds ``1 - factor`` exactly. So a rounded factor changes the time constant a little, and the weights still add up to 1.
    """
    seconds = torch.tensor(list(TIME_CONSTANTS.values()), dtype=torch.float64, device=device)
    return torch.exp(-1 / (seconds * rate)).float()[:, None]


def tolerances(rate: int) -> list[float]:
    """The largest relative error of each average in float32.

    A product that is rounded by 2^-24 is a product with another factor. That changes an average by 2^-24 times the samples in its
    time constant. There are two roundings per sample.
    """
    return [2 * 2.0**-24 * seconds * rate for seconds in TIME_CONSTANTS.values()]


def averages(signal: torch.Tensor, decay: torch.Tensor, initial: torch.Tensor | None = None) -> torch.Tensor:
    """The averages of the energy, (averages, samples). ``initial`` is what they were before the first sample."""
    return torch_ops.linear_recurrence(decay, (1 - decay) * signal.square(), 1, initial)


def one_after_another(signal: torch.Tensor, decay: torch.Tensor) -> torch.Tensor:
    """The same averages in float64, by a loop over the samples."""
    rows = []
    for factor in decay.flatten().tolist():
        average, row = 0.0, []
        for energy in signal.double().square().tolist():
            average = factor * average + (1 - factor) * energy
            row.append(average)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64, device=signal.device)


def decibels(energy: torch.Tensor) -> torch.Tensor:
    """Relative to a signal that is 1 everywhere."""
    return 10 * torch.log10(energy.clamp(min=QUIET))


def draw(figure, signal: torch.Tensor, levels: torch.Tensor, rate: int):
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.6])
    times = torch.arange(len(signal)) / rate
    above.plot(times, signal.cpu(), color="0.5", linewidth=0.3)
    above.set(title=f"recording, {len(signal) / rate:.1f} s at {rate} Hz", ylabel="sample", ylim=(-1, 1))
    for (name, seconds), level, color in zip(TIME_CONSTANTS.items(), levels.cpu(), ("#6baed6", "#08306b")):
        below.plot(times, level, color=color, label=f"{name}, time constant {1e3 * seconds:.0f} ms")
    below.set(title="sound level", xlabel="seconds", ylabel="dB of full scale", xlim=(0, len(signal) / rate))
    below.legend(loc="lower right")
    below.grid(alpha=0.3)


def run(report):
    signal, rate = filtering.load(report.device)
    decay = decays(rate, report.device)
    found, exact = averages(signal, decay), one_after_another(signal, decay)
    middle = len(signal) // 2
    continued = averages(signal[middle:], decay, initial=found[:, middle - 1])
    report.note(f"{len(signal)} samples at once, and the second half of them from the average of the first half:")
    for row, (name, tolerance) in enumerate(zip(TIME_CONSTANTS, tolerances(rate))):
        error, later = (
            ((values[row] - true).abs() / true).max().item()
            for values, true in ((found, exact[row]), (continued, exact[row, middle:]))
        )
        low, high = decibels(found[row, rate:]).aminmax()
        report.note(
            f"  {name}: {low:.1f} to {high:.1f} dB after the first second;"
            f" largest relative errors {error:.1e} and {later:.1e}, accepted {tolerance:.1e}"
        )
        assert error < tolerance and later < tolerance
    mean = 10 * math.log10(signal.double().square().mean().item())
    report.note(f"  the mean over the recording is {mean:.1f} dB")
    figure = Figure(figsize=(11, 7), layout="constrained")
    draw(figure, signal, decibels(found), rate)
    path = report.folder / "sound_level.png"
    figure.savefig(path, dpi=90)
    report.wrote(path)
