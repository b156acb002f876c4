"""What happens during a run, and those who want to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from seamline.core.profile import Straggler

if TYPE_CHECKING:
    from seamline.core.place import Place
    from seamline.core.run import Run


class Callback:
    """Base class of everything that watches or steers a run; override what you need.

    A callback travels to the workers and works there, on the first worker unless ``everywhere`` is true.
    When the run ends, the attributes that it has on the first worker come back to the object you made.
    ``run`` says where the run is (``epoch``, ``step``, ``logs``, ``model``) and takes ``run.stop()``.
    """

    everywhere: ClassVar[bool] = False
    """Work on every worker instead of the first alone."""

    steers: ClassVar[bool] = True
    """May call ``run.stop()`` from ``on_step_end``, which then costs all workers a word after every step."""

    def on_fit_begin(self, run: Run) -> None:
        """Before the first step; after a checkpoint was loaded, if one was."""

    def on_epoch_begin(self, run: Run) -> None: ...

    def on_step_end(self, run: Run) -> None:
        """After the weights were updated; ``run.loss`` is this worker's loss."""

    def on_validation(self, run: Run) -> None:
        """After a validation within an epoch, of ``validate_every``; ``run.logs`` holds its scores and its step."""

    def on_epoch_end(self, run: Run) -> None:
        """After validation; ``run.logs`` holds the epoch's averages over all workers."""

    def on_checkpoint(self, run: Run, path: Place) -> None:
        """A checkpoint is complete at ``path``; told to the first worker, which wrote it."""

    def on_fit_end(self, run: Run) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know again, as plain JSON."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Note:
    """A line that the user should see once."""

    text: str


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is complete."""

    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run is; reported to the driver a few times a second, and at the end of each epoch."""

    epoch: int
    epochs: int
    step: int
    steps: int | None
    rows_per_s: float
    loss: float
    logs: dict[str, float] = field(default_factory=dict)
    epoch_over: bool = False
    stragglers: tuple[Straggler, ...] = ()
