"""A user's loader, of which each process reads its part; together they read what one process would."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from seamline.core.errors import SeamlineError
from seamline.data.balance import part
from seamline.data.torch import OwnRandomness, count_rows, fingerprint, some_rows, streams
from seamline.nano.torch.training.features import FeatureLoader, can_remember, listed
from seamline.nano.torch.training.peers import Peers


@dataclass(frozen=True, slots=True)
class Place:
    """How many of a batch's rows are this process's, and how many there are over all."""

    rows: int
    among: int


class SharedLoader:
    """Gives this process its part of each of the loader's batches.

    ``weight`` belongs to the batch that was given last: how much its mean loss has to count, where gradients are
    averaged over the processes, so that every row counts as it does in one process. Where a process has no row of a
    batch it gets one that weighs nothing, to stay in step; with ``skip_empty``, for evaluating, it gets none. With
    ``whole_batches`` a batch is not divided: the processes take one each, so that the batch over all is that much
    larger.
    """

    def __init__(self, loader: Any, peers: Peers, *, whole_batches: bool = False, skip_empty: bool = False) -> None:
        self._loader = loader
        self._peers = peers
        self._sharing = _Sharing(peers, getattr(loader, "batch_size", 0) or 0, whole_batches, skip_empty)
        self._given: list[Place] = []
        self.passes = 0
        """How often it was iterated."""
        self._mine: DataLoader[Any] | FeatureLoader | None = None
        if isinstance(loader, DataLoader) and not streams(loader):
            self._mine = listed(loader, _PartSampler(loader.batch_sampler, self._sharing))

    def remember_features(self) -> FeatureLoader | None:
        """From now on the batches can come from what a frozen part remembers."""
        if isinstance(self._mine, DataLoader) and can_remember(self._mine):
            self._mine = FeatureLoader(self._mine)
        return self._mine if isinstance(self._mine, FeatureLoader) else None

    @property
    def weight(self) -> float:
        return self.weight_of(-1)

    def weight_of(self, batch: int) -> float:
        """The weight of one of the batches that were given in this pass."""
        place = self._given[batch]
        return place.rows * self._peers.size / place.among

    @property
    def rows(self) -> list[int]:
        """This process's rows of each batch of the pass; 0 where it had none."""
        return [place.rows for place in self._sharing.places]

    def __iter__(self) -> Iterator[Any]:
        self._given.clear()
        self._sharing.places.clear()
        self.passes += 1
        if hasattr(getattr(self._loader, "dataset", None), "set_epoch"):
            self._loader.dataset.set_epoch(self.passes - 1)  # random images are then those of one process
        for item in self._mine if self._mine is not None else self._part_of_stream():
            self._given.append(self._sharing.given[len(self._given)])
            yield item

    def _part_of_stream(self) -> Iterator[Any]:
        """Every process reads all rows of a stream and keeps its part; what a stream draws is drawn alike."""
        stream = OwnRandomness(self._loader, zlib.crc32(_state_of_first().numpy().tobytes()))
        together = stream if self._sharing.skip_empty else _in_agreement(stream, self._peers)
        for items in self._sharing.rounds(together):
            mine = self._sharing.mine([count_rows(item) for item in items])
            if mine is not None:
                yield some_rows(items[mine[0]], mine[1])

    def __len__(self) -> int:
        return self._sharing.count(len(self._loader))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)


class _Sharing:
    """Who reads what of each batch."""

    def __init__(self, peers: Peers, full: int, whole: bool, skip_empty: bool) -> None:
        self.peers = peers
        self._full = full
        self._whole = whole
        self.skip_empty = skip_empty
        self.places: list[Place] = []

    @property
    def given(self) -> list[Place]:
        """The places of the batches that this process reads."""
        return [place for place in self.places if place.rows] if self.skip_empty else self.places

    def mine(self, sizes: Sequence[int]) -> tuple[int, slice] | None:
        """Which batch of a round this process reads, and which of its rows; ``None`` if it reads nothing."""
        rank, size = self.peers.rank, self.peers.size
        if self._whole:
            busy = rank < len(sizes)
            chosen, place = slice(None) if busy else slice(0, 1), Place(sizes[rank] if busy else 0, sum(sizes))
            number = rank if busy else 0
        else:
            share = part(sizes[0], rank, size, full=self._full)
            number, chosen, place = 0, share.read, Place(share.rows, sizes[0])
        self.places.append(place)
        return None if self.skip_empty and not place.rows else (number, chosen)

    def rounds(self, batches: Iterable[Any]) -> Iterator[list[Any]]:
        """The batches that the processes read at the same time."""
        together, batches = self.peers.size if self._whole else 1, iter(batches)
        while group := list(itertools.islice(batches, together)):
            yield group

    def count(self, batches: int) -> int:
        return -(-batches // self.peers.size) if self._whole else batches


class _PartSampler:
    """A batch sampler that gives this process's part of the batches that another gives."""

    def __init__(self, batches: Any, sharing: _Sharing) -> None:
        self._batches = batches
        self._sharing = sharing

    @property
    def sampler(self) -> Any:
        """The user's, for those who tell it which epoch it is."""
        return getattr(self._batches, "sampler", self._batches)

    def __iter__(self) -> Iterator[Sequence[int]]:
        for batches in self._sharing.rounds(self._in_common()):
            mine = self._sharing.mine([len(rows) for rows in batches])
            if mine is not None:
                yield batches[mine[0]][mine[1]]

    def __len__(self) -> int:
        return self._sharing.count(len(self._batches))

    def _in_common(self) -> Iterator[Sequence[int]]:
        """The same batches in every process: those that the first one would read alone.

        Samplers draw their order when the first batch is taken, from torch's generator. All processes draw with the
        first one's; then the others go on with random numbers of their own, for layers such as dropout.
        """
        peers = self._sharing.peers
        if type(self._batches) is BatchSampler and type(self._batches.sampler) is SequentialSampler:
            yield from self._batches
            return
        state = _state_of_first()
        torch.set_rng_state(state)
        batches = iter(self._batches)
        first = next(batches, None)
        if peers.rank:
            torch.manual_seed(int(torch.randint(2**31, ())) + peers.rank)
        if first is not None:
            yield first
            rest = iter(functools.partial(next, batches, None), None)  # asked for an iterator, some samplers start anew
            yield from OwnRandomness(rest, zlib.crc32(state.numpy().tobytes()))


def _state_of_first() -> torch.Tensor:
    """The first process's random numbers."""
    state = torch.get_rng_state()
    dist.broadcast(state, 0)
    return state


def _in_agreement(items: Iterable[Any], peers: Peers) -> Iterator[Any]:
    """A stream that every process reads for itself, as long as it is the same for all."""
    mine = iter(items)
    while True:
        item = next(mine, None)
        seen: list[Any] = [None] * peers.size
        dist.all_gather_object(seen, None if item is None else fingerprint(item))
        if len(set(seen)) > 1:
            raise SeamlineError(
                "the processes read different rows from a stream; it must give every process the same rows, "
                "so do not shard or shuffle it by process"
            )
        if item is None:
            return
        yield item
