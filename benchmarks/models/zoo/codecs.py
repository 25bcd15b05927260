"""Generators of waveforms: transposed and dilated convolutions. WaveNet is a plain module, the others come from transformers."""

import functools

import torch
from torch import nn

from benchmarks.models.zoo import Model, Task


def hifigan(tiny: bool, frames: int = 32) -> Task:
    """The generator of Kong, Kim and Bae, arXiv:2010.05646, size V1 as in SpeechT5: 256 samples a frame. It trains on 32 frames."""
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    sizes = {"upsample_initial_channel": 32, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4]} if tiny else {}
    config = SpeechT5HifiGanConfig(**sizes)
    return Task(SpeechT5HifiGan(config), (torch.randn(*((2, 8) if tiny else (16, frames)), config.model_in_dim),))


class Autoencoder(nn.Module):
    """The encoder and the decoder of a codec. The quantizer between them is left out: its choice of codes has no gradient."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, waveforms: torch.Tensor) -> torch.Tensor:
        # [batch, 1, samples] to about as many samples
        return self.decoder(self.encoder(waveforms))


def encodec(tiny: bool, seconds: int = 1) -> Task:
    """Défossez et al., arXiv:2210.13438, the model of 24 kHz: strided convolutions and an LSTM."""
    from transformers import EncodecConfig, EncodecModel

    sizes = {"num_filters": 4, "upsampling_ratios": [4, 2], "hidden_size": 16, "codebook_dim": 16} if tiny else {}
    model = EncodecModel(EncodecConfig(**sizes))
    return Task(Autoencoder(model), (torch.randn(2, 1, 64) if tiny else torch.randn(16, 1, 24_000 * seconds),))


def dac(tiny: bool) -> Task:
    """Kumar et al., arXiv:2306.06546, the model of 16 kHz with its weight norm: strided and dilated convolutions, and snakes."""
    from transformers import DacConfig, DacModel

    sizes = {"encoder_hidden_size": 4, "decoder_hidden_size": 16, "downsampling_ratios": [2, 4]} if tiny else {}
    model = DacModel(DacConfig(**sizes))
    model.apply_weight_norm()
    return Task(Autoencoder(model), (torch.randn(2, 1, 64) if tiny else torch.randn(8, 1, 16_000),))


class WaveNet(nn.Module):
    """Van den Oord et al., arXiv:1609.03499, not causal, as Rethage, Pons and Serra use it, arXiv:1706.07162.

    Dilations double from layer to layer, and begin again at 1 after ``cycle`` layers.
    """

    def __init__(self, width: int, layers: int, cycle: int):
        super().__init__()
        self.first = nn.Conv1d(1, width, 3, padding=1)
        dilations = [1 << layer % cycle for layer in range(layers)]
        self.dilated = nn.ModuleList(nn.Conv1d(width, 2 * width, 3, padding=d, dilation=d) for d in dilations)
        self.mixed = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in dilations)
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, 1, 1))

    def forward(self, waveforms: torch.Tensor) -> torch.Tensor:
        # [batch, 1, samples] to [batch, 1, samples]
        x, skipped = self.first(waveforms), []
        for dilated, mixed in zip(self.dilated, self.mixed):
            signal, gate = dilated(x).chunk(2, dim=1)
            residual, skip = mixed(signal.tanh() * gate.sigmoid()).chunk(2, dim=1)
            x = x + residual
            skipped.append(skip)
        return self.last(sum(skipped))


def wavenet(tiny: bool) -> Task:
    return (
        Task(WaveNet(8, 4, 2), (torch.randn(2, 1, 32),))
        if tiny
        else Task(WaveNet(64, 30, 10), (torch.randn(4, 1, 16_000),))
    )


def _encodec(name: str, title: str, seconds: int) -> Model:
    return Model(
        name,
        title,
        f"24 kHz without quantizer, batch 16 x {seconds} s",
        functools.partial(encodec, seconds=seconds),
        "transformers",
        signals=True,
        not_compiled="its padding depends on values of tensors, so every convolution ends a graph",
    )


MODELS = [
    Model("hifigan", "HiFi-GAN generator", "V1, batch 16 x 32 frames", hifigan, "transformers", signals=True),
    Model(
        "hifigan-long",
        "HiFi-GAN generator, sentences",
        "V1, batch 16 x 400 frames",
        functools.partial(hifigan, frames=400),
        "transformers",
        signals=True,
    ),
    _encodec("encodec", "EnCodec", seconds=1),
    _encodec("encodec-long", "EnCodec, sentences", seconds=8),
    Model("dac", "DAC", "16 kHz without quantizer, batch 8 x 1 s", dac, "transformers", signals=True),
    Model("wavenet", "WaveNet", "30 layers of 64, batch 4 x 1 s", wavenet, signals=True),
]
