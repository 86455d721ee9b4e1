"""Public names that are imported when they are first used.

Models need torch and tables need polars, which take seconds to import; the command needs neither
to print its help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def attach(
    package: str, names: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package whose names live in its modules.

    ``names`` maps a module below ``package`` to the names it provides, ``modules`` are modules
    that are public themselves.
    """
    module_of = {name: module for module, provided in names.items() for name in provided}

    def get(name: str) -> Any:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def list_names() -> list[str]:
        return sorted({*module_of, *modules})

    return get, list_names
