"""Exchanges modules of torch.nn for their counterparts in torch_ops.nn, and back."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import torch
from torch.nn.utils.parametrize import is_parametrized

from torch_ops import nn
from torch_ops._deprecated import takes_old_calls
from torch_ops.layout import modules
from torch_ops.layout.trial import FirstCall, choose_layouts

__all__ = ["convert"]

Model = TypeVar("Model", bound=torch.nn.Module)

_COUNTERPARTS: dict[type, type] = {
    torch.nn.Conv1d: nn.Conv1d,
    torch.nn.ConvTranspose1d: nn.ConvTranspose1d,
    torch.nn.LayerNorm: nn.LayerNorm,
    torch.nn.RMSNorm: nn.RMSNorm,
    torch.nn.Upsample: nn.Upsample,
}
_CHANNELS_LAST: dict[type, type] = {
    **_COUNTERPARTS,
    torch.nn.Conv1d: modules.Conv1d,
    nn.Conv1d: modules.Conv1d,
    torch.nn.ConvTranspose1d: modules.ConvTranspose1d,
    nn.ConvTranspose1d: modules.ConvTranspose1d,
}
_ORIGINALS: dict[type, type] = {
    nn.Conv1d: torch.nn.Conv1d,
    nn.ConvTranspose1d: torch.nn.ConvTranspose1d,
    modules.Conv1d: torch.nn.Conv1d,
    modules.ConvTranspose1d: torch.nn.ConvTranspose1d,
    nn.LayerNorm: torch.nn.LayerNorm,
    nn.RMSNorm: torch.nn.RMSNorm,
    nn.Upsample: torch.nn.Upsample,
    nn.UpsampleNearest2d: torch.nn.Upsample,
}
_NEAREST = ("nearest", "nearest-exact")


@takes_old_calls("model reverse layout store_weights example")
def convert(
    model: Model,
    *,
    reverse: bool = False,
    layout: Literal["channels_last"] | None = None,
    store_weights: bool = False,
    example: tuple[Any, ...] | list[Any] | dict[str, Any] | None = None,
) -> Model:
    """Makes the modules of a model compute with gpuopt, in place.

    ======================================  ===========================================================
    module                                  becomes
    ======================================  ===========================================================
    :class:`torch.nn.Conv1d`                :class:`torch_ops.nn.Conv1d`
    :class:`torch.nn.ConvTranspose1d`       :class:`torch_ops.nn.ConvTranspose1d`
    :class:`torch.nn.LayerNorm`             :class:`torch_ops.nn.LayerNorm`
    :class:`torch.nn.RMSNorm`               :class:`torch_ops.nn.RMSNorm`
    :class:`torch.nn.Upsample`, if its      :class:`torch_ops.nn.Upsample`, which leaves inputs that
    mode is nearest or nearest-exact        are not 4-D to PyTorch
    ======================================  ===========================================================

    Subclasses of these are left alone, because they may override anything. The exceptions are the classes that
    :mod:`torch.nn.utils.parametrize` makes (weight norm, spectral norm).

    Only the class of a module changes, and with ``layout`` the model gets a forward hook. Parameters, buffers, hooks, ``state_dict``,
    training flags and references to the module stay, so optimizers and wrappers such as DistributedDataParallel keep working. Convert
    before ``torch.compile``: a graph that was compiled before keeps its operators until ``torch.compiler.reset()``.

    Args:
        model: a module, with all modules below it.
        reverse: whether to go back from torch_ops.nn to torch.nn, for example before ``torch.jit.script``.
        layout: ``"channels_last"`` lets convolutions on CUDA compute channels last where that is faster. A few trial passes measure
            both layouts and fix the layout of each layer. Signals inside the model may then be channels last. Signals that calls of
            ``model`` return are contiguous. Convert the outermost module that you call.
        store_weights: with ``layout``, stores the weights (O, I, K) of layers that compute channels last as (O, K, I) in memory,
            which saves a copy in each call. The parameters are the same objects with other strides. Any other conversion
            makes them contiguous again. Do it before an optimizer's first step and before DistributedDataParallel: both keep
            tensors with the strides of before.
        example: with ``layout``, the arguments of a typical call: a tuple, or a dict of keyword arguments. The trial passes call the
            model with them. They compute gradients unless :func:`torch.no_grad` is on. Without an example, the arguments of the first
            call on a GPU are taken.

    Returns:
        ``model`` itself.

    Raises:
        TypeError: ``model`` is not a module, or ``example`` is a tensor.
        ValueError: ``layout`` is unknown, or given with ``reverse``. ``store_weights`` or ``example`` is given without ``layout``.
    """
    # Assigning __class__ keeps every object and its identity: Parameters that an optimizer holds, hooks with their handles,
    # modules that several parents share, and attributes that users have added. A new module would have to copy all of these, and
    # a root module could not be exchanged at all. The new classes need no attributes that their bases lack, so an instance of one
    # is a valid instance of the other.
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"convert: model must be a torch.nn.Module, got {type(model).__name__}")
    if layout not in (None, "channels_last"):
        raise ValueError(f"convert: layout must be known: expected 'channels_last' or None, got {layout!r}")
    if layout and reverse:
        raise ValueError("convert: layout must not be given with reverse: expected None, got 'channels_last'")
    for name, is_given in (("store_weights", store_weights), ("example", example is not None)):
        if is_given and not layout:
            raise ValueError(f"convert: {name} must be given with layout: expected layout='channels_last', got None")
    if not isinstance(example, tuple | list | dict | None):
        raise TypeError(
            f"convert: example must hold arguments: expected a tuple or a dict, got {type(example).__name__}"
        )
    classes = _ORIGINALS if reverse else _CHANNELS_LAST if layout else _COUNTERPARTS
    for module in model.modules():
        if layout or reverse:
            _forget_layout(module)
        module_class = type(module)
        base = module_class.__bases__[0] if is_parametrized(module) else module_class
        wanted = classes.get(base)
        if wanted is None or (base is torch.nn.Upsample and module.mode not in _NEAREST):
            continue
        module.__class__ = wanted if base is module_class else _on_top_of(wanted, module_class)
    if layout:
        # The first hook, so that a user's hooks see what is returned.
        model.register_forward_hook(modules.contiguous_outputs, prepend=True)
        if example is None:
            model.register_forward_pre_hook(FirstCall(store_weights), prepend=True, with_kwargs=True)
        else:
            args, kwargs = ((), example) if isinstance(example, dict) else (tuple(example), {})
            choose_layouts(model, args, kwargs, store_weights)
    return model


def _forget_layout(module: torch.nn.Module) -> None:
    """Removes all that a conversion with a layout has left in a module, but its class."""
    modules.store_weight(module, False)
    module.__dict__.pop("_layout", None)
    # Only the outermost module makes signals contiguous.
    for key, hook in list(module._forward_hooks.items()):
        if hook is modules.contiguous_outputs:
            del module._forward_hooks[key]
    FirstCall.remove(module)


def _on_top_of(base: type, parametrized: type) -> type:
    """The class that torch.nn.utils.parametrize made for one module, with another base.

    It is a new class, because copies of the module share the old one. Its properties look up parametrizations in the module.
    """
    members = {name: value for name, value in vars(parametrized).items() if name not in ("__dict__", "__weakref__")}
    return type(parametrized)(parametrized.__name__, (base,), members)
