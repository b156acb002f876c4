"""Transfer learning in somebody else's loop: the frozen beginning of a model made fast, and its features remembered."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader

from seamline.data.torch import KEPT_SETTINGS
from seamline.frameworks.torch.frozen import FrozenPart, repeatable
from seamline.frameworks.torch.frozen.folder import new_path
from seamline.nano.torch.training.peers import Peers

Caching = bool | Literal["auto"]


class FeatureLoader:
    """A loader's batches as they are, until a frozen part knows their features; then those."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._order = _Order()
        self._reading = listed(loader, self._order)
        self.part: FrozenPart | None = None
        self._last: tuple[Any, list[int]] | None = None
        """The batch that was given last, and the numbers of its rows."""

    def __iter__(self) -> Iterator[Any]:
        batches, load = self._drawn()
        if self.part is not None:
            yield from self.part.epoch(batches, load, self.load_rows)
            return
        items = load()
        for place, item in enumerate(items, start=1):
            self._last = item, batches[place - 1]
            yield item
            if (part := self._found()) is not None:  # with this batch
                yield from part.epoch(batches[place:], lambda: items, self.load_rows)
                return

    def _found(self) -> FrozenPart | None:
        return self.part

    def give(self, part: FrozenPart) -> None:
        """What the part remembers, from the batch at hand on."""
        self.part = part
        if self._last is not None:
            part.adopt(*self._last)

    def _drawn(self) -> tuple[list[list[int]], Callable[[], Iterator[Any]]]:
        """The rows of each batch of a pass, and how to read them, with the random numbers that the loader would draw.

        A loader draws a seed for its workers when it is started, and then its sampler draws the order.
        """
        before = self._random_state()
        torch.empty((), dtype=torch.int64).random_(generator=self._loader.generator)
        batches = [list(rows) for rows in self._loader.batch_sampler]  # type: ignore[union-attr]

        def load() -> Iterator[Any]:
            now = self._random_state()
            self._set_random_state(before)
            self._order[:] = batches
            items = iter(self._reading)
            self._set_random_state(now)
            return items

        return batches, load

    def load_rows(self, numbers: Sequence[int]) -> Any:
        """One batch of any rows."""
        dataset: Any = self._loader.dataset
        several = getattr(dataset, "__getitems__", None)
        rows = several(list(numbers)) if several else [dataset[number] for number in numbers]
        return self._loader.collate_fn(rows)

    def not_repeatable(self) -> str | None:
        """Why its rows are not the same each time, if they are not."""
        rows = range(min(4, self.rows))
        return repeatable(self._loader.dataset, self._loader.collate_fn, list(rows))

    @property
    def rows(self) -> int:
        return len(self._loader.dataset)  # type: ignore[arg-type]

    def _random_state(self) -> torch.Tensor:
        generator = self._loader.generator
        return torch.get_rng_state() if generator is None else generator.get_state()

    def _set_random_state(self, state: torch.Tensor) -> None:
        generator = self._loader.generator
        if generator is None:
            torch.set_rng_state(state)
        else:
            generator.set_state(state)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)


class _Order(list[list[int]]):
    """A batch sampler that is filled anew for each pass, so that the loader's workers can stay."""


def listed(loader: DataLoader[Any], batches: Any) -> DataLoader[Any]:
    """The same loader over other batches."""
    context = loader.multiprocessing_context
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        return DataLoader(
            loader.dataset,
            batch_sampler=batches,
            multiprocessing_context=context.get_start_method() if context is not None else None,
            persistent_workers=loader.persistent_workers,
            generator=loader.generator,
            **{name: getattr(loader, name) for name in KEPT_SETTINGS},
        )


def can_remember(loader: object) -> bool:
    """Whether a loader's rows have numbers, and an order that ends."""
    return (
        isinstance(loader, DataLoader)
        and hasattr(loader.dataset, "__len__")
        and loader.batch_sampler is not None
        and hasattr(loader.batch_sampler, "__len__")
    )


def some_frozen(model: nn.Module) -> bool:
    wanted = [parameter.requires_grad for parameter in model.parameters()]
    return any(wanted) and not all(wanted)


def find_frozen(
    model: nn.Module,
    batch: Any,
    run: Callable[[Any], Any],
    loader: FeatureLoader | None,
    peers: Peers,
    *,
    caching: Caching,
    say: Callable[[str], None],
) -> FrozenPart | None:
    """Install the frozen part of a model, the same in all processes; ``loader`` then gives what it remembers."""

    def find(way: str | None) -> FrozenPart | None:
        return FrozenPart.of(model, batch, run, precision="fastest", way=way, say=_quiet if peers.rank else say)

    part = find(None) if peers.rank == 0 else None
    way = _gathered(part.way.name if part is not None else None, peers)[0]
    if peers.rank and way is not None:
        part = find(way)
    if not all(_gathered(part is not None, peers)):
        return None
    assert part is not None
    part.install()
    problems = [problem for problem in _gathered(_not_cached(part, loader, caching), peers) if problem is not None]
    if not problems:
        assert loader is not None
        folder = _gathered(new_path(), peers)[0]
        if part.cache(loader.rows, folder):
            loader.give(part)
    elif problems[0] and not peers.rank:
        say(f"frozen: {part.described} is not cached: {problems[0]}")
    return part


def _not_cached(part: FrozenPart, loader: FeatureLoader | None, caching: Caching) -> str | None:
    """Why features are not to be remembered; empty if that needs no word."""
    if caching is False:
        return ""
    if loader is None:
        return "its rows have no numbers by which they could be found again"
    begin = time.perf_counter()
    problem = loader.not_repeatable()
    if problem is not None:
        return problem
    load_s = (time.perf_counter() - begin) / 3
    if caching == "auto" and not part.saves_time(load_s):
        return "computing it again is as quick as reading its features"
    return None


def _gathered(value: Any, peers: Peers) -> list[Any]:
    if peers.size == 1:
        return [value]
    values: list[Any] = [None] * peers.size
    dist.all_gather_object(values, value)
    return values


def _quiet(line: str) -> None:
    """The first process speaks for all."""
