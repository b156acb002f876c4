"""Runs that a tracking service keeps: what was asked for, and the numbers as they come."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from seamline.core.errors import UnavailableError
from seamline.core.events import Callback
from seamline.core.run import Run

_KEY = "seamline.run"
"""The tag by which a run is found again that was lost before its first checkpoint."""


class _Tracker(Callback):
    """Parameters once; each epoch's numbers and pace, and the loss every ``every_steps`` steps.

    Where a run is resumed, starts again after a loss or is fitted on with the same callback, ``run_id`` stays as it is.
    """

    steers: ClassVar[bool] = False

    def __init__(self, run_id: str | None, params: Mapping[str, Any] | None, every_steps: int) -> None:
        if every_steps < 1:
            raise ValueError(f"every_steps must be at least 1, but got every_steps={every_steps}")
        self.run_id = run_id
        self.params = dict(params or {})
        self.every_steps = every_steps

    def on_step_end(self, run: Run) -> None:
        if run.step % self.every_steps == 0:
            self._log({"step/loss": float(run.loss)}, run.step)

    def on_epoch_end(self, run: Run) -> None:
        pace = {f"pace/{name}": value for name, value in run.pace().items()}
        self._log({**{f"epoch/{name}": value for name, value in run.logs.items()}, **pace}, run.step)

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self.run_id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.run_id = state["run_id"]

    def _log(self, numbers: dict[str, float], step: int) -> None:
        raise NotImplementedError

    def _asked(self, run: Run) -> dict[str, Any]:
        """What the run was started with, and what the user adds to that."""
        job = run.job
        known = {"epochs": job.epochs, "max_steps": job.max_steps, "seed": job.seed, "workers": run.world.size}
        return {**known, "deterministic": job.deterministic, **job.signature, **self.params}


class MLflow(_Tracker):
    """Log to an MLflow server; ``tracking_uri`` is the one that ``mlflow`` uses in the program, unless given.

    Give ``run_id`` of a run of your own, such as ``mlflow.active_run().info.run_id``, to have the numbers there; its
    parameters and its end stay yours.
    """

    def __init__(
        self,
        experiment: str = "Default",
        *,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        run_id: str | None = None,
        params: Mapping[str, Any] | None = None,
        every_steps: int = 50,
    ) -> None:
        super().__init__(run_id, params, every_steps)
        self.experiment = experiment
        self.tracking_uri = tracking_uri or _mlflow().get_tracking_uri()
        self.run_name = run_name
        self._theirs = run_id
        self._key = uuid.uuid4().hex
        self._client: Any = None

    def on_fit_begin(self, run: Run) -> None:
        self._client = _mlflow().MlflowClient(tracking_uri=self.tracking_uri)
        if self._is_theirs():
            return
        if self.run_id is not None:
            self._client.update_run(self.run_id, status="RUNNING")
            return
        experiment = self._client.get_experiment_by_name(self.experiment)
        number = experiment.experiment_id if experiment else self._client.create_experiment(self.experiment)
        begun = self._client.search_runs([number], f"tags.`{_KEY}` = '{self._key}'", max_results=1)
        if begun:
            self.run_id = begun[0].info.run_id
            return
        self.run_id = self._client.create_run(number, run_name=self.run_name, tags={_KEY: self._key}).info.run_id
        self._client.log_batch(self.run_id, params=[_param(*each) for each in self._asked(run).items()])

    def on_fit_end(self, run: Run) -> None:
        if not self._is_theirs():
            self._client.set_terminated(self.run_id)
        self._client = None

    def _log(self, numbers: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1e3)
        self._client.log_batch(self.run_id, [Metric(name, value, now_ms, step) for name, value in numbers.items()])

    def _is_theirs(self) -> bool:
        """Whether the run was begun by the user, who will end it too."""
        return self._theirs is not None and self.run_id == self._theirs


class WandB(_Tracker):
    """Log to Weights & Biases; ``options`` go to ``wandb.init`` as they are, such as ``name`` or ``tags``.

    With ``mode="offline"`` everything stays in ``dir`` until ``wandb sync`` brings it to the service.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        dir: str | Path | None = None,
        mode: Literal["online", "offline", "disabled"] | None = None,
        run_id: str | None = None,
        params: Mapping[str, Any] | None = None,
        every_steps: int = 50,
        **options: Any,
    ) -> None:
        super().__init__(run_id or uuid.uuid4().hex[:8], params, every_steps)
        _wandb()
        place = None if dir is None else str(Path(dir).absolute())
        self.options = {"project": project, "dir": place, "mode": mode, **options}
        self._run: Any = None

    def on_fit_begin(self, run: Run) -> None:
        known = {"id": self.run_id, "resume": "allow", "config": self._asked(run), "allow_val_change": True}
        self._run = _wandb().init(**known, **self.options)
        # Steps of their own: one that is logged again, after a restart from a checkpoint, must not be refused.
        self._run.define_metric("*", step_metric="step")

    def on_fit_end(self, run: Run) -> None:
        self._run.finish()
        self._run = None

    def _log(self, numbers: dict[str, float], step: int) -> None:
        self._run.log({**numbers, "step": step})


def _param(name: str, value: Any) -> Any:
    from mlflow.entities import Param

    return Param(name, str(value))


def _mlflow() -> Any:
    try:
        import mlflow
    except ImportError:
        raise UnavailableError.needs("mlflow", "tracking") from None
    return mlflow


def _wandb() -> Any:
    try:
        import wandb
    except ImportError:
        raise UnavailableError.needs("wandb", "tracking") from None
    return wandb
