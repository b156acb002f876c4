"""What every engine owes to shards that lie apart, as tests to inherit."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seamline.core.engine import Engine
from seamline.core.errors import SeamlineError, ShardError, UnpicklableError


def _tell(path: Path) -> Any:
    def told(index: int, shard: Any) -> Any:
        with (path / f"runs-{index}").open("a") as runs:
            runs.write("x")
        return shard

    return told


class CollectionContract:
    """What every engine owes to shards that lie apart; inherit and give a fixture ``engine``."""

    def test_functions_get_the_number_of_a_shard_and_the_shard(self, engine: Engine) -> None:
        shards = (
            engine.collection(["a", "b", "c"]).map(lambda index, shard: (index, shard)).map(lambda _, pair: pair * 2)
        )
        assert shards.count == 3
        assert shards.collect() == [(0, "a", 0, "a"), (1, "b", 1, "b"), (2, "c", 2, "c")]
        assert shards.collect([2, 0]) == [(2, "c", 2, "c"), (0, "a", 0, "a")]

    def test_nothing_runs_before_somebody_asks_and_then_only_what_is_asked_for(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        shards = engine.collection([1, 2, 3]).map(_tell(tmp_path))
        assert list(tmp_path.iterdir()) == []
        assert shards.collect([1]) == [2]
        assert [file.name for file in tmp_path.iterdir()] == ["runs-1"]

    def test_what_is_kept_is_computed_once(self, engine: Engine, tmp_path: Path) -> None:
        kept = engine.collection([1, 2]).map(_tell(tmp_path)).keep()
        assert kept.collect() == [1, 2]
        assert kept.map(lambda _, shard: shard + 1).collect() == [2, 3]
        assert (tmp_path / "runs-0").read_text() == (tmp_path / "runs-1").read_text() == "x"
        kept.release()
        kept.release()

    def test_a_function_may_change_what_it_is_given(self, engine: Engine) -> None:
        array = np.arange(100_000)
        shards = engine.collection([array])

        def negate(index: int, given: Any) -> Any:
            given *= -1
            return given

        for source in (shards, shards.map(lambda _, shard: shard + 0).keep()):
            assert source.map(negate).collect()[0][3] == -3
            assert source.map(negate).collect()[0][3] == -3, "what the first call did was still there"
            assert source.collect()[0][3] == 3
        assert array[3] == 3

    def test_pairs_are_those_of_the_same_number(self, engine: Engine) -> None:
        shards = engine.collection([1, 2, 3])
        squares = shards.map(lambda _, shard: shard * shard)
        assert shards.zip(squares).collect() == [(1, 1), (2, 4), (3, 9)]
        nested = squares.zip(shards).map(lambda _, pair: sum(pair)).zip(shards.zip(shards))
        assert nested.collect() == [(2, (1, 1)), (6, (2, 2)), (12, (3, 3))]

    @pytest.mark.parametrize("count", [1, 4])
    def test_an_exchange_gives_a_piece_of_every_shard_to_every_new_one(self, engine: Engine, count: int) -> None:
        shards = engine.collection([10, 20, 30]).map(lambda _, shard: shard + 1)
        new = shards.exchange(
            lambda index, shard: [f"{shard}-{number}" for number in range(count)],
            count,
            lambda number, pieces: (number, *pieces),
        )
        assert new.count == count
        expected = [(number, f"11-{number}", f"21-{number}", f"31-{number}") for number in range(count)]
        assert new.collect() == expected
        again = new.exchange(lambda index, shard: [shard[0], shard[1]], 2, lambda number, pieces: pieces)
        assert again.collect()[0] == list(range(count))

    def test_a_failure_names_shard_rows_and_function(self, engine: Engine, tmp_path: Path) -> None:
        def divide(index: int, shard: Any) -> Any:
            _tell(tmp_path)(index, shard)
            if index == 2:
                raise ZeroDivisionError("bad row")
            return shard

        shards = engine.collection([np.arange(4), np.arange(3), np.arange(5), np.arange(2)]).map(divide)
        with pytest.raises(ShardError, match=r"divide failed on shard 2 \(rows 7 to 11\)") as caught:
            shards.map(lambda _, shard: shard * 2).collect()
        assert caught.value.shard == 2
        assert "bad row" in caught.value.traceback
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert (tmp_path / "runs-2").read_text() == "x", "it was tried again"
        with pytest.raises(ShardError, match=r"divide failed on shard 2 \(rows 7 to 11\)"):
            shards.exchange(lambda _, shard: [shard], 1, lambda _, pieces: pieces).collect()
        assert engine.collection([1]).collect() == [1], "the engine is of no use after a failure"

    def test_failures_around_an_exchange_and_of_a_pair_are_told(self, engine: Engine) -> None:
        shards = engine.collection([1, 2])
        with pytest.raises(ShardError, match="1 pieces for 2 shards; give one to each"):
            shards.exchange(lambda index, shard: [shard], 2, lambda number, pieces: pieces).collect()

        def fail(number: int, pieces: Any) -> None:
            raise KeyError("no such column")

        with pytest.raises(ShardError, match="fail failed on shard 0"):
            shards.exchange(lambda index, shard: [shard, shard], 2, fail).collect()
        with pytest.raises(ShardError, match="by zero"):
            shards.zip(shards.map(lambda _, shard: 1 // (shard - 2))).collect()

    def test_an_error_of_ours_comes_out_as_itself(self, engine: Engine) -> None:
        def refuse(index: int, shard: Any) -> None:
            raise SeamlineError("do something else")

        with pytest.raises(SeamlineError, match=r"^do something else$"):
            engine.collection([1]).map(refuse).collect()


class RemoteCollectionContract(CollectionContract):
    """What an engine owes beyond that whose functions run in processes of their own."""

    def test_what_cannot_travel_is_named(self, engine: Engine) -> None:
        lock = threading.Lock()
        with pytest.raises(UnpicklableError, match="lock"):
            engine.collection([1]).map(lambda _, shard: lock.locked()).collect()
        with pytest.raises((UnpicklableError, SeamlineError), match="lock"):
            engine.collection([1]).map(lambda _, shard: threading.Lock()).collect()

    def test_a_shard_whose_process_is_killed_is_computed_again(self, engine: Engine, tmp_path: Path) -> None:
        def die_once(index: int, shard: int) -> int:
            mark = tmp_path / f"tries-{index}"
            if index == 1 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return shard + 100

        assert engine.collection([1, 2, 3]).map(die_once).collect() == [101, 102, 103]
        assert (tmp_path / "tries-1").exists()
