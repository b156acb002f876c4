"""Run a function in several processes of this machine that train together."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from seamline.core import machine, registry
from seamline.core.errors import SeamlineError, WorkerError
from seamline.core.world import World
from seamline.frameworks.torch.build import expect_optimizers
from seamline.frameworks.torch.world import TorchWorld, join


def check_processes(number: int) -> None:
    """Refuse what makes no sense, and warn of more processes than cores."""
    if not isinstance(number, int) or number < 1:
        raise ValueError(f"num_processes must be a whole number of at least 1, but got num_processes={number!r}")
    cores = machine.cores().count
    if number > cores:
        warnings.warn(
            f"num_processes={number}, but this machine gives the program {cores} cores; "
            f"they will take turns, and num_processes={cores} is faster",
            stacklevel=3,
        )


def use_cores() -> None:
    """Compute with the cores that this program may use, unless the user has said with how many."""
    count = machine.cores().count
    if torch.get_num_threads() > count and not machine.user_pins():
        torch.set_num_threads(count)


def launch(number: int, function: Callable[[TorchWorld], Any]) -> list[Any]:
    """What the function returns in each of ``number`` processes, which are connected through ``torch.distributed``."""
    state = torch.get_rng_state()
    expect_optimizers()
    engine = registry.engine("local", tell=_tell)
    try:
        return engine.run(partial(_run, function, state), [None] * number)
    except WorkerError as error:
        if isinstance(error.__cause__, SeamlineError):
            raise error.__cause__ from error
        raise
    finally:
        engine.close()


def _run(function: Callable[[TorchWorld], Any], state: torch.Tensor, world: World, _: None) -> Any:
    os.environ["LOCAL_RANK"] = str(world.rank)
    torch.set_rng_state(state)  # the first process continues where the program was
    with join(world, "cpu") as joined:
        return function(joined)


def _tell(rank: int, stream: str, line: str) -> None:
    """The first process speaks for the program; the others say who they are."""
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.write(f"{line}\n" if rank == 0 else f"[{rank}] {line}\n")
    target.flush()
