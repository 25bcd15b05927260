"""State-space models of transformers, in plain PyTorch: the packages with their own kernels are not installed."""

import torch

from benchmarks.models.zoo import Model, Part, Task


def tokens(vocabulary: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, vocabulary, shape)


def mamba(tiny: bool) -> Task:
    """Gu and Dao, arXiv:2312.00752. Eagerly, the scan is a loop over the positions; compiled, it is an associative scan."""
    from transformers import MambaConfig, MambaModel

    width, layers, batch, length = (16, 1, 2, 8) if tiny else (768, 2, 4, 128)
    config = MambaConfig(
        vocab_size=256, hidden_size=width, num_hidden_layers=layers, state_size=4 if tiny else 16, use_cache=False
    )
    return Task(Part(MambaModel(config)), (tokens(256, batch, length),))


def mamba2(tiny: bool) -> Task:
    """Dao and Gu, arXiv:2405.21060. The scan is a product of matrices within chunks."""
    from transformers import Mamba2Config, Mamba2Model

    width, layers, batch, length = (16, 1, 2, 16) if tiny else (768, 4, 8, 1024)
    config = Mamba2Config(
        vocab_size=256,
        hidden_size=width,
        num_hidden_layers=layers,
        head_dim=8 if tiny else 64,
        num_heads=4 if tiny else 24,
        state_size=8 if tiny else 64,
        n_groups=1,
        chunk_size=8 if tiny else 64,
        use_cache=False,
    )
    return Task(Part(Mamba2Model(config)), (tokens(256, batch, length),))


MODELS = [
    Model("mamba", "Mamba", "2 layers of 768, batch 4 x 128", mamba, "transformers"),
    Model("mamba2", "Mamba-2", "4 layers of 768, 24 heads, batch 8 x 1024", mamba2, "transformers"),
]
