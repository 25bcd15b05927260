"""Exchanges modules of torch.nn for their counterparts in torch_ops.nn, and chooses the layouts of convolutions."""

from torch_ops.layout.conversion import convert

__all__ = ["convert"]
