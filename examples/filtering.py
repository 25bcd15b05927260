"""A low-pass filter of a recording with ``convolve``, and the same filter one sample at a time with ``causal_conv1d_update``.

The recording is seven seconds of music that ship with pygame-ce, a synthesizer and drums. The filter keeps the frequencies below
CUTOFF. Its taps are a windowed sinc: an ideal low-pass is infinitely long, and Blackman's window limits it to a number of taps.
More taps give a steeper filter. ``convolve`` computes short filters directly and long ones by Fourier transforms.
"""

import importlib.metadata
import math
import wave

import numpy
import torch
from matplotlib.figure import Figure
from torch.nn import functional

import torch_ops

TITLE = "filtering"
CUTOFF = 1000.0  # Hz
TAPS = (2**6, 2**12)
# Properties of Blackman's window: the attenuation beyond the transition, and the width of the transition times the number of taps.
STOPPED_DB, TRANSITION = 70.0, 5.5
TOLERANCE = 1e-5  # of the largest value, in float32
STREAMED = 4000  # samples
WINDOW = 512  # of the spectrograms

# ---------------------------------------------------------------- the recording


def load(device: str) -> tuple[torch.Tensor, int]:
    """Samples in [-1, 1), and their number per second. pygame is not imported, because it would open a sound card."""
    path = importlib.metadata.distribution("pygame-ce").locate_file("pygame/examples/data/house_lo.wav")
    with wave.open(str(path), "rb") as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 1)
        values = numpy.frombuffer(file.readframes(file.getnframes()), numpy.uint8)
        rate = file.getframerate()
    return (torch.from_numpy(values.copy()).to(device).float() - 128) / 128, rate


def save(path, signal: torch.Tensor, rate: int):
    values = (signal.cpu().clamp(-1, 1) * 32767).round().to(torch.int16).numpy()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(values.astype("<i2").tobytes())


# ---------------------------------------------------------------- filters


def low_pass(taps: int, cutoff: float, rate: int, device: str = "cpu") -> torch.Tensor:
    """The taps of the filter in float64. They add up to 1."""
    times = torch.arange(taps, dtype=torch.float64, device=device) - (taps - 1) / 2
    window = torch.blackman_window(taps, periodic=False, dtype=torch.float64, device=device)
    weights = torch.sinc(2 * cutoff / rate * times) * window
    return weights / weights.sum()


