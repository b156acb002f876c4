"""The protocol that every framework implements, and the data that goes in and comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from seamline.core.checkpoint import CheckpointPolicy
from seamline.core.events import Callback
from seamline.core.fault import Fault
from seamline.core.ledger import Ledger
from seamline.core.place import Place
from seamline.core.profile import EpochTimes
from seamline.core.pulse import Heart
from seamline.core.shards import Shard
from seamline.core.sync import Sync
from seamline.core.tuning import Tuning
from seamline.core.world import World

State = dict[str, Any]
"""What a framework needs to go on: weights, optimizer and scheduler, in its own types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What to train: instances, or functions that make them, called on each worker."""

    model: Any
    sync: Sync
    optimizer: Any = None
    loss: Any = None
    train_step: Any = None
    """A function of the model and a batch that takes the place of forward pass and loss."""
    metrics: Any = None
    scheduler: Any = None
    scheduler_every: Literal["epoch", "step"] = "epoch"
    config: Mapping[str, Any] = field(default_factory=dict)
    tuning: Tuning = Tuning()
    start: State | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Where and when a run leaves checkpoints, and which one it starts from."""

    folder: Place
    policy: CheckpointPolicy
    resume: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighting:
    """That rows count differently in training: by their class, by a weight that comes with them, or by both."""

    classes: Mapping[Any, float] | None = None
    rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """How long to train, and what to do along the way."""

    epochs: int
    first_epoch: int = 0
    max_steps: int | None = None
    seed: int = 0
    callbacks: tuple[Callback, ...] = ()
    saving: Saving | None = None
    signature: Mapping[str, Any] = field(default_factory=dict)
    """What a checkpoint must agree with to be resumed, such as the batch size."""
    deterministic: bool = False
    """Whether the averages that steer a run must be equal to the last digit, whatever the number of workers."""
    timeout_s: float | None = None
    """How long workers may wait for each other."""
    heart: Heart | None = None
    """On a worker: the one who tells the driver how far it is."""
    faults: tuple[Fault, ...] = ()
    attempt: int = 0
    """How often this run was started before."""
    weighting: Weighting | None = None
    validate_every: int | None = None
    """Steps between validations, which also take place at the end of each epoch."""
    start_from: Place | None = None
    """A checkpoint to go on from where ``saving`` names none."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What one worker reads in a run."""

    train: Shard
    validation: Shard | None = None


@dataclass(frozen=True, slots=True)
class End:
    """Where a run ended, for one that goes on from there."""

    position: dict[str, Any]
    """As a checkpoint has it."""
    state: State | None = None
    """What to go on with where that is not what was learned: an epoch that was left in its middle was closed since."""
    sample: Any = None
    """The inputs of the first row that was read."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What training left behind."""

    state: State
    history: list[dict[str, float]]
    first_epoch: int
    ledger: Ledger
    callbacks: list[dict[str, Any]]
    validations: list[dict[str, float]] = field(default_factory=list)
    end: End | None = None
    times: list[EpochTimes] = field(default_factory=list)


@dataclass(slots=True)
class Held:
    """What a worker keeps of a run in memory while peers that were lost are replaced; only its framework looks in."""

    session: Any = None


@dataclass(frozen=True, slots=True)
class Part:
    """A worker's predictions for some rows, with their place in the whole."""

    start: int
    rows: int
    outputs: Any


class Framework(Protocol):
    """How one deep-learning library works on one worker of many."""

    name: str

    def owns(self, model: object) -> bool:
        """Whether ``model`` is of this library."""
        ...

    def check(self, recipe: Recipe, *, to_train: bool) -> None:
        """Raise on the driver, before anything starts, if the recipe cannot be cooked."""
        ...

    def join(self, world: World, tuning: Tuning, patience_s: float | None) -> AbstractContextManager[World]:
        """Connect this worker to its peers over the library's own transport; part from them on exit.

        Peers that keep it waiting for longer than ``patience_s`` count as lost; ``None`` where others judge that.
        """
        ...

    def fit(self, recipe: Recipe, feed: Feed, job: Job, world: World, held: Held) -> Outcome:
        """Train on this worker's share of the data, in step with the other workers.

        When a peer is lost this raises ``PeerLostError``, and is called again among new peers with what it has held.
        """
        ...

    def evaluate(self, recipe: Recipe, shard: Shard, world: World) -> dict[str, float]:
        """Loss and metrics over the rows of all workers."""
        ...

    def predict(self, recipe: Recipe, shard: Shard, world: World) -> list[Part]:
        """The model's answers for this worker's rows, as arrays."""
        ...

    def answering(self, recipe: Recipe, threads: int | None) -> Callable[[Any], Any]:
        """A function from inputs to the model's answers as arrays, in a process that does nothing else."""
        ...

    def model(self, recipe: Recipe) -> Any:
        """The model with the weights of ``recipe.start``, for use on the driver."""
        ...

    def to_onnx(self, recipe: Recipe, sample: Any, path: Path) -> None:
        """Export the model of ``recipe.start``, called with ``sample``, as ONNX."""
        ...

    def take_home(self, recipe: Recipe, state: State) -> None:
        """Put what workers learned into those instances of the recipe that the user holds."""
        ...

    def current(self, recipe: Recipe, state: State) -> State:
        """What was learned, with what the user's own instances hold by now."""
        ...

    def write(self, state: State, folder: Path) -> None:
        """Save a state as files that load without pickle."""
        ...

    def read(self, folder: Path) -> State: ...
