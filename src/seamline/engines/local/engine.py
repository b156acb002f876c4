"""Start worker processes together, let them meet, and bring back results or the first failure."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import cloudpickle

from seamline.core import machine
from seamline.core.engine import Block as Bytes
from seamline.core.engine import Item, Listener, Replace, Result, Shard, Value
from seamline.core.errors import RunTimeoutError, WorkerError, WorkerLostError
from seamline.core.failure import lost, restored
from seamline.core.nursery import Child, start
from seamline.core.output import Output, Teller, print_with_rank
from seamline.core.world import World
from seamline.engines.local.block import Block, Place
from seamline.engines.local.memory import LocalBroadcast, share
from seamline.engines.local.pool import Pool
from seamline.engines.local.shelf import Shelf
from seamline.engines.mapped import MappedCollection

_LOOK_EVERY_S = 0.05
_CAUSE_WITHIN_S = 1.0
"""How long to wait for the cause once a worker has reported what can only be a consequence."""
_EXCHANGE_RETRIES = 2
_LEAVE_WITHIN_S = 1.0
"""How long a worker that was told to stop may take before it is killed."""


class LocalEngine:
    """Run each worker in a fresh process of this machine, on its share of the cores.

    ``threads`` is the number of compute threads of each worker, by default the cores divided by the
    workers. Nothing the user has set in the environment (``OMP_NUM_THREADS``, …) is overridden. After ``timeout_s``
    seconds a run is stopped with ``RunTimeoutError``. ``tell`` gets each line that a worker prints.

    Tasks of ``map`` and ``exchange`` share a pool of one process for each core; these stay until ``close``.
    """

    name = "local"

    def __init__(
        self,
        *,
        threads: int | None = None,
        pin: bool = True,
        timeout_s: float | None = None,
        tell: Teller = print_with_rank,
    ) -> None:
        self._threads = threads
        self._pin = pin
        self._timeout_s = timeout_s
        self._tell = tell
        self._pool = Pool(machine.cores().count, threads or 1, tell)
        self._broadcasts: list[LocalBroadcast[Any]] = []
        weakref.finalize(self, _give_back, self._pool, self._broadcasts)

    def run(
        self,
        task: Callable[[World, Shard], Result],
        shards: Sequence[Shard],
        *,
        listen: Listener | None = None,
        replace: Replace | None = None,
    ) -> list[Result]:
        size = len(shards)
        gang = _Gang(size, listen, replace, self._tell)
        try:
            task_place = gang.work.store(task, "the task")
            shard_places = [gang.work.store(shard, f"shard {rank}") for rank, shard in enumerate(shards)]
            gang.work.flush()
            for rank, place in enumerate(shard_places):
                gang.start(rank, (task_place, place), self._cores(rank, size), self._variables(size))
            return gang.serve(self._timeout_s)
        finally:
            gang.stop()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], *, retries: int = 2) -> list[Result]:
        return self._pool.map(function, items, retries)

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Bytes]],
        items: Sequence[Item],
        consume: Callable[[int, list[Bytes]], Result],
    ) -> list[Result]:
        return self._pool.exchange(produce, items, consume, _EXCHANGE_RETRIES)

    def broadcast(self, value: Value) -> LocalBroadcast[Value]:
        handle = share(value)
        self._broadcasts[:] = [*(each for each in self._broadcasts if not each.released), handle]
        return handle

    def collection(self, items: Sequence[Any]) -> MappedCollection:
        return MappedCollection.of(self, items, shelves=Shelf)

    def close(self) -> None:
        _give_back(self._pool, self._broadcasts)

    def _cores(self, rank: int, size: int) -> tuple[int, ...] | None:
        if not self._pin or self._threads is not None or machine.user_pins():
            return None
        return machine.cores().share(rank, size)

    def _variables(self, size: int) -> dict[str, str]:
        return machine.thread_settings(self._threads or machine.cores().threads(size))


def _give_back(pool: Pool, broadcasts: list[LocalBroadcast[Any]]) -> None:
    pool.close()
    for handle in broadcasts:
        handle.release()
    broadcasts.clear()


class _Worker:
    """One process and what the driver knows of it."""

    def __init__(
        self,
        rank: int,
        process: Child,
        connection: Connection,
        lifeline: int,
        results: Block,
        tell: Teller,
    ) -> None:
        self.rank = rank
        self.process = process
        self.connection = connection
        self.outputs = [
            Output(process.stdout.fileno(), rank, "stdout", tell),
            Output(process.stderr.fileno(), rank, "stderr", tell),
        ]
        self.gathering: bytes | None = None
        self.renewing_since: float | None = None
        self.result: Place | None = None
        self.failed = False
        self._lifeline = lifeline
        self._results = results
        self._buried = False

    @property
    def done(self) -> bool:
        return self.result is not None

    @property
    def busy(self) -> bool:
        return not self.done and not self.failed

    def dead(self) -> bool:
        """Ended, with nothing left to say."""
        return self.process.poll() is not None and not self._has_news()

    def _has_news(self) -> bool:
        try:
            return self.connection.poll(0)
        except OSError:
            return False

    def receive(self) -> tuple[str, bytes] | None:
        """The next message, or ``None`` if the worker ended in the middle of it."""
        try:
            return self.connection.recv_bytes().decode(), self.connection.recv_bytes()
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):  # what it held may take its time to end
                self.process.wait(_LEAVE_WITHIN_S)
            return None

    def answer(self, kind: str, value: object) -> None:
        self.gathering = self.renewing_since = None
        with contextlib.suppress(OSError):  # it may have died meanwhile, which is found out next
            self.connection.send_bytes(cloudpickle.dumps((kind, value)))

    def obituary(self) -> WorkerLostError:
        return lost(self.rank, self.process.returncode)

    def signal(self, number: signal.Signals) -> None:
        """To the worker and the processes it has started."""
        if self._buried:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def bury(self) -> None:
        """Wait for its end, and for that of what it has started."""
        self.signal(signal.SIGKILL)
        if not self._buried:
            self.process.wait()
            self.close()
        self._buried = True

    def close(self) -> None:
        for output in self.outputs:
            output.finish()
        self.process.stdout.close()
        self.process.stderr.close()
        self.process.close()
        self.connection.close()
        self._results.close()
        os.close(self._lifeline)

    def take_result(self) -> Any:
        assert self.result is not None
        return self._results.load(self.result)


class _Gang:
    """All workers of one run."""

    def __init__(self, size: int, listen: Listener | None, replace: Replace | None, tell: Teller) -> None:
        self.work = Block()
        self._tell = tell
        self._size = size
        self._listen = listen
        self._replace = replace
        self._generation = 0
        self._starts: list[Callable[[], _Worker]] = []
        self._workers: list[_Worker] = []

    def start(
        self,
        rank: int,
        places: tuple[Place, Place],
        cores: tuple[int, ...] | None,
        variables: dict[str, str],
    ) -> None:
        self._starts.append(partial(self._started, rank, places, cores, variables))
        self._workers.append(self._starts[rank]())

    def _started(
        self,
        rank: int,
        places: tuple[Place, Place],
        cores: tuple[int, ...] | None,
        variables: dict[str, str],
    ) -> _Worker:
        results = Block()
        ours, theirs = Pipe()
        lifeline, held = os.pipe()
        settings = {
            "rank": rank,
            "size": self._size,
            "generation": self._generation,
            "places": places,
            "cores": cores,
        }
        try:
            fds = {"connection": theirs.fileno(), "lifeline": lifeline, "work": self.work.fd, "results": results.fd}
            process = start("seamline.engines.local.worker", settings, fds, variables)
        except BaseException:
            ours.close()
            os.close(held)
            results.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        return _Worker(rank, process, ours, held, results, self._tell)

    def serve(self, timeout_s: float | None) -> list[Any]:
        """Answer the workers until each is done; raise as soon as it is known which one failed."""
        end = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        consequence: WorkerError | None = None
        deadline = float("inf")
        while not all(worker.done for worker in self._workers):
            for failure in self._look():
                if isinstance(failure, WorkerLostError) and self._replaced(failure):
                    continue
                if not isinstance(failure, _ConsequenceError):
                    raise failure from failure.__cause__
                if consequence is None:
                    consequence, deadline = failure, time.monotonic() + _CAUSE_WITHIN_S
            if time.monotonic() > end:
                late = ", ".join(str(worker.rank) for worker in self._workers if worker.busy)
                raise RunTimeoutError(f"not done after {timeout_s:g} s; still at work: worker {late}")
            if consequence is not None and time.monotonic() > deadline:
                raise WorkerError(consequence.rank, consequence.traceback) from consequence.__cause__
        return [worker.take_result() for worker in self._workers]

    def _look(self) -> list[WorkerError]:
        busy = [worker for worker in self._workers if worker.busy]
        sources: dict[int, _Worker | Output] = {worker.connection.fileno(): worker for worker in busy}
        sources.update({out.fd: out for worker in self._workers for out in worker.outputs if out.open})
        failures = []
        for ready in wait(list(sources), timeout=_LOOK_EVERY_S):
            source = sources[cast("int", ready)]
            if isinstance(source, Output):
                source.pump()
            else:
                failures.append(self._hear(source))
        failures += [w.obituary() for w in busy if w.busy and w.dead()]
        for worker in busy:
            if worker.renewing_since is not None and time.monotonic() - worker.renewing_since > _CAUSE_WITHIN_S:
                worker.answer("lost", "a connection to a peer broke, but no worker was lost")
        return [failure for failure in failures if failure is not None]

    def _replaced(self, loss: WorkerLostError) -> bool:
        """Whether another worker has taken the place of one that was lost; those who wait for it are told."""
        if self._replace is None or loss.rank is None or any(worker.done or worker.failed for worker in self._workers):
            return False
        if not self._replace(loss):
            return False
        self._workers[loss.rank].bury()
        self._generation += 1
        self._workers[loss.rank] = self._starts[loss.rank]()
        self._release([w for w in self._workers if w.gathering is not None], "a worker was lost")
        for worker in self._workers:
            if worker.renewing_since is not None:
                worker.answer("renewed", self._generation)
        return True

    def _hear(self, worker: _Worker) -> WorkerError | None:
        message = worker.receive()
        if message is None:
            return worker.obituary()
        asked, body = message
        kind, _, generation = asked.partition(" ")
        if kind == "failed":
            worker.failed = True
            return _failure(worker.rank, cloudpickle.loads(body))
        if kind == "report":
            if self._listen is not None:
                self._listen(worker.rank, cloudpickle.loads(body))
        elif kind == "done":
            worker.result = cloudpickle.loads(body)
        elif kind == "renew":
            worker.renewing_since = time.monotonic()
            if int(generation) < self._generation:
                worker.answer("renewed", self._generation)
        elif int(generation) < self._generation:
            worker.answer("lost", "a worker was lost")
        else:
            worker.gathering = body
        self._answer_gathers()
        return None

    def _answer_gathers(self) -> None:
        waiting = [worker for worker in self._workers if worker.gathering is not None]
        if len(waiting) == len(self._workers):
            everything = [worker.gathering for worker in self._workers]
            for worker in waiting:
                worker.answer("all", everything)
        gone = next((worker.rank for worker in self._workers if worker.done), None)
        if gone is not None:
            self._release(waiting, f"worker {gone} has finished and takes part in no further all_gather")

    def _release(self, waiting: list[_Worker], why: str) -> None:
        for worker in waiting:
            worker.answer("lost", why)

    def stop(self) -> None:
        """Leave no process behind; those that wait for a peer are told, the others are ended."""
        waiting = [worker for worker in self._workers if worker.gathering is not None]
        try:
            self._release(waiting, "another worker failed, and the run is over")
            for worker in self._workers:
                if worker not in waiting and not worker.done:
                    worker.signal(signal.SIGTERM)
            deadline = time.monotonic() + _LEAVE_WITHIN_S
            for worker in self._workers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    worker.process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for worker in self._workers:
                worker.signal(signal.SIGKILL)
            for worker in self._workers:
                worker.bury()
            self.work.close()


class _ConsequenceError(WorkerError):
    """A worker lost a peer; the peer's own failure is the one to report."""


def _failure(rank: int, report: dict[str, Any]) -> WorkerError:
    kind = _ConsequenceError if report["consequence"] else WorkerError
    failure = kind(rank, report["traceback"])
    failure.__cause__ = restored(report["error"])
    return failure
