"""What every engine owes to tasks that never meet, as tests to inherit."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamline.core.engine import Engine
from seamline.core.errors import UnpicklableError, WorkerError, WorkerLostError


class TaskContract:
    """What every engine owes to tasks that never meet; inherit and give a fixture ``engine``."""

    def test_mapped_results_are_in_the_order_of_the_items(self, engine: Engine) -> None:
        def late_if_early(item: int) -> int:
            time.sleep(0.2 if item == 0 else 0)
            return item * item

        assert engine.map(late_if_early, range(20)) == [item * item for item in range(20)]

    def test_no_items_are_no_work(self, engine: Engine) -> None:
        assert engine.map(lambda item: 1 / 0, []) == []
        assert engine.exchange(lambda item: [], [], lambda number, blocks: 1 / 0) == []

    def test_an_item_that_fails_is_named_and_not_tried_again(self, engine: Engine, tmp_path: Path) -> None:
        def divide(item: int) -> float:
            with (tmp_path / f"tries-{item}").open("a") as tries:
                tries.write("x")
            return 12 / item

        with pytest.raises(WorkerError, match="division by zero") as caught:
            engine.map(divide, [1, 2, 0, 3])
        assert caught.value.rank == 2
        assert "in divide" in caught.value.traceback
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert (tmp_path / "tries-0").read_text() == "x"
        assert engine.map(divide, [3]) == [4.0], "the engine is of no use after a failure"

    def test_an_exchange_transposes(self, engine: Engine) -> None:
        matrix = np.random.default_rng(0).random((4, 4, 1000))

        def rows(number: int) -> list[bytes]:
            return [matrix[number, column].tobytes() for column in range(4)]

        def column(number: int, blocks: list[Any]) -> Any:
            return number, np.stack([np.frombuffer(block) for block in blocks])

        for number, (said, blocks) in enumerate(engine.exchange(rows, range(4), column)):
            assert said == number
            np.testing.assert_array_equal(blocks, matrix[:, number])

    def test_blocks_may_be_of_any_size_and_kind(self, engine: Engine) -> None:
        def give(item: int) -> list[Any]:
            return [b"", memoryview(b"ab") if item else bytearray(b"c" * 100_000)]

        def take(number: int, blocks: list[Any]) -> list[bytes]:
            return [bytes(block) for block in blocks]

        assert engine.exchange(give, [0, 1], take) == [[b"", b""], [b"c" * 100_000, b"ab"]]

    def test_failures_of_an_exchange_name_their_part(self, engine: Engine) -> None:
        def fail(number: int, blocks: list[Any]) -> None:
            if number == 1:
                raise KeyError("no such column")

        with pytest.raises(WorkerError, match="no such column") as caught:
            engine.exchange(lambda item: [b"", b""], [0, 0], fail)
        assert caught.value.rank == 1
        with pytest.raises(WorkerError, match="produce gave 1 blocks, but 2 items take part"):
            engine.exchange(lambda item: [b""], [0, 0], fail)

    def test_a_broadcast_of_50_mb_reaches_tasks_and_is_fetched_once(self, engine: Engine) -> None:
        value: dict[str, Any] = {"array": np.arange(6_250_000), "name": "weights"}
        handle = engine.broadcast(value)

        def look(item: int) -> tuple[str, int, bool]:
            return handle.value["name"], int(handle.value["array"][item]), handle.value is handle.value

        assert engine.map(look, [0, 3, 6_249_999]) == [
            ("weights", 0, True),
            ("weights", 3, True),
            ("weights", 6_249_999, True),
        ]
        assert handle.value["name"] == "weights", "the driver reads it too"
        handle.release()
        handle.release()


class RemoteTaskContract(TaskContract):
    """What an engine owes beyond that whose tasks run in processes of their own, which may be lost."""

    def test_an_unpicklable_function_is_refused_by_the_name_of_what_it_holds(self, engine: Engine) -> None:
        lock = threading.Lock()
        with pytest.raises(UnpicklableError, match="lock"):
            engine.map(lambda item: lock.locked(), [0, 0])

    def test_a_task_whose_process_is_killed_is_run_again_alone(self, engine: Engine, tmp_path: Path) -> None:
        def die_once(item: int) -> int:
            mark = tmp_path / f"tries-{item}"
            with mark.open("a") as tries:
                tries.write("x")
            if item == 3 and mark.read_text() == "x":
                os.kill(os.getpid(), signal.SIGKILL)
            return item + 100

        assert engine.map(die_once, range(6)) == [100, 101, 102, 103, 104, 105]
        tries = [(tmp_path / f"tries-{item}").read_text() for item in range(6)]
        assert tries == ["x", "x", "x", "xx", "x", "x"]

    def test_a_task_that_always_dies_ends_after_its_retries(self, engine: Engine, tmp_path: Path) -> None:
        def die(item: int) -> int:
            if item == 1:
                with (tmp_path / "tries").open("a") as tries:
                    tries.write("x")
                os.kill(os.getpid(), signal.SIGKILL)
            return item

        with pytest.raises(WorkerLostError, match=r"SIGKILL|was killed") as caught:
            engine.map(die, range(3), retries=1)
        assert caught.value.rank == 1
        assert (tmp_path / "tries").read_text() == "xx"

    def test_an_exchange_survives_the_loss_of_a_process_on_either_side(self, engine: Engine, tmp_path: Path) -> None:
        def die_once(who: str) -> None:
            if not (tmp_path / who).exists():
                (tmp_path / who).touch()
                os.kill(os.getpid(), signal.SIGKILL)

        def give(item: int) -> list[bytes]:
            if item == 1:
                die_once("producer")
            return [bytes([item, 0]), bytes([item, 1])]

        def take(number: int, blocks: list[Any]) -> list[bytes]:
            if number == 0:
                die_once("consumer")
            return [bytes(block) for block in blocks]

        assert engine.exchange(give, [0, 1], take) == [[b"\0\0", b"\1\0"], [b"\0\1", b"\1\1"]]
        assert (tmp_path / "producer").exists()
        assert (tmp_path / "consumer").exists()

    def test_the_handle_of_a_broadcast_is_small(self, engine: Engine) -> None:
        handle = engine.broadcast(np.zeros(100_000))
        assert len(pickle.dumps(handle)) < 10_000
        handle.release()
