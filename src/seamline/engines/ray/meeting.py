"""Where the workers of one run meet: an actor that hands values around and keeps reports for the driver."""

from __future__ import annotations

import asyncio

Gathered = tuple[list[bytes] | None, str]
"""Everybody's value in rank order; or nothing, and why there never will be."""

_LOST = "a worker was lost"
_LOSS_WITHIN_S = 10.0
"""How long after its peers Ray may take to notice that a worker is gone."""


class Meeting:
    """One for each run. It waits in its event loop, so no number of waiting workers keeps it busy.

    Ray may begin calls of such an actor in another order than they were made, so reports are numbered.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: dict[int, bytes] = {}
        self._everybody: asyncio.Future[Gathered] | None = None
        self._generation = 0
        self._renewed = asyncio.Event()
        self._over = ""
        self._closed = False
        self._early: dict[tuple[int, int], bytes] = {}
        self._next = [0] * size
        self._arrived = asyncio.Event()
        self._reports: list[tuple[int, bytes]] = []
        self._news = asyncio.Event()

    async def gather(self, rank: int, generation: int, value: bytes) -> Gathered:
        if self._over or generation < self._generation:
            return None, self._over or _LOST
        if self._everybody is None:
            self._everybody = asyncio.get_running_loop().create_future()
        everybody = self._everybody
        self._values[rank] = value
        if len(self._values) == self._size:
            self._answer(([self._values[each] for each in range(self._size)], ""))
        return await everybody

    async def renew(self, generation: int) -> tuple[int | None, str]:
        """The number of the next generation, once somebody who was lost is replaced; nothing if nobody is."""
        while generation == self._generation:
            if self._over:
                return None, self._over
            self._renewed.clear()
            try:
                await asyncio.wait_for(self._renewed.wait(), _LOSS_WITHIN_S)
            except TimeoutError:
                return None, "a connection to a peer broke, but no worker was lost"
        return self._generation, ""

    async def replace(self, rank: int) -> int:
        """Another worker takes the place of one that was lost; whoever waits for that one is told."""
        self._generation += 1
        self._next[rank] = 0
        self._early = {key: message for key, message in self._early.items() if key[0] != rank}
        self._answer((None, _LOST))
        self._renewed.set()
        return self._generation

    async def report(self, rank: int, number: int, message: bytes) -> None:
        self._early[rank, number] = message
        while (rank, self._next[rank]) in self._early:
            self._reports.append((rank, self._early.pop((rank, self._next[rank]))))
            self._next[rank] += 1
            self._news.set()
        self._arrived.set()

    async def leave(self, rank: int, reports: int) -> None:
        """A worker's last word, answered once all it has reported is here; it takes part in nothing any more."""
        while self._next[rank] < reports:
            self._arrived.clear()
            await self._arrived.wait()
        await self.end(f"worker {rank} has finished and takes part in no further all_gather")

    async def end(self, why: str) -> None:
        self._over = self._over or why
        self._renewed.set()
        self._answer((None, why))

    async def reports(self) -> list[tuple[int, bytes]]:
        """What was reported since the last time; waits until there is something."""
        await self._news.wait()
        if not self._closed:
            self._news.clear()
        taken, self._reports = self._reports, []
        return taken

    async def close(self) -> None:
        """Answer whoever waits in ``reports``, now and from now on."""
        self._closed = True
        self._news.set()

    def _answer(self, answer: Gathered) -> None:
        if self._everybody is not None:
            self._everybody.set_result(answer)
        self._everybody = None
        self._values = {}