def with_conv1d(signal: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """The filter with PyTorch, which does not flip the taps. For an even number of taps it returns one value too many."""
    out = functional.conv1d(signal[:, None], taps.flip(0)[None, None], padding=len(taps) // 2)
    return out[:, 0, : signal.shape[-1]]


def filtered(signal: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    return torch_ops.convolve(signal, taps, "same")


def by_definition(signal: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """The filter by its definition, as a sum of shifted products with zeros beyond the ends."""
    size = signal.shape[-1]
    padded = functional.pad(signal, (len(taps) // 2, (len(taps) - 1) // 2))
    out = torch.zeros_like(signal)
    for place, weight in enumerate(taps.flip(0).tolist()):
        out += weight * padded[..., place : place + size]
    return out


def streamed(signal: torch.Tensor, taps: torch.Tensor) -> torch.Tensor:
    """Filters one sample after another. The state holds the last samples, one fewer than there are taps."""
    weight = taps.flip(0)[None]
    state = signal.new_zeros(1, 1, len(taps) - 1)
    return torch.stack([torch_ops.causal_conv1d_update(sample.view(1, 1), state, weight)[0, 0] for sample in signal])


# ---------------------------------------------------------------- results


def spectrogram(signal: torch.Tensor) -> torch.Tensor:
    """The power in decibels, (frequencies, times)."""
    window = torch.hann_window(WINDOW, dtype=signal.dtype, device=signal.device)
    power = torch.stft(signal, WINDOW, WINDOW // 4, window=window, return_complex=True).abs().square()
    return 10 * torch.log10(power + 1e-12)


def energy(signal: torch.Tensor, rate: int, low: float, high: float = math.inf) -> float:
    """The energy between two frequencies, in decibels.

    A window fades the signal in and out, because abrupt ends would contribute to all frequencies.
    """
    window = torch.blackman_window(len(signal), dtype=torch.float64, device=signal.device)
    spectrum = torch.fft.rfft(signal.double() * window)
    frequencies = torch.fft.rfftfreq(len(signal), 1 / rate, device=signal.device)
    inside = (frequencies >= low) & (frequencies < high)
    return 10 * math.log10(spectrum[inside].abs().square().sum().item() + 1e-300)


def draw(figure, versions: dict[str, torch.Tensor], rate: int):
    panels = figure.subplots(len(versions), 1, sharex=True)
    for axes, (title, signal) in zip(panels, versions.items()):
        image = axes.imshow(
            spectrogram(signal).cpu(),
            origin="lower",
            aspect="auto",
            extent=(0, len(signal) / rate, 0, rate / 2),
            vmin=-60,
            vmax=40,
            cmap="magma",
        )
        axes.axhline(CUTOFF, color="white", linewidth=0.8, linestyle="--")
        axes.set_title(title, fontsize=12)
        axes.set_ylabel("Hz", fontsize=10)
    panels[-1].set_xlabel("seconds", fontsize=10)
    figure.colorbar(image, ax=list(panels), label="dB")


def check(report, name: str, signal: torch.Tensor, taps: torch.Tensor, rate: int) -> torch.Tensor:
    """Returns the filtered signal, after checks that it equals the definition and keeps only low frequencies."""
    found = filtered(signal[None], taps.float())[0]
    exact = by_definition(signal[None].double(), taps.float().double())[0]
    error = ((found - exact).abs().max() / exact.abs().max()).item()
    half = TRANSITION * rate / len(taps) / 2
    kept = energy(found, rate, 0, CUTOFF - half) - energy(signal, rate, 0, CUTOFF - half)
    left = energy(found, rate, CUTOFF + half) - energy(signal, rate, CUTOFF + half)
    report.note(
        f"{name}: largest error {error:.1e} of the largest value; {kept:+.2f} dB below {CUTOFF - half:.0f} Hz,"
        f" {left:+.1f} dB above {CUTOFF + half:.0f} Hz"
    )
    assert error < TOLERANCE and abs(kept) < 0.1 and left < -STOPPED_DB
    return found


def run(report):
    signal, rate = load(report.device)
    versions = {f"recording, {len(signal) / rate:.1f} s at {rate} Hz": signal}
    for count in TAPS:
        name = f"low-pass of 2^{count.bit_length() - 1} taps at {CUTOFF:.0f} Hz"
        versions[name] = check(report, name, signal, low_pass(count, CUTOFF, rate, report.device), rate)

    few = low_pass(TAPS[0], CUTOFF, rate, report.device)
    start, short = signal[:STREAMED], few.float()
    at_once = torch_ops.causal_conv1d(start[None], short.flip(0)[None])[0]
    one_by_one = streamed(start, short)
    torch.testing.assert_close(one_by_one, at_once, rtol=0, atol=TOLERANCE)
    late = (len(short) - 1) / 2 / rate
    report.note(
        f"one sample at a time: the same {STREAMED} samples as all at once, with a delay of {1e3 * late:.1f} ms"
    )

    for dtype in (torch.float32, torch.float16):
        operands = (signal[None].to(dtype), few.to(dtype))
        report.compare("convolve", filtered, with_conv1d, by_definition, *operands)
    figure = Figure(figsize=(11, 10), layout="constrained")
    draw(figure, versions, rate)
    path = report.folder / "filtering.png"
    figure.savefig(path, dpi=90)
    report.wrote(path)
    path = report.folder / "filtering.wav"
    save(path, versions[name], rate)
    report.wrote(path)
