"""Train, evaluate and predict with one model, on any engine."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from seamline.core import checkpoint, place, registry, tree
from seamline.core.checkpoint import CheckpointPolicy, ModelDirectory
from seamline.core.engine import Listener, Replace
from seamline.core.errors import CheckpointError, SeamlineError, WorkerLostError
from seamline.core.events import Callback
from seamline.core.fault import Fault
from seamline.core.framework import Feed, Framework, Job, Outcome, Part, Recipe, Saving, State
from seamline.core.ledger import Ledger
from seamline.core.place import Place
from seamline.core.pulse import Watch
from seamline.core.retry import RetryPolicy
from seamline.core.shards import BUFFER_BYTES, Columns, Reading, beside
from seamline.core.size import in_bytes
from seamline.core.sync import Sync
from seamline.core.tuning import Tuning
from seamline.orca import worker
from seamline.orca.crew import Crew, Growth
from seamline.orca.feeding import READING_BATCH, FedAgain, fed_again, feeds, to_read
from seamline.orca.handing_on import HandingOn
from seamline.orca.launching import launch, persevere, workers_of_context
from seamline.orca.profile import Profile
from seamline.orca.progress import display
from seamline.orca.weighing import weighed, weighting

ColumnNames = Sequence["str | Sequence[str]"]
Categories = Mapping[str, Sequence[Any]]

WAIT_S = 1800.0
"""How long workers wait for each other where the user does not say."""


class Estimator(HandingOn):
    """A model with what trains it; ``fit`` learns, and what was learned ends in an underscore.

    ``history_`` holds one dict of averages for each epoch, ``validations_`` one with the scores of each validation and
    the step of its ``fit`` after which it was, ``ledger_`` the account of trained rows, ``profile_`` where the time
    went. Fitting again goes on from where the last ``fit`` ended; a new ``Estimator`` starts anew.
    """

    def __init__(self, recipe: Recipe, *, framework: str, model_dir: str | os.PathLike[str] | None = None) -> None:
        self.recipe = recipe
        self.framework = framework
        self.model_dir = model_dir
        self._fits = 0
        self._run_folder: Place | None = None

    @classmethod
    def from_torch(
        cls,
        *,
        model: Any,
        optimizer: Any = None,
        loss: Any = None,
        train_step: Any = None,
        metrics: Any = None,
        scheduler: Any = None,
        scheduler_every: Literal["epoch", "step"] = "epoch",
        config: Mapping[str, Any] | None = None,
        tuning: Tuning | None = None,
        sync: str | Sync = "allreduce",
        model_dir: str | os.PathLike[str] | None = None,
    ) -> Estimator:
        """An estimator for PyTorch.

        ``model``, ``optimizer``, ``loss`` and ``scheduler`` are instances, or functions that make them on each
        worker: ``model()`` or ``model(config)``, ``optimizer(model)`` or ``optimizer(model, config)``,
        ``scheduler(optimizer)`` or ``scheduler(optimizer, config)``. ``metrics`` are functions of outputs and
        targets or torchmetrics, alone, in a list or named in a dict. Checkpoints go to ``model_dir``, a path or a URL
        such as ``s3://bucket/runs/mine``.

        ``train_step(model, batch)`` takes the place of forward pass and loss: ``batch`` is ``(inputs, targets)`` as
        tensors on the device, and it returns the mean loss over the rows of the batch, or a dict with that as
        ``"loss"`` and further numbers, whose means over rows go to ``history_``. Gradients, workers, clipping and
        schedulers stay as they are. Without ``loss`` it also validates and evaluates, without gradients.

        A LightningModule without ``optimizer`` and ``loss`` brings all of it along: ``configure_optimizers``,
        ``training_step``, ``validation_step``, and what these log goes to ``history_`` under its own names.
        """
        recipe = Recipe(
            model=model,
            optimizer=optimizer,
            loss=loss,
            train_step=train_step,
            metrics=metrics,
            scheduler=scheduler,
            scheduler_every=scheduler_every,
            config=dict(config or {}),
            tuning=tuning or Tuning(),
            sync=registry.sync(sync),
        )
        return cls(recipe, framework="torch", model_dir=model_dir)

    def fit(
        self,
        data: Any,
        *,
        epochs: int = 1,
        batch_size: int | None = None,
        validation_data: Any = None,
        validate_every: int | None = None,
        feature_cols: ColumnNames | None = None,
        label_cols: ColumnNames | None = None,
        weight_col: str | None = None,
        sample_weight: Any = None,
        class_weight: Mapping[Any, float] | None = None,
        na: Any = None,
        categories: Categories | None = None,
        memory: int | str = BUFFER_BYTES,
        cache_dir: str | os.PathLike[str] | None = None,
        shuffle: bool = True,
        callbacks: Sequence[Callback] = (),
        workers: int | tuple[int, int] | None = None,
        max_steps: int | None = None,
        resume: str | os.PathLike[str] | None = None,
        checkpoint: int | CheckpointPolicy | None = None,
        deterministic: bool | int = False,
        retry: int | RetryPolicy | None = None,
        timeout_s: float | None = WAIT_S,
        faults: Sequence[Fault] = (),
        seed: int = 0,
        verbose: int = 1,
    ) -> Estimator:
        """Train, and return ``self``.

        ``data`` is ``(x, y)`` of arrays, dicts or tuples of arrays, a torch ``Dataset`` or ``DataLoader``, a function
        that makes one on each worker, or a table with ``feature_cols`` and ``label_cols``: a DataFrame of pandas, Spark
        or Polars, a Ray or Hugging Face data set, a DuckDB relation, Arrow, XShards, the path of Parquet files. Missing
        values of a table are an error unless ``na`` is ``"drop"``, a number or a dict of numbers by column; strings
        become numbers by ``categories={"city": ["Oslo", "Rome"]}``. A worker holds at most ``memory`` of a table, such
        as ``"512MB"``; what is written aside for that lies in ``cache_dir`` and is removed in the end.
        ``batch_size`` counts the rows of a batch over all workers. ``workers`` are those of the active context, by
        default one for each node; without a context one worker trains in this process, which is the default, and
        several in processes of their own. With ``workers=(2, 8)`` the run has as many as there is room for: it goes on
        with fewer when machines are lost, and with more, from a checkpoint, when there are others.
        ``resume="auto"`` goes on from the newest checkpoint in ``model_dir``, in the middle of an epoch if need be;
        ``checkpoint`` is a number of steps or a ``CheckpointPolicy``.
        With ``deterministic=True`` the weights are the same bits whatever the number of workers: every batch is cut for
        8 logical workers, or as many as are given, which real ones compute on one thread each.
        When a worker is lost another takes its place, or the run starts again from its newest checkpoint where the
        engine cannot replace one alone, as often as ``retry`` allows: a number or a ``RetryPolicy``. Workers that wait
        for another for ``timeout_s`` seconds end in ``HangError``, which says for whom and what each was doing.
        ``faults`` of ``seamline.testing.faults`` try that out.
        ``validate_every`` steps there is a validation within the epoch too; ``validations_`` has them all.
        Rows count differently in training by ``sample_weight``, an array beside arrays, by ``weight_col``, a column of
        a table, and by ``class_weight={0: 1.0, 1: 5.0}``, which multiply. The loss is the sum of weight times loss over
        the rows of the batch on all workers, divided by the sum of weights. Validation counts every row alike.
        """
        crew = Crew.of(workers)
        _at_least_one(epochs=epochs, workers=crew.least, max_steps=max_steps, batch_size=batch_size)
        _at_least_one(validate_every=validate_every)
        if validate_every is not None and validation_data is None:
            raise ValueError("validate_every= needs validation_data= to validate with")
        if isinstance(data, list) and not all(isinstance(each, (str, os.PathLike)) for each in data):
            raise TypeError("a list means several inputs and no targets; to learn, give a tuple (x, y)")
        self._library.check(self.recipe, to_train=True)
        weights = weighting(self.recipe, class_weight, sample_weight, weight_col)
        data = weighed(data, sample_weight)
        columns = Columns(
            features=feature_cols, labels=label_cols, na=na, categories=categories or {}, weight=weight_col
        )
        reading = Reading(batch_size=batch_size, shuffle=shuffle, seed=seed, **self._reading(memory, cache_dir))
        with ExitStack() as aside:
            given = (data, validation_data, columns, reading)
            feed = partial(feeds, *given, most=crew.most, deterministic=deterministic, aside=aside)
            fed, signature = feed(workers=crew.size())
            job = Job(
                epochs=epochs,
                first_epoch=self._epochs_trained(),
                max_steps=max_steps,
                seed=seed,
                callbacks=tuple(callbacks),
                saving=self._saving(checkpoint, resume),
                signature=signature,
                deterministic=bool(deterministic),
                timeout_s=timeout_s,
                faults=tuple(faults),
                weighting=weights,
                validate_every=validate_every,
                start_from=self._start_from,
            )
            again = partial(fed_again, crew, feed)
            self._take_home(self._train(job, crew, fed, again, RetryPolicy.of(retry), verbose), callbacks)
        return self

    def _train(
        self, job: Job, crew: Crew, fed: Sequence[Feed], again: FedAgain, retry: RetryPolicy, verbose: int
    ) -> Outcome:
        """One run, started again after losses as often as the policy pays for."""
        recipe = self._trained_recipe()
        with display(verbose) as show:

            def attempt(number: int, replace_lost: Replace) -> Outcome:
                nonlocal fed
                this = job
                if number:
                    this = replace(job, attempt=number, saving=self._gone_on(job.saving))
                    fed = again(fed, show)
                listen: Listener = Growth(show, crew, len(fed)) if crew.elastic else show
                if job.timeout_s is not None:
                    listen = Watch(listen, len(fed), job.timeout_s)
                task = partial(worker.fit, framework=self.framework, recipe=recipe, job=this)

                def replace_writer(loss: WorkerLostError) -> bool:
                    replaced = replace_lost(loss)
                    if replaced and loss.rank == 0:  # it may have left half a checkpoint
                        self._gone_on(job.saving)
                    return replaced

                outcome: Outcome = launch(task, fed, listen, replace_writer)[0]
                return outcome

            return persevere(attempt, retry, show)

    def _take_home(self, outcome: Outcome, callbacks: Sequence[Callback]) -> None:
        self._learn(outcome.state)
        earlier = [epoch for epoch in getattr(self, "history_", ()) if epoch["epoch"] <= outcome.first_epoch]
        self.history_: list[dict[str, float]] = [*earlier, *outcome.history]
        before = [each for each in getattr(self, "validations_", ()) if each["epoch"] <= outcome.first_epoch]
        self.validations_: list[dict[str, float]] = [*before, *outcome.validations]
        self.ledger_: Ledger = outcome.ledger
        measured = [times for times in getattr(self, "profile_", Profile()).times if times.epoch <= outcome.first_epoch]
        self.profile_ = Profile([*measured, *outcome.times])
        self._end, self._start_from = outcome.end, None
        self._fits += 1
        for callback, attributes in zip(callbacks, outcome.callbacks, strict=True):
            vars(callback).update(attributes)

    def evaluate(
        self,
        data: Any,
        *,
        batch_size: int | None = None,
        feature_cols: ColumnNames | None = None,
        label_cols: ColumnNames | None = None,
        na: Any = None,
        categories: Categories | None = None,
        memory: int | str = BUFFER_BYTES,
        cache_dir: str | os.PathLike[str] | None = None,
        workers: int | None = None,
    ) -> dict[str, float]:
        """Loss and metrics over all rows, exact whatever the number of workers."""
        workers = self._ready_to_read(self.recipe, workers, batch_size)
        columns = Columns(features=feature_cols, labels=label_cols, na=na, categories=categories or {})
        reading = Reading(batch_size=batch_size, **self._reading(memory, cache_dir))
        task = partial(worker.evaluate, framework=self.framework, recipe=self._trained_recipe())
        with ExitStack() as aside:
            shards = to_read(registry.shards(data, columns), reading, workers, aside)
            scores: dict[str, float] = launch(task, shards)[0]
        return scores

    def predict(
        self,
        data: Any,
        *,
        batch_size: int | None = None,
        feature_cols: ColumnNames | None = None,
        na: Any = None,
        categories: Categories | None = None,
        memory: int | str = BUFFER_BYTES,
        cache_dir: str | os.PathLike[str] | None = None,
        workers: int | None = None,
        model: Any = None,
    ) -> Any:
        """The model's outputs for all rows, in their order, as arrays of the structure that the model returns.

        A Spark DataFrame, Ray Dataset or XShards gives the same with the outputs beside its rows, in a column
        ``prediction``, or several if the model has several outputs. These are computed when somebody asks for them,
        where the rows are. ``model`` answers instead of the one that was trained: ``report.best()[0]`` of an
        ``InferenceOptimizer``, for instance; each process makes it once.
        """
        inputs_alone = (data, None) if isinstance(data, tuple) else data
        columns = Columns(features=feature_cols, na=na, categories=categories or {})
        recipe = self._trained_recipe() if model is None else replace(self.recipe, model=model, start=None)
        workers = self._ready_to_read(recipe, workers, batch_size)
        shards = registry.shards(inputs_alone, columns)
        answer_beside = beside(shards)
        if answer_beside is not None:
            return answer_beside(partial(worker.answering, self.framework, recipe), batch_size or READING_BATCH)
        reading = Reading(batch_size=batch_size, **self._reading(memory, cache_dir))
        task = partial(worker.predict, framework=self.framework, recipe=recipe)
        with ExitStack() as aside:
            parts = launch(task, to_read(shards, reading, workers, aside))
        return _in_order([part for some in parts for part in some])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """One picture of the training so far: loss, throughput, where the time went, who was waited for.

        Returns matplotlib's figure, and saves it at ``path`` if that is given.
        """
        if not hasattr(self, "profile_"):
            raise SeamlineError("nothing to draw yet; call fit first")
        from seamline.orca.picture import draw

        return draw(self.history_, self.profile_, path)

    def get_model(self) -> Any:
        """The model with the weights learned so far."""
        return self._library.model(self._trained_recipe())

    @property
    def _library(self) -> Framework:
        return registry.framework(self.framework)

    def _epochs_trained(self) -> int:
        history = getattr(self, "history_", None)
        return int(history[-1]["epoch"]) if history else 0

    def _trained_recipe(self) -> Recipe:
        return replace(self.recipe, start=self._current_state() if hasattr(self, "state_") else None)

    def _current_state(self) -> State:
        """What was learned, with the changes that the user has made to the model since."""
        return self._library.current(self.recipe, self.state_)

    def _learn(self, state: State) -> None:
        self._library.take_home(self.recipe, state)
        self.state_ = state

    def _ready_to_read(self, recipe: Recipe, workers: int | None, batch_size: int | None) -> int:
        """The number of workers, once it is known that nothing speaks against them."""
        count = workers_of_context(workers)
        _at_least_one(workers=count, batch_size=batch_size)
        self._library.check(recipe, to_train=False)
        return count

    def _reading(self, memory: int | str, cache_dir: str | os.PathLike[str] | None) -> dict[str, Any]:
        size = in_bytes(memory) if isinstance(memory, str) else memory
        place = None if cache_dir is None else os.fspath(cache_dir)
        return {"memory_bytes": size, "cache_dir": place, "config": self.recipe.config}

    def _saving(self, policy: int | CheckpointPolicy | None, resume: str | os.PathLike[str] | None) -> Saving | None:
        if self.model_dir is None:
            if policy is not None or resume is not None:
                asked = "checkpoint" if policy is not None else "resume"
                raise ValueError(f"{asked}= needs a place for checkpoints: Estimator.from_torch(..., model_dir=...)")
            return None
        if isinstance(policy, int):
            policy = CheckpointPolicy(every_steps=policy)
        directory = ModelDirectory(self.model_dir)
        directory.clean()
        number = self._fits + 1
        found: Place | None = None
        run = self._run_folder
        if resume is None and run is not None and checkpoint.fit_folder(run, number).exists():
            run = None  # left by an attempt that failed, and not to be mixed with this one
        if resume == "auto":
            run = run or directory.newest_run() or directory.new_run()
            found = checkpoint.newest(checkpoint.fit_folder(run, number))
        elif resume is not None:
            found = place.at(resume)
            run = directory.new_run()  # a branch of its own: what comes after that checkpoint stays as it is
        if found is not None and checkpoint.read_card(found)["kind"] != "checkpoint":
            raise CheckpointError(f"{found} is a saved model, not a checkpoint; use load to start from it")
        self._run_folder = run or directory.new_run()
        folder = checkpoint.fit_folder(self._run_folder, number)
        return Saving(folder=folder, policy=policy or CheckpointPolicy(), resume=found)

    def _gone_on(self, saving: Saving | None) -> Saving | None:
        """The same, from the newest checkpoint that there is by now."""
        if saving is None or self.model_dir is None:
            return saving
        ModelDirectory(self.model_dir).clean()
        return replace(saving, resume=checkpoint.newest(saving.folder) or saving.resume)


def _in_order(parts: Sequence[Part]) -> Any:
    for part in parts:
        for name, array in tree.paths(part.outputs, "output"):
            if array.ndim == 0 or len(array) != part.rows:
                raise ValueError(
                    f"{name} has shape {array.shape} for {part.rows} rows, so it cannot be put together row by row; "
                    "let the model return outputs whose first dimension is the rows"
                )
    outputs = [part.outputs for part in sorted(parts, key=lambda part: part.start)]
    return tree.zip_leaves(np.concatenate, outputs)


def _at_least_one(**numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, but got {name}={value!r}")
