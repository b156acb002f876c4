"""What this machine offers, what is installed, and the command that brings what is missing."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from seamline import __version__
from seamline.core import machine, registry
from seamline.core.prerequisites import Prerequisites
from seamline.nano.machine import current_allocator, settings
from seamline.nano.machine.effect import allocation_loop

_ENGINE_WITHIN_S = 90
_ISA = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_vnni": "AVX-512 VNNI",
    "avx_vnni": "AVX VNNI",
    "avx512_bf16": "AVX-512 BF16",
    "amx_tile": "AMX",
    "amx_bf16": "AMX BF16",
    "amx_int8": "AMX INT8",
    "asimd": "NEON",
    "sve": "SVE",
}


def examine(start: bool = False) -> dict[str, Any]:
    """Everything the report shows, as plain data; with ``start`` every engine is tried, which takes a while."""
    return {
        "seamline": __version__,
        "python": platform.python_version(),
        "machine": _machine(),
        "tuning": _tuning(),
        "cuda": _cuda(),
        "extras": _extras(),
        "engines": _engines(start),
    }


def _machine() -> dict[str, Any]:
    cores = machine.cores()
    return {
        "cpu": _cpu_name(),
        "cores": cores.count,
        "cores_allowed": len(cores.allowed),
        "cpu_quota": cores.quota,
        "isa": _isa(),
        "memory_gb": round(machine.memory_bytes() / 2**30, 1),
        "memory_available_gb": round(machine.available_memory_bytes() / 2**30, 1),
        "allocator": current_allocator(),
    }


def _tuning() -> dict[str, Any]:
    """What ``seamline run`` would set, and what that does to a loop that allocates large blocks."""
    wanted = settings()
    loops = {"now": allocation_loop(), "with_seamline_run": allocation_loop(wanted)}
    return {
        "settings": {setting.name: setting.value for setting in wanted if setting.name != machine.OUR_VARIABLES},
        "effect": {name: asdict(loop) for name, loop in loops.items()},
    }


def _cpu_name() -> str:
    found = re.search(r"model name\s*:\s*(.+)", _text("/proc/cpuinfo"))
    return found.group(1) if found else platform.processor() or platform.machine()


def _isa() -> list[str]:
    flags = machine.cpu_flags()
    return [name for flag, name in _ISA.items() if flag in flags]


def _cuda() -> dict[str, Any]:
    """What the driver says; torch may still be a build that cannot use it."""
    if shutil.which("nvidia-smi") is None:
        return {"devices": []}
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    return {"devices": answer.stdout.strip().splitlines() if answer.returncode == 0 else []}


def _extras() -> dict[str, Any]:
    """For each extra of this package, what of it is installed; read from the package's own description."""
    extras: dict[str, dict[str, str | None]] = {}
    for line in requires("seamline") or []:
        found = re.match(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?[^;]*;.*extra == ['\"]([\w-]+)['\"]", line)
        if found is None or found.group(2) in ("all", "dev") or not _applies(line):
            continue
        package, extra = found.group(1), found.group(2)
        extras.setdefault(extra, {})[package] = _installed(package)
    return {
        extra: {
            "packages": packages,
            "fix": None if all(packages.values()) else f'pip install "seamline[{extra}]"',
        }
        for extra, packages in extras.items()
    }


def _applies(requirement: str) -> bool:
    """Whether a requirement's condition on the processor, if it has one, holds here."""
    found = re.search(r"platform_machine (==|!=) ['\"](\w+)['\"]", requirement)
    return found is None or (found.group(2) == platform.machine()) == (found.group(1) == "==")


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _engines(start: bool) -> dict[str, Any]:
    """Look at every engine, all at the same time: Java and Ray take a while."""
    names = list(registry.entries("engines"))
    with ThreadPoolExecutor(len(names)) as pool:
        return dict(zip(names, pool.map(partial(_try_engine, start), names), strict=True))


def _try_engine(start: bool, name: str) -> dict[str, Any]:
    """Load an engine and perhaps start it, in a process of its own; whatever goes wrong is the finding."""
    problem = registry.entries("engines")[name].problem()
    if problem is not None:
        return {"starts": False, "problem": str(problem)}
    command = [sys.executable, "-c", f"from seamline.cli.doctor import try_here; try_here({name!r}, {start})"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ENGINE_WITHIN_S, check=False)
        return dict(json.loads(answer.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"starts": False, "problem": f"did not start within {_ENGINE_WITHIN_S} s"}
    except (IndexError, ValueError):
        last = (answer.stderr.strip() or f"ended with exit code {answer.returncode}").splitlines()[-1]
        return {"starts": False, "problem": last}


def try_here(name: str, start: bool) -> None:
    """Load an engine in this process, perhaps start it, and print what came of it, as JSON.

    ``starts`` is ``None`` where nothing speaks against it and it was not tried.
    """
    finding: dict[str, Any] = {"starts": None, "problem": None}
    try:
        kind = registry.entries("engines")[name].load()
        finding["problem"] = kind.missing() if isinstance(kind, Prerequisites) else None
        if start and finding["problem"] is None:
            engine = registry.engine(name)
            finding["starts"] = engine.run(_own_rank, [None]) == [0]
            engine.close()
    except Exception as error:
        finding["problem"] = str(error).strip().splitlines()[0]
    if finding["problem"] is not None:
        finding["starts"] = False
    print(json.dumps(finding))


def _own_rank(world: Any, _: None) -> int:
    return int(world.rank)


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def show(findings: dict[str, Any]) -> None:
    """One screen for people."""
    console = Console()
    here = findings["machine"]
    quota = f", quota {here['cpu_quota']:g}" if here["cpu_quota"] else ""
    console.print(f"[bold]Seamline {findings['seamline']}[/bold] on Python {findings['python']} ({sys.executable})")
    facts = Table.grid(padding=(0, 2))
    facts.add_row("processor", here["cpu"])
    facts.add_row("cores", f"{here['cores']} ({here['cores_allowed']} allowed{quota})")
    facts.add_row("instructions", ", ".join(here["isa"]) or "nothing beyond the base set")
    facts.add_row("memory", f"{here['memory_gb']} GB, {here['memory_available_gb']} GB free")
    facts.add_row("allocator", here["allocator"])
    facts.add_row("CUDA", ", ".join(findings["cuda"]["devices"]) or "no device")
    facts.add_row("seamline run", _tuning_in_words(findings["tuning"]))
    console.print(facts)
    _show_engines(console, findings["engines"])
    _show_extras(console, findings["extras"])


def _tuning_in_words(tuning: dict[str, Any]) -> str:
    if not tuning["settings"]:
        return "would change nothing: everything is set already"
    now, then = tuning["effect"]["now"], tuning["effect"]["with_seamline_run"]
    return (
        f"would set {', '.join(f'{name}={value}' for name, value in tuning['settings'].items())}\n"
        f"a loop over large blocks: {now['page_faults']:,} page faults in {now['seconds']:.2f} s as it is, "
        f"{then['page_faults']:,} in {then['seconds']:.2f} s so"
    )


def _show_engines(console: Console, engines: dict[str, Any]) -> None:
    table = Table("engine", "starts", "what to do", title="Engines", title_justify="left")
    words = {True: "yes", False: "[red]no[/red]", None: "should"}
    for name, engine in engines.items():
        table.add_row(name, words[engine["starts"]], engine["problem"] or "")
    console.print(table)
    if any(engine["starts"] is None for engine in engines.values()):
        console.print("[dim]seamline doctor --start tries those that should[/dim]")


def _show_extras(console: Console, extras: dict[str, Any]) -> None:
    table = Table("extra", "installed", "what to do", title="Extras", title_justify="left")
    for name, extra in extras.items():
        have = ", ".join(f"{package} {found}" for package, found in extra["packages"].items() if found)
        table.add_row(name, have or "[dim]nothing[/dim]", extra["fix"].replace("[", r"\[") if extra["fix"] else "")
    console.print(table)
