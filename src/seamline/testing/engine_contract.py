"""What every engine owes, as tests to inherit."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from seamline.core.engine import Engine
from seamline.core.errors import PeerLostError, SeamlineError, UnpicklableError, WorkerError
from seamline.core.world import World
from seamline.testing.task_contract import RemoteTaskContract

Pair = namedtuple("Pair", "left right")
STOPPED_WITHIN_S = 2.0


class EngineContract(RemoteTaskContract):
    """Inherit, give a fixture ``engine``, and in ``setup`` the code that makes one in a fresh program."""

    setup: ClassVar[str]

    # Results and meeting

    def test_results_come_back_in_rank_order(self, engine: Engine) -> None:
        def who(world: World, shard: str) -> tuple[int, int, str]:
            time.sleep(0.1 * (world.size - world.rank))  # the last rank answers first
            return world.rank, world.size, shard

        assert engine.run(who, ["a", "b", "c"]) == [(0, 3, "a"), (1, 3, "b"), (2, 3, "c")]

    def test_gathered_values_are_in_rank_order_on_every_worker(self, engine: Engine) -> None:
        # Would hang if workers took turns: each waits for the other, twice.
        def meet(world: World, shard: int) -> list[list[int]]:
            return world.all_gather(world.all_gather(shard * 10))

        assert engine.run(meet, [1, 2]) == [[[10, 20], [10, 20]]] * 2

    def test_uneven_shards_reach_their_own_workers(self, engine: Engine) -> None:
        shards = [np.arange(100_000), np.arange(0), np.arange(7)]
        assert engine.run(lambda world, shard: int(shard.sum()), shards) == [4_999_950_000, 0, 21]

    def test_nested_structures_keep_their_types(self, engine: Engine) -> None:
        value = {"a": [1, (2.5, None)], "pair": Pair(np.float32(1), "é"), "array": np.eye(3), 7: b"raw"}

        def echo(world: World, shard: Any) -> Any:
            return world.all_gather(shard)[world.rank]

        for answer in engine.run(echo, [value, value]):
            assert answer["a"] == value["a"]
            assert answer["pair"] == value["pair"]
            assert type(answer["pair"]) is Pair
            assert answer[7] == b"raw"
            np.testing.assert_array_equal(answer["array"], np.eye(3))

    def test_results_of_200_mb_arrive_whole(self, engine: Engine) -> None:
        def big(world: World, shard: int) -> Any:
            return np.full(25_000_000, world.rank + shard, np.float64)

        first, second = engine.run(big, [5, 5])
        assert first.nbytes == second.nbytes == 200_000_000
        assert (first == 5).all()
        assert (second == 6).all()

    def test_workers_may_write_to_what_they_were_given(self, engine: Engine) -> None:
        shared = np.zeros(100_000)

        def scribble(world: World, shard: Any) -> float:
            shard += world.rank + 1
            world.all_gather("all have written")
            return float(shard[0])

        assert engine.run(scribble, [shared, shared]) == [1.0, 2.0]
        assert not shared.any()

    def test_reports_reach_the_driver(self, engine: Engine) -> None:
        heard: list[tuple[int, object]] = []

        def tell(world: World, shard: str) -> None:
            for number in range(3):
                world.report((shard, number))

        engine.run(tell, ["a", "b"], listen=lambda rank, message: heard.append((rank, message)))
        assert [message for rank, message in heard if rank == 0] == [("a", 0), ("a", 1), ("a", 2)]
        assert [message for rank, message in heard if rank == 1] == [("b", 0), ("b", 1), ("b", 2)]

    # Failure

    def test_a_failing_worker_names_itself_and_stops_the_rest(self, engine: Engine, tmp_path: Path) -> None:
        def fail_on_one(world: World, shard: int) -> None:
            if world.rank == 1:
                raise ValueError("bad row 7")
            (tmp_path / "pid").write_text(str(os.getpid()))
            (tmp_path / "ready").touch()
            time.sleep(60)

        def fail_once_ready(world: World, shard: int) -> None:
            if world.rank == 1:
                _wait_for(tmp_path / "ready")
            fail_on_one(world, shard)

        with pytest.raises(WorkerError, match="bad row 7") as caught:
            engine.run(fail_once_ready, [0, 0])
        assert caught.value.rank == 1
        assert "fail_on_one" in caught.value.traceback
        assert isinstance(caught.value.__cause__, ValueError)
        assert _gone(int((tmp_path / "pid").read_text()), within_s=STOPPED_WITHIN_S)

    def test_a_killed_worker_is_named_and_never_run_again(self, engine: Engine, tmp_path: Path) -> None:
        def die(world: World, shard: int) -> list[int]:
            if world.rank == 1:
                with (tmp_path / "lives").open("a") as lives:
                    lives.write("x")
                os.kill(os.getpid(), signal.SIGKILL)
            return world.all_gather(0)

        with pytest.raises(WorkerError, match="SIGKILL") as caught:
            engine.run(die, [0, 0])
        assert caught.value.rank == 1
        assert (tmp_path / "lives").read_text() == "x"

    def test_gathering_raises_when_a_peer_has_died(self, engine: Engine, tmp_path: Path) -> None:
        def notice(world: World, shard: int) -> None:
            if world.rank == 1:
                _wait_for(tmp_path / "waiting")
                time.sleep(0.3)  # the other worker has said that it is about to gather; now it does
                os._exit(3)
            try:
                (tmp_path / "waiting").touch()
                world.all_gather(0)
            except PeerLostError:
                (tmp_path / "noticed").touch()
                raise

        with pytest.raises(WorkerError) as caught:
            engine.run(notice, [0, 0])
        assert caught.value.rank == 1
        assert (tmp_path / "noticed").exists()

    def test_gathering_raises_when_a_peer_has_finished(self, engine: Engine) -> None:
        def leave_early(world: World, shard: int) -> None:
            if world.rank == 0:
                world.all_gather("is anybody there?")

        with pytest.raises(WorkerError, match="PeerLostError") as caught:
            engine.run(leave_early, [0, 0])
        assert caught.value.rank == 0

    def test_an_unpicklable_task_is_refused_before_anything_starts(self, engine: Engine, tmp_path: Path) -> None:
        lock = threading.Lock()

        def hold(world: World, shard: int) -> None:
            (tmp_path / "started").touch()
            lock.acquire()

        with pytest.raises(UnpicklableError, match="lock"):
            engine.run(hold, [0, 0])
        assert not (tmp_path / "started").exists()

    def test_an_unpicklable_result_is_an_error_and_not_a_hang(self, engine: Engine) -> None:
        with pytest.raises((SeamlineError, TypeError), match="lock"):
            engine.run(lambda world, shard: threading.Lock(), [0, 0])

    def test_an_error_that_does_not_pickle_still_has_its_traceback(self, engine: Engine) -> None:
        class StubbornError(Exception):
            def __init__(self, lock: Any) -> None:
                super().__init__("cannot travel")
                self.lock = lock

        def fail(world: World, shard: int) -> None:
            raise StubbornError(threading.Lock())

        with pytest.raises(WorkerError, match="cannot travel"):
            engine.run(fail, [0, 0])

    def test_an_engine_can_be_used_again_after_a_failure(self, engine: Engine) -> None:
        def fail(world: World, shard: int) -> None:
            raise ValueError("once")

        with pytest.raises(WorkerError):
            engine.run(fail, [0, 0])
        assert engine.run(lambda world, shard: shard, [1, 2]) == [1, 2]

    def test_errors_survive_pickling(self) -> None:
        error = pickle.loads(pickle.dumps(WorkerError(2, "its traceback")))
        assert (error.rank, error.traceback) == (2, "its traceback")

    # Programs

    def test_functions_and_classes_of_main_need_no_guard(self, tmp_path: Path) -> None:
        script = tmp_path / "program.py"
        (tmp_path / "neighbour.py").write_text("def double(x): return 2 * x\n")
        script.write_text(
            f"{self.setup}\n"
            "import neighbour\n"
            "from dataclasses import dataclass\n"
            "print('started', flush=True)\n"
            "@dataclass\n"
            "class Point:\n"
            "    x: int\n"
            "offset = 5\n"
            "def shift(world, shard):\n"
            "    return Point(neighbour.double(shard.x) + offset)\n"
            "answer = engine.run(shift, [Point(1), Point(2)])\n"
            "assert answer == [Point(7), Point(9)], answer\n"
            "assert type(answer[0]) is Point\n"
            "engine.close()\n"
        )
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("started") == 1, "a worker ran the program's top level again"


def _wait_for(file: Path, within_s: float = 30.0) -> None:
    deadline = time.monotonic() + within_s
    while not file.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{file} did not appear")
        time.sleep(0.01)


def _gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False
