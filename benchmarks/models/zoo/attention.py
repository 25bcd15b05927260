"""A ViT and a GPT of transformers: matrix products and attention, in which there is nothing to gain and nothing may be lost."""

import torch
from torch.nn import functional as F

from benchmarks.models.zoo import Model, Part, Task


def vit(tiny: bool) -> Task:
    """Dosovitskiy et al., arXiv:2010.11929, size "small" of Touvron et al., arXiv:2012.12877."""
    from transformers import ViTConfig, ViTModel

    width, heads, layers, size, batch = (16, 2, 1, 32, 2) if tiny else (384, 6, 12, 224, 64)
    config = ViTConfig(
        hidden_size=width,
        num_attention_heads=heads,
        num_hidden_layers=layers,
        intermediate_size=4 * width,
        image_size=size,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return Task(Part(ViTModel(config, add_pooling_layer=False)), (torch.randn(batch, 3, size, size),))


def next_token(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def gpt(tiny: bool) -> Task:
    """Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), the smallest size."""
    from transformers import GPT2Config, GPT2LMHeadModel

    words, length, batch = (100, 16, 2) if tiny else (50257, 1024, 8)
    sizes = {"n_embd": 16, "n_head": 2, "n_layer": 1} if tiny else {}
    sizes |= {"vocab_size": words, "n_positions": length, "bos_token_id": None, "eos_token_id": None}
    config = GPT2Config(**sizes, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, use_cache=False)
    tokens = torch.randint(0, words, (batch, length))
    return Task(Part(GPT2LMHeadModel(config), "logits"), (tokens,), (tokens,), next_token)


MODELS = [
    Model("vit", "ViT-S", "batch 64 x 224 x 224", vit, "transformers"),
    Model("gpt", "GPT-2", "124M, batch 8 x 1024", gpt, "transformers"),
]
