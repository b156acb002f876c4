"""Where the time of a training went, for those who want to make it faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.table import Table

from seamline.core.profile import PARTS, EpochTimes, Part, Straggler, pace_of, stragglers

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 120


@dataclass(frozen=True, slots=True)
class Profile:
    """What each worker did with its time in each epoch; printed, it is a table of the workers.

    ``times`` has an entry for each worker and epoch. An epoch that was resumed in the middle has been timed from there.
    """

    times: Sequence[EpochTimes] = ()

    @property
    def ranks(self) -> list[int]:
        return sorted({each.rank for each in self.times})

    @property
    def epochs(self) -> list[int]:
        return sorted({each.epoch for each in self.times})

    @property
    def stragglers(self) -> list[Straggler]:
        """The workers that the others waited for, for at least a tenth of the time; the worst first."""
        return stragglers(self.times)

    def rows_per_s(self, epoch: int) -> float:
        """Of all workers together."""
        return pace_of([each for each in self.times if each.epoch == epoch])["rows_per_s"]

    def spent(self, rank: int, part: Part) -> float:
        """Seconds of all epochs that one worker gave to one part."""
        return sum(each.spent(part) for each in self._of(rank))

    def to_pandas(self) -> pd.DataFrame:
        """One row for each worker and epoch."""
        import pandas as pd

        return pd.DataFrame(self.times, columns=EpochTimes._fields)

    def __str__(self) -> str:
        page = StringIO()
        Console(file=page, width=_WIDTH, color_system=None).print(self)
        return page.getvalue().rstrip()

    def __rich__(self) -> RenderableType:
        table = Table("worker", *(f"{part} %" for part in PARTS), box=None, header_style="bold")
        for name in ("rows/s", "ms a step", "95 % below", "slowest", "sent a step"):
            table.add_column(name, justify="right")
        for rank in self.ranks:
            table.add_row(str(rank), *self._described(rank))
        return Group(table, *(f"{each}." for each in self.stragglers))

    def _of(self, rank: int) -> list[EpochTimes]:
        return [each for each in self.times if each.rank == rank]

    def _described(self, rank: int) -> list[str]:
        ours = self._of(rank)
        wall_s = sum(each.wall_s for each in ours) or 1e-9
        steps = sum(each.steps for each in ours) or 1
        middle = sorted(each.median_step_s for each in ours)[len(ours) // 2]
        slowest = max(ours, key=lambda each: each.slowest_step_s)
        return [
            *(f"{self.spent(rank, part) / wall_s:.0%}".removesuffix("%") for part in PARTS),
            f"{sum(each.rows for each in ours) / wall_s:,.0f}",
            f"{middle * 1e3:.1f}",
            f"{max(each.p95_step_s for each in ours) * 1e3:.1f}",
            f"{slowest.slowest_step_s * 1e3:.1f} (step {slowest.slowest_step})",
            decimal(sum(each.bytes for each in ours) // steps),
        ]
