"""Before a run starts: whether it can work, and everything that speaks against it at once."""

from __future__ import annotations

import platform
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from seamline.core import machine, pickling
from seamline.core.cluster import Capacity, Cluster
from seamline.core.errors import SeamlineError, UnpicklableError, WorkerError
from seamline.core.size import in_words
from seamline.core.world import World

PACKAGES = ("seamline", "cloudpickle", "numpy", "pyarrow", "torch")
_COPIES = 4
"""A worker that trains holds its weights, their gradients, and what an optimizer like Adam keeps, twice as much."""
_PEER_WITHIN_S = 5.0

Verdict = Literal["ok", "warning", "problem"]


class PreflightWarning(UserWarning):
    """A run will work, but worse than it could."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; what is not ok says what to do."""

    about: str
    text: str
    verdict: Verdict = "ok"


@dataclass(frozen=True, slots=True)
class Report:
    """All findings of one look; prints as a table."""

    findings: tuple[Finding, ...]

    @property
    def problems(self) -> list[str]:
        return [finding.text for finding in self.findings if finding.verdict == "problem"]

    @property
    def warnings(self) -> list[str]:
        return [finding.text for finding in self.findings if finding.verdict == "warning"]

    def require(self) -> None:
        """Raise one error that lists every problem, if there is any."""
        problems = self.problems
        if len(problems) == 1:
            raise SeamlineError(f"this run cannot work: {problems[0]}")
        if problems:
            listed = "\n".join(f"{number}. {problem}" for number, problem in enumerate(problems, 1))
            raise SeamlineError(f"this run cannot work, for {len(problems)} reasons:\n{listed}")

    def __rich__(self) -> Table:
        table = Table("looked at", "found", "verdict", title="Preflight", title_justify="left")
        colours = {"ok": "green", "warning": "yellow", "problem": "red"}
        for finding in self.findings:
            colour = colours[finding.verdict]
            table.add_row(finding.about, finding.text.replace("[", r"\["), f"[{colour}]{finding.verdict}[/{colour}]")
        return table

    def __str__(self) -> str:
        text = StringIO()
        Console(file=text, width=120).print(self)
        return text.getvalue().rstrip()


@dataclass(frozen=True, slots=True)
class Place:
    """What a process says of itself: the driver, or the process that a worker will be in."""

    host: str
    python: str
    packages: dict[str, str | None]
    memory_bytes: int
    unreachable: str | None = None


def examine(cluster: Cluster, workers: int, task: Callable[..., Any] | None = None, *, ask: bool = True) -> Report:
    """Look at the cluster, at the task if there is one, and let the workers tell of their environment if asked to."""
    capacity = cluster.capacity()
    findings = [
        Finding("cluster", cluster.description),
        slots(capacity, workers),
        allocation(capacity),
        *(Finding("settings", text, "warning") for text in cluster.warnings()),
    ]
    size = 0
    if task is not None:
        found, size = travel(task)
        findings.append(found)
    asked = min(workers, capacity.slots)
    if ask and asked:
        findings += _ask(cluster, capacity, asked, size)
    return Report(tuple(findings))


def slots(capacity: Capacity, workers: int) -> Finding:
    """Whether all workers can run at once."""
    if workers <= capacity.slots:
        return Finding("slots", f"{capacity.slots} on {capacity.nodes} nodes, {workers} workers")
    return Finding(
        "slots",
        f"{workers} workers need as many slots at the same time, and there are {capacity.slots} on {capacity.nodes} "
        "nodes; ask for fewer workers, or open the context with more nodes or cores",
        "problem",
    )


def allocation(capacity: Capacity) -> Finding:
    """Whether nodes stay while workers train."""
    if not capacity.elastic:
        return Finding("allocation", "fixed")
    return Finding(
        "allocation",
        "dynamic allocation takes executors away and gives them back one by one, and workers have to start together; "
        "start the session with spark.dynamicAllocation.enabled=false",
        "problem",
    )


def travel(task: Callable[..., Any]) -> tuple[Finding, int]:
    """Whether the task can be sent to workers, and how many bytes it has."""
    sizes: list[int] = []
    try:
        body = pickling.dumps(task, "the task", on_buffer=lambda buffer: sizes.append(buffer.raw().nbytes))
    except UnpicklableError as error:
        return Finding("task", str(error), "problem"), 0
    size = len(body) + sum(sizes)
    return Finding("task", f"{size / 2**20:.1f} MB to send"), size


def _ask(cluster: Cluster, capacity: Capacity, workers: int, size: int) -> list[Finding]:
    heard: set[int] = set()
    try:
        places = cluster.engine(workers).run(tell, [None] * workers, listen=lambda rank, _: heard.add(rank))
    except WorkerError as error:
        return [Finding("workers", silence(error), "problem")]
    except SeamlineError as error:  # such as no free slot, because other jobs are running
        return [Finding("workers", str(error), "problem")]
    here = place(socket.gethostname())
    return [
        memory(places, size, capacity.memory_bytes),
        python(here, places),
        *packages(here, places),
        network(places, heard),
    ]


def tell(world: World, _: None) -> Place:
    """Runs on each worker: what is there, and whether the next worker answers."""
    world.report("here")
    return place(world.host, _meet(world))


def place(host: str, unreachable: str | None = None) -> Place:
    """This process, described."""
    return Place(
        host=host,
        python=platform.python_version(),
        packages={name: _installed(name) for name in PACKAGES},
        memory_bytes=machine.available_memory_bytes(),
        unreachable=unreachable,
    )


