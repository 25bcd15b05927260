"""The operators of the dispatcher, ``torch.ops.gpuopt``, with types that editors know.

``torch_ops.ops.mul`` is ``torch.ops.gpuopt.mul``. The stub beside this file is written by ``python -m tools.stubs``.
"""

import torch
from torch._ops import OpOverloadPacket


def __getattr__(name: str) -> OpOverloadPacket:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(torch.ops.gpuopt, name)


def __dir__() -> list[str]:
    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    return sorted(name.removeprefix("gpuopt::") for name in names if name.startswith("gpuopt::") and "::_" not in name)
