"""How training steps are computed is chosen on the first of them: by their time, and within bounds."""

import math

import pytest

from seamline.nano.torch.training.choice import PLAIN, SHARE_OF_RUN, Choice, Setting

BF16, LAST = Setting(bf16=True), Setting(channels_last=True)


class Run:
    """A run whose steps take as long as it is told, on a clock of its own."""

    def __init__(self, seconds, steps, length=None, **options):
        self.now = 0.0
        self.said, self.taken, self.applied = [], [], []
        options = {"compile_too": False, **options}
        self.choice = Choice(
            list(seconds),
            self.applied.append,
            steps_in_run=steps if length is None else length,
            say=self.said.append,
            clock=lambda: self.now,
            **options,
        )
        self.compared = 0
        for _ in range(steps):
            self.choice.next_step()
            self.compared += self.choice.chosen is None
            self.taken.append(self.choice.current)
            self.now += seconds[self.choice.current]
            self.choice.step_done()


def test_the_fastest_stays_for_the_rest_of_the_run():
    run = Run({PLAIN: 1.0, LAST: 0.8, BF16: 0.4}, 400)
    assert run.choice.chosen == BF16
    assert set(run.taken[run.compared :]) == {BF16}
    assert run.said == [
        "training runs bf16: 2.5 times as fast (as it is 1000 ms, channels-last 800 ms, bf16 400 ms)",
    ]


@pytest.mark.parametrize("other", [0.97, 1.0, 3.0])
def test_what_is_hardly_faster_or_slower_changes_nothing(other):
    run = Run({PLAIN: 1.0, BF16: other}, 400)
    assert run.choice.chosen == PLAIN
    assert set(run.taken[run.compared :]) == {PLAIN}
    assert "nothing was faster" in run.said[0]


@pytest.mark.parametrize("settings", [[PLAIN, BF16], [PLAIN, LAST, BF16]], ids=len)
@pytest.mark.parametrize("steps", [80, 100, 120, 130, 200, 399, 5000])
def test_comparing_takes_no_more_than_its_share_of_the_steps(settings, steps):
    run = Run(dict.fromkeys(settings, 0.1), steps)
    fewest = 2 * len(settings) + 1  # one step of each that warms it up, one that counts, and one to see how long it is
    assert fewest <= run.compared <= max(fewest, SHARE_OF_RUN * steps)


def test_comparing_slow_steps_ends_with_the_first_answer():
    run = Run({PLAIN: 40.0, BF16: 30.0}, 20, math.inf)
    assert run.compared == 5
    assert run.choice.chosen == BF16


@pytest.mark.parametrize("steps", [7, 11])
def test_a_run_of_a_few_steps_is_left_alone(steps):
    run = Run({PLAIN: 1.0, LAST: 0.1, BF16: 0.1}, steps)
    assert (run.compared, set(run.taken), run.applied) == (0, {PLAIN}, [])
    assert run.said == [f"training runs as it is: {steps} steps are too few to measure anything"]


def test_a_run_that_is_over_in_a_moment_is_left_alone():
    run = Run({PLAIN: 0.003, BF16: 0.001}, 400)
    assert (run.compared, set(run.taken), run.applied) == (2, {PLAIN}, [])
    assert run.said == ["training runs as it is: the run is over within 2 s"]


def test_where_there_is_no_choice_nothing_is_measured_or_said():
    run = Run({PLAIN: 1.0}, 100, compile_too="auto")
    assert (run.compared, run.applied, run.said) == (0, [], [])
