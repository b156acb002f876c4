"""What every framework owes, as tests to inherit: above all, that several workers learn what one would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seamline.orca import Estimator

ROWS, FEATURES, CLASSES, BATCH = 203, 8, 3, 40
"""203 rows in batches of 40: the last batch has 3 rows, fewer than four workers need."""


def make_rows() -> tuple[Any, Any]:
    """Inputs and classes that a small network can learn."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, FEATURES)).astype(np.float32)
    y = np.argmax(x @ generator.normal(size=(FEATURES, CLASSES)), axis=1).astype(np.int64)
    return x, y


class FrameworkContract:
    """Inherit and say how to make an estimator and how to read its weights.

    The model takes ``FEATURES`` numbers and gives ``CLASSES`` scores; two calls of ``make`` start equal.
    """

    optimizers = ("sgd", "adam")

    def make(self, optimizer: str, **options: Any) -> Estimator:
        raise NotImplementedError

    def weights(self, estimator: Estimator) -> list[Any]:
        raise NotImplementedError

    def fitted(self, optimizer: str, workers: int, **options: Any) -> Estimator:
        x, y = make_rows()
        half = ROWS // 2
        return self.make(optimizer).fit(
            (x, y),
            epochs=1,
            batch_size=BATCH,
            workers=workers,
            validation_data=(x[:half], y[:half]),
            seed=7,
            verbose=0,
            **options,
        )

    @pytest.mark.parametrize("workers", [2, 3, 4])
    @pytest.mark.parametrize("optimizer", optimizers)
    def test_several_workers_learn_what_one_would(self, optimizer: str, workers: int) -> None:
        one, several = self.fitted(optimizer, 1), self.fitted(optimizer, workers)
        for ours, theirs in zip(self.weights(one), self.weights(several), strict=True):
            np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5)
        assert one.history_[-1].keys() == several.history_[-1].keys()
        for name, value in one.history_[-1].items():
            assert several.history_[-1][name] == pytest.approx(value, abs=1e-6), name
        several.ledger_.check(ROWS)

    def test_the_same_seed_gives_the_same_weights_to_the_bit(self) -> None:
        first, second = self.fitted("adam", 2), self.fitted("adam", 2)
        for ours, theirs in zip(self.weights(first), self.weights(second), strict=True):
            np.testing.assert_array_equal(ours, theirs)

    def test_predictions_and_scores_do_not_depend_on_the_number_of_workers(self) -> None:
        x, y = make_rows()
        estimator = self.make("sgd")
        one, three = estimator.predict(x, batch_size=50), estimator.predict(x, batch_size=50, workers=3)
        assert len(one) == ROWS
        np.testing.assert_allclose(one, three, atol=1e-6)
        alone, together = estimator.evaluate((x, y)), estimator.evaluate((x, y), workers=3)
        assert alone == pytest.approx(together, abs=1e-6)

    def test_what_was_saved_loads_into_a_new_estimator(self, tmp_path: Any) -> None:
        x, _ = make_rows()
        trained = self.fitted("adam", 1)
        trained.save(tmp_path / "saved")
        loaded = self.make("adam").load(tmp_path / "saved")
        np.testing.assert_array_equal(trained.predict(x), loaded.predict(x))
        assert not list((tmp_path / "saved").glob("*.pkl"))
