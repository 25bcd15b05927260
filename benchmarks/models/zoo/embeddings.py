"""Models whose time goes into embedding tables: nn.Embedding with dense gradients."""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.models.zoo import Model, Task

# The number of values of each categorical feature of the Criteo Kaggle data set. The benchmark limits them to MOST_ROWS.
CRITEO = (
    1460,
    583,
    10131227,
    2202608,
    305,
    24,
    12517,
    633,
    3,
    93145,
    5683,
    8351593,
    3194,
    27,
    14992,
    5461306,
    10,
    5652,
    2173,
)
CRITEO += (4, 7046547, 18, 15, 286181, 105, 142572)
MOST_ROWS, NUMBERS = 100_000, 13


def zipf(rows: int, *shape: int) -> torch.Tensor:
    """Random rows, int64. The k-th has a probability of about 1/k, as words and categories have."""
    return ((rows + 1) ** torch.rand(shape, dtype=torch.float64)).long().sub_(1).clamp_(0, rows - 1)


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n, m in zip(widths, widths[1:]):
        layers += [nn.Linear(n, m), nn.ReLU()]
    return nn.Sequential(*layers)


class DLRM(nn.Module):
    """Naumov et al., arXiv:1906.00091; code: github.com/facebookresearch/dlrm, dlrm_s_pytorch.py.

    Numbers go through an MLP, categories through embedding tables. The dot products of all pairs of these vectors, with the vector of
    the numbers, go through a second MLP.
    """

    def __init__(self, tables: list[int], width: int, bottom: list[int], top: list[int]):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in tables)
        self.bottom = mlp(NUMBERS, *bottom, width)
        vectors = len(tables) + 1
        first, second = torch.tril_indices(vectors, vectors, offset=-1)
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("second", second, persistent=False)
        self.top = nn.Sequential(mlp(width + len(first), *top), nn.Linear(top[-1], 1))

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        # numbers [batch, NUMBERS], categories [tables, batch]; the result is [batch].
        dense = self.bottom(numbers)
        vectors = torch.stack([dense, *(table(rows) for table, rows in zip(self.tables, categories))], dim=1)
        pairs = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.first, self.second]
        return self.top(torch.cat([dense, pairs], dim=1)).squeeze(1)


def dlrm(tiny: bool) -> Task:
    tables = [8, 20, 3] if tiny else [min(rows, MOST_ROWS) for rows in CRITEO]
    batch, width, bottom, top = (16, 8, [16], [16]) if tiny else (16384, 64, [512, 256], [512, 256])
    model = DLRM(tables, width, bottom, top)
    categories = torch.stack([zipf(rows, batch) for rows in tables])
    clicks = torch.randint(0, 2, (batch,)).float()
    return Task(model, (torch.randn(batch, NUMBERS), categories), (clicks,), F.binary_cross_entropy_with_logits)


class SkipGram(nn.Module):
    """Skip-gram with negative sampling: Mikolov et al., arXiv:1310.4546; code: word2vec.c, code.google.com/archive/p/word2vec.

    The result is a score for each pair of a word and another: a word of its context, or one that was drawn at random.
    """

    def __init__(self, words: int, width: int):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.contexts = nn.Embedding(words, width)

    def forward(self, words: torch.Tensor, contexts: torch.Tensor) -> torch.Tensor:
        # words [batch], contexts [batch, 1 + negatives]; the result is [batch, 1 + negatives].
        return (self.words(words)[:, None] * self.contexts(contexts)).sum(-1)


def word2vec(tiny: bool) -> Task:
    words, width, batch, negatives = (50, 8, 16, 5) if tiny else (50_000, 256, 16384, 5)
    wanted = torch.zeros(batch, 1 + negatives)
    wanted[:, 0] = 1
    inputs = (zipf(words, batch), zipf(words, batch, 1 + negatives))
    return Task(SkipGram(words, width), inputs, (wanted,), F.binary_cross_entropy_with_logits)


MODELS = [
    Model("dlrm", "DLRM", f"26 tables of at most {MOST_ROWS // 1000}k rows of 64, batch 16384 (Zipf)", dlrm),
    Model("word2vec", "word2vec", "50k words of 256, batch 16384, 5 negatives (Zipf)", word2vec),
]
