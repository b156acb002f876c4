"""What goes wrong in one run, chosen at random."""

import signal
from dataclasses import dataclass, field

from tests.soak.program import EVERY, STEP_S, STEPS

KINDS = ("faults", "worker", "driver")


@dataclass(frozen=True)
class Disturbance:
    """Kills from within at given moments, or from outside after so many seconds of work; and where the run saves."""

    faults: list = field(default_factory=list)
    victim: str | None = None
    rank: int = 0
    after_s: float = 0.0
    place: str = "folder"

    @classmethod
    def at_random(cls, chance):
        place = chance.choice(("folder", "bucket"))
        kind = chance.choice(KINDS)
        if kind == "faults":
            return cls(faults=[_kill(chance, attempt) for attempt in range(chance.randint(1, 3))], place=place)
        after_s = chance.uniform(0, 1.2 * STEPS * STEP_S)
        return cls(victim=kind, rank=chance.randrange(2), after_s=after_s, place=place)

    def __str__(self):
        if self.victim is not None:
            who = f"worker {self.rank}" if self.victim == "worker" else "the driver"
            return f"{who} killed from outside after {self.after_s:.2f} s, {self.place}"
        moments = (f"{f['phase']} {f['step'] or ''}".strip() + f" of {f['rank']}" for f in self.faults)
        return f"killed at {', '.join(moments)}, {self.place}"


def _kill(chance, attempt):
    phase = chance.choice(("start", "join", "step", "step", "checkpoint", "finish"))
    step = None
    if phase == "step":
        step = chance.randrange(STEPS)
    elif phase == "checkpoint":
        step = EVERY * chance.randint(1, STEPS // EVERY)
    how = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
    return {"rank": chance.randrange(2), "phase": phase, "step": step, "attempt": attempt, "how": int(how)}
