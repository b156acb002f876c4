"""Workers that say what they are doing, and a driver that notices when all wait for one."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from types import FrameType

from seamline.core.engine import Listener
from seamline.core.errors import HangError
from seamline.core.world import World

_AT_MOST_S = 0.25
"""Between two pulses."""
_MEETING = ("/torch/distributed/", "/torch/autograd/", "/seamline/engines/")
"""Code in which a worker that uses no processor waits for its peers."""
_LIBRARIES = ("/site-packages/", "/lib/python")
_FRAMES = 12


@dataclass(frozen=True, slots=True)
class Pulse:
    """One worker at one moment: how long it has waited in one place, whether for its peers, and where that is."""

    step: int
    still_s: float
    for_peers: bool
    stack: str


class Heart:
    """A thread of a worker that reports a pulse now and then, from ``with`` to its end."""

    def __init__(self, world: World, timeout_s: float) -> None:
        self.step = 0
        self._world = world
        self._timeout_s = timeout_s
        self._every_s = min(_AT_MOST_S, timeout_s / 4)
        self._over = threading.Event()
        self._owner = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._owner)
        self._thread = threading.Thread(target=self._beat, name="seamline-heart", daemon=True)

    def __enter__(self) -> Heart:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        since, busy, place = time.monotonic(), self._busy(), None
        while not self._over.wait(self._every_s):
            frame = sys._current_frames().get(self._owner)
            here = None if frame is None else (self.step, id(frame), frame.f_lasti)
            if here != place or self._busy() - busy > self._every_s / 4:
                since, place = time.monotonic(), here
            busy = self._busy()
            still_s = time.monotonic() - since
            known = frame is not None and still_s > self._timeout_s / 4
            stack = _stack(frame) if known else ""
            with contextlib.suppress(OSError):  # the driver is gone, which the worker finds out itself
                self._world.report(Pulse(self.step, still_s, known and _waits(frame), stack))
            del frame

    def _busy(self) -> float:
        """Seconds of a processor that the thread in question has used."""
        return time.clock_gettime(self._clock)


def _stack(frame: FrameType | None) -> str:
    return "".join(traceback.format_stack(frame)[-_FRAMES:])


def _waits(frame: FrameType | None) -> bool:
    while frame is not None:
        name = frame.f_code.co_filename
        if any(part in name for part in _MEETING):
            return True
        if "/seamline/" in name or not any(part in name for part in _LIBRARIES):
            return False  # our code that meets nobody, or the user's own
        frame = frame.f_back
    return False


class Watch:
    """A listener on the driver that passes everything on but pulses, and raises when workers wait for too long."""

    def __init__(self, listen: Listener, size: int, timeout_s: float) -> None:
        self._listen = listen
        self._size = size
        self._timeout_s = timeout_s
        self._last: dict[int, tuple[float, Pulse]] = {}

    def __call__(self, rank: int, message: object) -> None:
        if not isinstance(message, Pulse):
            self._listen(rank, message)
            return
        self._last[rank] = time.monotonic(), message
        waiting = [r for r, (_, pulse) in self._last.items() if pulse.for_peers]
        longest = max((self._last[r][1].still_s for r in waiting), default=0.0)
        if longest > self._timeout_s:
            raise HangError(self._report(waiting, longest))

    def _report(self, waiting: list[int], longest: float) -> str:
        missing = [rank for rank in range(self._size) if rank not in waiting]
        names = ", ".join(f"worker {rank}" for rank in missing) or "none of them alone"
        advice = (
            f"workers have waited for {longest:.1f} s (timeout_s={self._timeout_s:g}); missing: {names}. "
            "Look at what that one does below: it may be reading slow data, be in a callback that only some workers "
            "run, or have another number of batches; if it is only slow, give a larger timeout_s."
        )
        return "\n\n".join([advice, *(self._described(rank) for rank in range(self._size))])

    def _described(self, rank: int) -> str:
        if rank not in self._last:
            return f"worker {rank} has not been heard of: it may still be starting, or hold the interpreter lock."
        when, pulse = self._last[rank]
        silent_s = time.monotonic() - when
        what = "waits for its peers" if pulse.for_peers else "does not wait for its peers"
        heard = f", last heard of {silent_s:.1f} s ago" if silent_s > 4 * _AT_MOST_S else ""
        return f"worker {rank}, {pulse.step} steps done, {what} for {pulse.still_s:.1f} s{heard}:\n{pulse.stack}"
