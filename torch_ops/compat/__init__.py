"""Drop-ins for packages that models import by name, and a faster PyTorch Geometric.

=======================================  =====================================================
module                                   stands in for
=======================================  =====================================================
:mod:`torch_ops.compat.causal_conv1d`    ``causal_conv1d`` (github.com/Dao-AILab/causal-conv1d)
:mod:`torch_ops.compat.mamba_ssm`        ``mamba_ssm`` (github.com/state-spaces/mamba)
:mod:`torch_ops.compat.torch_geometric`  functions and layers of the installed ``torch_geometric``
:mod:`torch_ops.compat.torch_scatter`    ``torch_scatter`` (github.com/rusty1s/pytorch_scatter)
=======================================  =====================================================

:func:`install` makes ``import causal_conv1d`` find the drop-in, so that models use it without a change.
``install("torch_geometric")`` lets the layers of PyTorch Geometric compute with gpuopt.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch_ops._deprecated import takes_old_calls
from torch_ops.compat import _finder
from torch_ops.compat import causal_conv1d as causal_conv1d
from torch_ops.compat import causal_conv1d_functions as causal_conv1d_functions
from torch_ops.compat import mamba_ssm as mamba_ssm
from torch_ops.compat import torch_geometric as torch_geometric
from torch_ops.compat import torch_scatter as torch_scatter
from torch_ops.compat._finder import Package

__all__ = ["PACKAGES", "PATCHES", "install", "uninstall"]

#: The packages that have a drop-in. Each has the version of the interface, and the module behind each name.
PACKAGES = {
    "causal_conv1d": Package(
        version="1.6.1",
        modules={
            "causal_conv1d": causal_conv1d.__name__,
            "causal_conv1d.causal_conv1d_interface": causal_conv1d.__name__,
            "causal_conv1d.causal_conv1d_varlen": causal_conv1d.__name__,
            "causal_conv1d.cpp_functions": causal_conv1d_functions.__name__,
        },
    ),
    "mamba_ssm": Package(
        version="1.2.2",
        modules={
            "mamba_ssm": mamba_ssm.__name__,
            "mamba_ssm.ops.selective_scan_interface": mamba_ssm.__name__,
            "mamba_ssm.ops.triton.selective_state_update": mamba_ssm.__name__,
        },
    ),
    "torch_scatter": Package(
        version="2.1.2",
        modules={
            "torch_scatter": torch_scatter.__name__,
            "torch_scatter.composite": f"{torch_scatter.__name__}.composite",
            "torch_scatter.scatter": f"{torch_scatter.__name__}._scatter",
            "torch_scatter.segment_coo": f"{torch_scatter.__name__}._segment",
            "torch_scatter.segment_csr": f"{torch_scatter.__name__}._segment",
            "torch_scatter.testing": f"{torch_scatter.__name__}.testing",
            "torch_scatter.utils": f"{torch_scatter.__name__}.utils",
        },
    ),
}

#: The installed packages whose functions are replaced, only on request. Each has the module that does it.
PATCHES = {"torch_geometric": torch_geometric}


def _known(names: str | Iterable[str] | None) -> list[str]:
    if not isinstance(names, str | Iterable | None):
        raise TypeError(f"torch_ops.compat: names must be names of packages, got {type(names).__name__}")
    wanted = list(PACKAGES) if names is None else [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in PACKAGES and name not in PATCHES:
            known = ", ".join([*PACKAGES, *PATCHES])
            raise ValueError(f"torch_ops.compat: names must be among {known}, got {name!r}")
    return wanted


@takes_old_calls("names force")
def install(names: str | Iterable[str] | None = None, *, force: bool = False) -> list[str]:
    """Makes ``import <name>`` find the drop-in of a package that is not installed.

    ``importlib.util.find_spec``, ``importlib.metadata.version`` and the package's ``__version__`` answer as for an installed
    package. Call this before the modules of a model are imported, because libraries such as transformers look for the package at
    that time.

    Args:
        names: names of packages, a key of :data:`PACKAGES` or several. None means all of these. ``"torch_geometric"`` is imported
            and its functions and methods are replaced, which is done by name only.
        force: whether the drop-in also hides a package that is installed, which helps if that package cannot be imported. Objects
            that other modules have already imported from it stay.

    Returns:
        The names that now lead to a drop-in. A package that is installed is left alone without ``force``, and its name is missing.

    Raises:
        TypeError: ``names`` is no name.
        ValueError: a name has no drop-in.
        ModuleNotFoundError: ``names`` has ``"torch_geometric"``, which is not installed.
    """
    wanted = _known(names)
    for name in wanted:
        if name in PATCHES:
            PATCHES[name].install()
    return [name for name in wanted if name in PATCHES or _finder.add(name, PACKAGES[name], force)]


def uninstall(names: str | Iterable[str] | None = None) -> None:
    """Undoes :func:`install`: imports find what they found before. Objects that were imported from a drop-in stay usable.

    Args:
        names: as for :func:`install`, but None includes ``"torch_geometric"``. A name that is not installed is ignored.

    Raises:
        ValueError: a name has no drop-in.
    """
    for name in [*PACKAGES, *PATCHES] if names is None else _known(names):
        if name in PATCHES:
            PATCHES[name].uninstall()
        else:
            _finder.remove(name)
