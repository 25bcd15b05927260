"""The cases of each room, a module ``<room>.py`` with a ``ROOM`` for each. They are found by their names."""

import importlib
import pkgutil

from benchmarks.harness.room import Room


def rooms() -> dict[str, Room]:
    """The room of every module of this package that has one, by room name."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {module.ROOM.name: module.ROOM for module in modules if hasattr(module, "ROOM")}
