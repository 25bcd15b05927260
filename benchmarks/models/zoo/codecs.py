"""Generators of waveforms: transposed and dilated convolutions. Both come from transformers."""

import torch
from torch import nn

from benchmarks.models.zoo import Model, Task


def hifigan(tiny: bool) -> Task:
    """The generator of Kong, Kim and Bae, arXiv:2010.05646, size V1 as in SpeechT5: 256 samples a frame."""
    from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

    sizes = {"upsample_initial_channel": 32, "upsample_rates": [2, 2], "upsample_kernel_sizes": [4, 4]} if tiny else {}
    config = SpeechT5HifiGanConfig(**sizes)
    return Task(SpeechT5HifiGan(config), (torch.randn(*((2, 8) if tiny else (16, 32)), config.model_in_dim),))


class Autoencoder(nn.Module):
    """EnCodec's encoder and decoder. The quantizer between them is left out: its choice of codes has no gradient."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.encoder, self.decoder = model.encoder, model.decoder

    def forward(self, waveforms: torch.Tensor) -> torch.Tensor:
        # [batch, 1, samples], also the result where samples is a multiple of the stride.
        return self.decoder(self.encoder(waveforms))


def encodec(tiny: bool) -> Task:
    """Défossez et al., arXiv:2210.13438, the model of 24 kHz: strided convolutions and an LSTM."""
    from transformers import EncodecConfig, EncodecModel

    sizes = {"num_filters": 4, "upsampling_ratios": [4, 2], "hidden_size": 16, "codebook_dim": 16} if tiny else {}
    model = EncodecModel(EncodecConfig(**sizes))
    return Task(Autoencoder(model), (torch.randn(2, 1, 64) if tiny else torch.randn(16, 1, 24_000),))


MODELS = [
    Model("hifigan", "HiFi-GAN generator", "V1, batch 16 x 32 frames", hifigan, "transformers"),
    Model(
        "encodec",
        "EnCodec",
        "24 kHz without quantizer, batch 16 x 1 s",
        encodec,
        "transformers",
        not_compiled="its padding depends on values of tensors, so every convolution ends a graph",
    ),
]
