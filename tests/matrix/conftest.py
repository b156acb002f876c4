"""What all rows of the matrix are compared with."""

from functools import cache, cached_property

import pytest

from seamline.orca import OrcaContext
from tests.matrix.contract import train


class LearnedHere:
    """What this machine learns from arrays without a context: alone, or in local processes."""

    @cached_property
    def by_two(self):
        return self._train(workers=2)

    @cached_property
    def deterministic(self):
        return self._train(workers=1, deterministic=True)

    @cache  # noqa: B019
    def by(self, workers):
        return self._train(workers=workers, dropout=0.0)

    def _train(self, **options):
        assert OrcaContext.current() is None, "an engine is open that would train this"
        return train(**options)


@pytest.fixture(scope="session")
def learned_here():
    """Learned before any engine is opened."""
    found = LearnedHere()
    assert len([found.by_two, found.deterministic, *map(found.by, (1, 3, 4))]) == 5
    return found
