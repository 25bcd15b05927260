"""Encoders of speech: convolutions over the waveform, then attention over frames. All come from transformers."""

import dataclasses

import torch

from benchmarks.models.zoo import Model, Part, Task

SECOND = 16_000  # samples
# The strided convolutions of wav2vec 2.0 in a tiny form: 40 samples per frame.
TINY_FRAMES = {"conv_dim": (8, 8), "conv_kernel": (10, 4), "conv_stride": (10, 4)}
NO_DROPOUT = dict.fromkeys(
    ("attention_dropout", "hidden_dropout", "activation_dropout", "feat_proj_dropout", "final_dropout", "layerdrop"),
    0.0,
)


def waveforms(tiny: bool) -> torch.Tensor:
    return torch.randn(2, 400) if tiny else torch.randn(8, 5 * SECOND)


def encoder(model: torch.nn.Module, tiny: bool) -> Task:
    """A model on waveforms [batch, samples]."""
    # By default it asks for the gradient of the waveforms, for checkpointing alone, which ends the graph of torch.compile.
    model.feature_extractor._requires_grad = False
    return Task(Part(model), (waveforms(tiny),))


def conformer(tiny: bool) -> Task:
    """Gulati et al., arXiv:2005.08100, with the frames of wav2vec 2.0: attention, and depthwise convolutions over the frames."""
    from transformers import Wav2Vec2ConformerConfig, Wav2Vec2ConformerModel

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32} | TINY_FRAMES
    if not tiny:
        sizes = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 8, "intermediate_size": 2048}
    config = Wav2Vec2ConformerConfig(
        **sizes, **NO_DROPOUT, conformer_conv_dropout=0.0, apply_spec_augment=False, num_conv_pos_embeddings=16
    )
    return encoder(Wav2Vec2ConformerModel(config), tiny)


def base(tiny: bool) -> dict:
    """Arguments of the configurations of wav2vec 2.0 and HuBERT, size "base"."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32} | TINY_FRAMES
    sizes |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2}
    return (sizes if tiny else {}) | NO_DROPOUT | {"apply_spec_augment": False}


def wav2vec2(tiny: bool) -> Task:
    """Baevski et al., arXiv:2006.11477, size "base"."""
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    return encoder(Wav2Vec2Model(Wav2Vec2Config(**base(tiny))), tiny)


def extractor(tiny: bool) -> Task:
    """The convolutions of wav2vec 2.0 alone, which make frames of waveforms."""
    task = wav2vec2(tiny)
    return dataclasses.replace(task, module=task.module.model.feature_extractor)


def hubert(tiny: bool) -> Task:
    """Hsu et al., arXiv:2106.07447, size "base"."""
    from transformers import HubertConfig, HubertModel

    return encoder(HubertModel(HubertConfig(**base(tiny))), tiny)


def whisper(tiny: bool) -> Task:
    """The encoder of Radford et al., arXiv:2212.04356, size "small", on 30 seconds of 80 mel bands."""
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    width, heads, layers, frames, batch = (16, 2, 1, 16, 2) if tiny else (768, 12, 12, 1500, 8)
    config = WhisperConfig(
        d_model=width,
        encoder_attention_heads=heads,
        encoder_layers=layers,
        encoder_ffn_dim=4 * width,
        max_source_positions=frames,
        dropout=0.0,
        attention_dropout=0.0,
        activation_dropout=0.0,
        encoder_layerdrop=0.0,
    )
    return Task(Part(WhisperEncoder(config)), (torch.randn(batch, config.num_mel_bins, 2 * frames),))


MODELS = [
    Model("conformer", "Conformer", "8 layers of 512, batch 8 x 5 s", conformer, "transformers", signals=True),
    Model("wav2vec2", "wav2vec 2.0 base", "batch 8 x 5 s", wav2vec2, "transformers", signals=True),
    Model("extractor", "wav2vec 2.0 extractor", "batch 8 x 5 s", extractor, "transformers", signals=True),
    Model("hubert", "HuBERT base", "batch 8 x 5 s", hubert, "transformers", signals=True),
    Model("whisper", "Whisper encoder", "small, batch 8 x 30 s", whisper, "transformers", signals=True),
]
