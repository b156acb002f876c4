"""Finding the frozen beginning of a model by watching one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from seamline.frameworks.torch.frozen.ambient import Ambient
from seamline.frameworks.torch.frozen.call import Shape, some_rows
from seamline.frameworks.torch.frozen.check import cut_differs, objection, varies
from seamline.frameworks.torch.frozen.site import Site, Whole
from seamline.frameworks.torch.frozen.split import Split
from seamline.frameworks.torch.frozen.trace import CannotTraceError

ROWS_TRIED, FEWEST_ROWS = 4, 8


@dataclass
class Visit:
    """One call of one module, with the places in the batch that its tensors come from."""

    name: str
    module: nn.Module
    call: Shape
    inputs: list[torch.Tensor]
    sources: list[int | None]
    ambient: Ambient

    @property
    def frozen(self) -> int:
        """How many parameters a cut in this module can have before it, at most."""
        return sum(parameter.numel() for parameter in self.module.parameters() if not parameter.requires_grad)

    @property
    def direct(self) -> bool:
        """Whether all its tensors are the batch's own."""
        return None not in self.sources


@dataclass(frozen=True)
class Found:
    """A place to cut, and the call that showed it."""

    visit: Visit
    site: Site
    parameters: int
    feature_bytes: int

    @property
    def rank(self) -> tuple[int, int, bool]:
        """What is better comes first when sorted."""
        return -self.parameters, self.feature_bytes, isinstance(self.site, Split)


def find(model: nn.Module, batch: Any, run: Callable[[Any], Any]) -> tuple[Found | None, str]:
    """The best place to cut, after a check that nothing is different there; or the reason why there is none."""
    for direct in (True, False):
        visits = watch_call(model, batch, run, direct=direct)
        try:
            found, reason = best_place(visits)
            if found is not None:
                problem = _problem(found)
                return (found, "") if problem is None else (None, problem)
        except Exception as error:  # a model that nobody has thought of trains in the plain way
            return None, f"looking at it failed with {type(error).__name__}: {error}"
    return None, reason


def _problem(found: Found) -> str | None:
    site, called = found.site, found.visit.name
    few = some_rows(found.visit.inputs, ROWS_TRIED)
    with found.visit.ambient.again():
        return objection(site, called) or varies(site, few, called) or cut_differs(site, few, called)


def watch_call(model: nn.Module, batch: Any, run: Callable[[Any], Any], *, direct: bool) -> list[Visit]:
    """Every module that ``run`` calls exactly once with tensors that need no gradient.

    ``direct`` are those that get the batch's own tensors; of the inputs of others, only some rows are kept.
    """
    places = {id(leaf): n for n, leaf in enumerate(pytree.tree_leaves(batch)) if isinstance(leaf, torch.Tensor)}
    visits: dict[nn.Module, Visit] = {}
    candidates = {
        name: not any(parameter.requires_grad for parameter in module.parameters())
        for name, module in model.named_modules()
        if any(not parameter.requires_grad for parameter in module.parameters())
    }
    times: dict[str, int] = {}
    covered: set[str] = set()
    """Modules that are frozen as a whole; what they call need not be remembered."""

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            times[name] = times.get(name, 0) + 1
            if times[name] > 1:
                visits.pop(module, None)
                return
            if name not in candidates or any(outer in covered for outer in outer_names(name)):
                return
            if candidates[name]:
                covered.add(name)
            call = Shape.of((args, kwargs))
            inputs = call.tensors((args, kwargs)) or []
            device = inputs[0].device.type if inputs else "cpu"
            sources = [places.get(id(tensor)) for tensor in inputs]
            if not direct:
                inputs = [tensor.detach().clone() for tensor in some_rows(inputs, FEWEST_ROWS)] if inputs else []
            needs_gradient = any(tensor.requires_grad for tensor in call.tensors((args, kwargs)) or [])
            if inputs and not needs_gradient and (None not in sources or not direct):
                visits[module] = Visit(name, module, call, inputs, sources, Ambient.now(device))

        return hook

    handles = [
        module.register_forward_pre_hook(note(name), with_kwargs=True)
        for name, module in model.named_modules()
        if not isinstance(module, torch.jit.ScriptModule)
    ]
    try:
        run(batch)
    finally:
        for handle in handles:
            handle.remove()
    return list(visits.values())


def outer_names(name: str) -> list[str]:
    """The names of the modules around one, the model's own first."""
    parts = name.split(".")
    return ["", *(".".join(parts[:length]) for length in range(1, len(parts)))] if name else []


def best_place(visits: list[Visit]) -> tuple[Found | None, str]:
    """The place with the most frozen parameters before it; or a reason why there is none."""
    reason = "no module with frozen parameters is called once with tensors that need no gradient"
    best: Found | None = None
    for visit in sorted(visits, key=lambda visit: -visit.frozen):
        if best is not None and visit.frozen < best.parameters:
            break
        try:
            found = _tried(visit)
        except CannotTraceError as problem:
            reason = f"{visit.name or 'the model'} cannot be cut: {problem}"
        else:
            best = min(filter(None, (best, found)), key=lambda place: place.rank, default=None)
    return best, reason


def _tried(visit: Visit) -> Found | None:
    if visit.call.strange is not None:
        raise CannotTraceError(f"it is called with a {visit.call.strange}")
    make = Split if any(parameter.requires_grad for parameter in visit.module.parameters()) else Whole
    with visit.ambient.again(), torch.no_grad():
        site: Site = make(visit.module, visit.call, some_rows(visit.inputs, ROWS_TRIED))
    parameters = sum(t.numel() for t in site.own_tensors().values() if isinstance(t, nn.Parameter))
    size = sum(feature.nbytes for feature in site.example)
    return Found(visit, site, parameters, size) if parameters else None
