"""``import gpuopt`` is ``import torch_ops``: the same module, submodules included."""

import sys

import torch_ops  # noqa: F401  (puts the modules there that get a second name)

for _name, _module in list(sys.modules.items()):
    if _name == "torch_ops" or _name.startswith("torch_ops."):
        sys.modules[f"gpuopt{_name.removeprefix('torch_ops')}"] = _module
