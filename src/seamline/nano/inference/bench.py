"""Processes that are asked and timed in turns by the one that compares them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seamline.core.errors import RunTimeoutError
from seamline.core.packet import Packet
from seamline.engines.local.service import Service
from seamline.nano.inference.trial import Timing

TURNS = 5
BURST_S = 0.15
FEW_TURNS = 2
LONG_TURN_S = 4.0
"""Where a turn takes longer than this there are only a few: slow calls vary less."""
FAR_SLOWER = 2.0
"""A plan that takes so many times as long as the best one so far is not measured to the end."""
NAME = "the plan"


class Bench:
    """A process with one contender on it; what the contender prints is nobody's concern.

    It starts at once, so that several can get ready together; ``with`` waits until it is.
    """

    def __init__(self, setup: Callable[[], Any], *, threads: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._warm = False
        self._service = Service(setup, name=NAME, threads=threads, tell=lambda rank, stream, line: None)

    def warm(self) -> None:
        """Let the first calls, which are slow, not count."""
        if not self._warm:
            self.burst()
            self._warm = True

    def burst(self) -> list[float]:
        seconds: list[float] = self.ask("burst", BURST_S)
        return seconds

    def ask(self, wanted: str, *arguments: Any) -> Any:
        return self._in_time(self._service.ask(Packet.of((wanted, arguments), wanted)).result).open()

    def _in_time(self, get: Callable[[float], Any]) -> Any:
        try:
            return get(self._timeout_s)
        except TimeoutError as error:
            raise RunTimeoutError(f"more than {self._timeout_s:g} s") from error

    def close(self) -> None:
        self._service.close()

    def __enter__(self) -> Bench:
        try:
            self._in_time(self._service.wait_until_ready)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def in_turns(benches: Sequence[Bench], best: Timing | None = None) -> tuple[list[list[list[float]]], bool]:
    """Bursts of every bench, one at a time, so that whatever else the machine does meets all alike.

    The original is the first. True comes with them where the last is so much slower than ``best`` that it was left.
    """
    bursts: list[list[list[float]]] = [[] for _ in benches]
    for bench in benches:
        bench.warm()
    while len(bursts[0]) < TURNS:
        for bench, found in zip(benches, bursts, strict=True):
            found.append(bench.burst())
        if best is not None and len(bursts[0]) > 1 and _far_slower(Timing(bursts[-1], bursts[0]), best):
            return bursts, True
        if len(bursts[0]) >= FEW_TURNS and sum(sum(found[-1]) for found in bursts) > LONG_TURN_S:
            break
    return bursts, False


def _far_slower(plan: Timing, best: Timing) -> bool:
    """By the clock and by the ratio to the original: one of them alone may be the machine's mood."""
    by_clock = plan.latency_ms > FAR_SLOWER * best.latency_ms
    return by_clock and plan.speedup * FAR_SLOWER < best.speedup
