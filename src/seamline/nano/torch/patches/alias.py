"""A package that is found under another name."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Alias(MetaPathFinder, Loader):
    """Imports of ``name`` and what lies below it give other modules, the very same objects.

    ``targets`` says which: ``{"": "lightning.pytorch"}`` takes a whole package, ``{"transforms": …, "datasets": …}``
    makes a package of these parts. What is not there is not found, as in any package.
    """

    def __init__(self, name: str, targets: Mapping[str, str]) -> None:
        self.name = name
        self._targets = targets
        self._before: dict[str, ModuleType] = {}
        self._specs: dict[str, ModuleSpec | None] = {}

    def install(self) -> None:
        self._before = self._take_out()
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        sys.meta_path.remove(self)
        self._take_out()
        sys.modules.update(self._before)

    def _take_out(self) -> dict[str, ModuleType]:
        mine = [name for name in sys.modules if (name + ".").startswith(self.name + ".")]
        return {name: sys.modules.pop(name) for name in mine}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not (fullname + ".").startswith(self.name + "."):
            return None
        real = self._real(fullname)
        if real is None:
            return ModuleSpec(fullname, self, is_package=True) if fullname == self.name else None
        return ModuleSpec(fullname, self) if importlib.util.find_spec(real) is not None else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        real = self._real(spec.name)
        if real is None:
            return None
        module = importlib.import_module(real)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        alias = module.__spec__.name if module.__spec__ is not None else ""
        if alias in self._specs:
            module.__spec__ = self._specs.pop(alias)  # the import system has put the alias's there
            return
        for part in self._targets:
            setattr(module, part, importlib.import_module(f"{self.name}.{part}"))

    def _real(self, fullname: str) -> str | None:
        below = fullname[len(self.name) + 1 :]
        for part, real in self._targets.items():
            if not part or (below + ".").startswith(part + "."):
                rest = below[len(part) :].lstrip(".")
                return f"{real}.{rest}" if rest else real
        return None
