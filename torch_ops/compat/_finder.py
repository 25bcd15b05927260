"""Lets the import system find drop-ins under the names of the packages that they stand in for.

A finder on ``sys.meta_path`` answers for these names, and ``importlib.metadata`` asks the same finder for their versions (see
"Extending the search algorithm" in the documentation of importlib.metadata). Finders are asked in order. A drop-in for a missing
package stands behind all others, so that a package that is installed later wins. A forced one stands in front.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


@dataclasses.dataclass(frozen=True)
class Package:
    """A package that a drop-in stands in for."""

    version: str  # of the interface that the drop-in follows
    modules: Mapping[str, str]  # full name of a module: name of the module that has its contents

    def source_of(self, fullname: str) -> str | None:
        """The module that has the contents of a module, which is empty for a folder that only holds others. None if unknown."""
        return self.modules.get(fullname, "" if self.holds(fullname) else None)

    def functions(self) -> list[str]:
        """The names of all functions, whichever module they are in."""
        sources = map(importlib.import_module, set(self.modules.values()))
        return sorted({name for source in sources for name in source.__all__})

    def holds(self, fullname: str) -> bool:
        """Whether a module is a folder of others."""
        return any(module.startswith(f"{fullname}.") for module in self.modules)


class _Distribution(importlib.metadata.Distribution):
    """The metadata of a drop-in, as if it were installed."""

    def __init__(self, name: str, package: Package) -> None:
        self._files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {package.version}\n",
            "top_level.txt": f"{name}\n",
        }

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{path}: a drop-in has no files of its own")


class _Alias(Loader):
    """Fills a new module with the public names of another one. A package imports its modules, as the original does.

    The module is not the other one itself: its ``__spec__`` must have the name under which it is imported.
    """

    def __init__(self, source: str, package: Package) -> None:
        self._source, self._package = source, package

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        module.__version__ = self._package.version
        module.__getattr__ = functools.partial(_no_attribute, module.__name__, self._package)
        for name in self._package.modules:
            if name.startswith(f"{module.__name__}."):
                importlib.import_module(name)
        # A function may have the name of the module that it is from, as torch_scatter.scatter has.
        if self._source:
            source = importlib.import_module(self._source)
            module.__doc__, module.__file__, module.__all__ = source.__doc__, source.__file__, list(source.__all__)
            for name in module.__all__:
                setattr(module, name, getattr(source, name))


class _Finder(MetaPathFinder):
    """Finds the modules and the metadata of one drop-in."""

    def __init__(self, name: str, package: Package) -> None:
        self._name, self._package = name, package
        self.hidden: dict[str, ModuleType] = {}  # modules of an installed package that were imported before

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        source = self._package.source_of(fullname)
        if source is None:
            if fullname.startswith(f"{self._name}.") and _is_alias(sys.modules.get(self._name)):
                raise ModuleNotFoundError(_lacks(fullname, self._package))
            return None
        is_package = fullname == self._name or self._package.holds(fullname)
        return ModuleSpec(fullname, _Alias(source, self._package), origin=source or None, is_package=is_package)

    def find_distributions(self, context: object = None) -> Iterable[importlib.metadata.Distribution]:
        wanted = getattr(context, "name", None)
        if wanted is None or _normalized(wanted) == _normalized(self._name):
            yield _Distribution(self._name, self._package)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _lacks(fullname: str, package: Package) -> str:
    name = fullname.partition(".")[0]
    return (
        f"{fullname} is not in gpuopt's drop-in for {name}: expected one of its functions {', '.join(package.functions())};"
        f" install {name} itself for its modules and other kernels"
    )


def _no_attribute(module: str, package: Package, name: str) -> None:
    raise AttributeError(_lacks(f"{module}.{name}", package), name=name)


def _is_alias(module: ModuleType | None) -> bool:
    return isinstance(getattr(getattr(module, "__spec__", None), "loader", None), _Alias)


def _modules_of(name: str) -> list[str]:
    return [module for module in sys.modules if module == name or module.startswith(f"{name}.")]


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # a module without __spec__ was put into sys.modules
        return True


_finders: dict[str, _Finder] = {}


def add(name: str, package: Package, force: bool) -> bool:
    """Whether imports of ``name`` lead to the drop-in afterwards."""
    if name in _finders:
        if not force or sys.meta_path[0] is _finders[name]:
            return True
        remove(name)
    if not force and _is_installed(name):
        return False
    finder = _finders[name] = _Finder(name, package)
    finder.hidden = {module: sys.modules.pop(module) for module in _modules_of(name)}
    sys.meta_path.insert(0 if force else len(sys.meta_path), finder)
    return True


def remove(name: str) -> None:
    finder = _finders.pop(name, None)
    if finder is None:
        return
    sys.meta_path.remove(finder)
    for module in _modules_of(name):
        # An installed package may have been imported since, in front of a finder that is not forced.
        if _is_alias(sys.modules[module]):
            del sys.modules[module]
    sys.modules.update(finder.hidden)