def _meet(world: World) -> str | None:
    """Why the next worker cannot be reached, or ``None``; every worker takes part, whatever happens to it."""
    problem: str | None = None
    server: socket.socket | None = None
    address: tuple[str, int] | None = None
    try:
        server = socket.create_server((world.host, 0), family=_family(world.host))
        address = world.host, server.getsockname()[1]
    except OSError as error:
        problem = f"worker {world.rank} cannot listen on {world.host} ({error})"
    following = (world.rank + 1) % world.size
    towards = world.all_gather(address)[following]
    if towards is not None and world.size > 1:
        try:
            socket.create_connection(towards, timeout=_PEER_WITHIN_S).close()
        except OSError as error:
            problem = (
                problem
                or f"worker {world.rank} on {world.host} cannot reach worker {following} at {towards[0]} ({error})"
            )
    world.all_gather("nobody closes before all have tried")
    if server is not None:
        server.close()
    return problem


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def silence(error: WorkerError) -> str:
    """Why the workers could not even be asked, in one sentence."""
    missing = re.search(r"No module named '([\w.]+)'", error.traceback)
    if missing:
        return (
            f"{missing[1].partition('.')[0]} is not installed where the workers run; install it there, or ship your "
            "environment with environment='env.tar.gz' (venv-pack or conda-pack)"
        )
    last = error.traceback.strip().splitlines()[-1]
    return f"a worker failed before it had anything to do: {last}"


def memory(places: Sequence[Place], size: int, node_bytes: int | None = None) -> Finding:
    """Whether each host has room for the workers on it, as far as the task's size tells.

    ``node_bytes`` is what a node may use at most; a host can hold a node for each of its workers.
    """
    for host, count in Counter(place.host for place in places).items():
        free = min(place.memory_bytes for place in places if place.host == host)
        free = free if node_bytes is None else min(free, count * node_bytes)
        if count * size > free:
            return Finding(
                "memory",
                f"{host} has {in_words(free)} free, and {count} workers on it get {in_words(size)} each before they "
                "begin; use fewer workers there or nodes with more memory",
                "problem",
            )
        if count * size * _COPIES > free:
            return Finding(
                "memory",
                f"{host} has {in_words(free)} free, and {count} workers with weights, gradients and optimizer need "
                f"about {in_words(count * size * _COPIES)}; use fewer workers there or nodes with more memory",
                "warning",
            )
    return Finding("memory", f"at least {in_words(min(place.memory_bytes for place in places))} free on each host")


def python(here: Place, places: Sequence[Place]) -> Finding:
    """Code is sent as bytecode, which another minor version cannot run."""
    others = sorted({there.python for there in places if _minor(there.python) != _minor(here.python)})
    if not others:
        return Finding("python", here.python)
    return Finding(
        "python",
        f"the driver runs Python {here.python} and {_hosts(places, lambda p: p.python in others)} {', '.join(others)}; "
        "let both be of one minor version: set PYSPARK_PYTHON, or ship environment=",
        "problem",
    )


def packages(here: Place, places: Sequence[Place]) -> Iterable[Finding]:
    """One finding for each package that differs, or one that says they are the same."""
    same = []
    for name in PACKAGES:
        ours = here.packages[name]
        theirs = {there.packages[name] for there in places}
        if ours is None or theirs == {ours}:
            same.append(f"{name} {ours}" if ours else f"no {name}")
            continue
        where = _hosts(places, lambda there, name=name, ours=ours: there.packages[name] != ours)  # type: ignore[misc]
        if None in theirs:
            text = f"{name} {ours} is installed on the driver and missing on {where}"
            yield Finding("packages", f"{text}; install it there, or ship environment=", "problem")
            continue
        found = ", ".join(sorted(str(other) for other in theirs - {ours}))
        verdict: Verdict = "problem" if any(_breaks(name, ours, str(other)) for other in theirs) else "warning"
        text = f"{name} is {ours} on the driver and {found} on {where}"
        yield Finding("packages", f"{text}; install the same version, or ship environment=", verdict)
    if same:
        yield Finding("packages", f"the same everywhere: {', '.join(same)}")


def network(places: Sequence[Place], heard: set[int]) -> Finding:
    """Whether workers reach each other and the driver."""
    unreachable = [place.unreachable for place in places if place.unreachable]
    if unreachable:
        return Finding(
            "network",
            f"{'; '.join(unreachable)}; open the ports between the nodes to each other, or let their host names "
            "resolve to the address that the others see",
            "problem",
        )
    silent = [rank for rank in range(len(places)) if rank not in heard]
    if silent:
        return Finding(
            "network",
            f"what worker {', '.join(map(str, silent))} reports does not reach the driver, so there will be no "
            "progress to see; let the nodes reach it: set driver_host= and open its ports",
            "warning",
        )
    return Finding("network", "workers reach each other and the driver")


def _breaks(name: str, ours: str, theirs: str) -> bool:
    """Whether two versions cannot work together: another Seamline, or another major version."""
    return ours != theirs if name == "seamline" else ours.split(".")[0] != theirs.split(".")[0]


def _minor(python_version: str) -> str:
    return ".".join(python_version.split(".")[:2])


def _hosts(places: Sequence[Place], which: Callable[[Place], bool]) -> str:
    return ", ".join(sorted({place.host for place in places if which(place)}))
