"""A folder that several processes share, that goes with the last of them, and that is swept up if they were killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

_GATE, _USERS = "gate", "users"


class SharedFolder:
    """A place for files while anybody uses it.

    Whoever is in it holds a lock that ends with the process, however that ends. So a folder without a holder was left
    by a run that was killed: it is emptied by the next that wants it, and swept away by the next run that sees it.
    Folders of one kind have names that begin with ``prefix``.
    """

    def __init__(self, path: Path, prepare: Callable[[Path], None], *, prefix: str) -> None:
        """``prepare`` fills the empty folder; those who come later find what the first has made."""
        self.path = path
        if path.name.startswith(prefix):
            sweep(path.parent, prefix, but=path)
        if path.exists() and any(path.iterdir()) and not (path / _GATE).exists():
            raise FileExistsError(errno.EEXIST, f"{path} holds other files")
        with _through_gate(path, make=True):
            users = os.open(path / _USERS, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if _alone(users):
                    _empty(path)
                    prepare(path)
                fcntl.flock(users, fcntl.LOCK_SH)
            except BaseException:
                os.close(users)
                shutil.rmtree(path, ignore_errors=True)
                raise
        self.close = weakref.finalize(self, _leave, path, users, os.getpid())


def new_name(prefix: str) -> str:
    """A name for a folder that later runs recognise, should this one be killed."""
    return f"{prefix}{os.getpid()}-{os.urandom(4).hex()}"


def new_path(prefix: str) -> Path:
    """Such a folder among the temporary files of this machine."""
    return Path(tempfile.gettempdir()) / new_name(prefix)


def sweep(parent: Path, prefix: str, but: Path | None = None) -> None:
    """Remove the folders of one kind whose holders are gone."""
    for path in parent.glob(f"{prefix}*"):
        if path == but:
            continue
        with contextlib.suppress(OSError), _through_gate(path, make=False):
            users = os.open(path / _USERS, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                if _alone(users):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(users)


def _leave(path: Path, users: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child ends; the folder is its parent's
    try:
        with _through_gate(path, make=False):
            if _alone(users):
                shutil.rmtree(path, ignore_errors=True)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(users)


def _alone(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _through_gate(path: Path, *, make: bool) -> Iterator[None]:
    """One at a time comes or goes; if the folder vanished while waiting, it is made again."""
    while True:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            gate = os.open(path / _GATE, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            if make:
                continue
            raise
        try:
            fcntl.flock(gate, fcntl.LOCK_EX)
            try:
                still_there = (path / _GATE).stat().st_ino == os.fstat(gate).st_ino
            except FileNotFoundError:
                still_there = False
            if still_there:
                yield
                return
            if not make:
                raise FileNotFoundError(path)
        finally:
            os.close(gate)


def _empty(path: Path) -> None:
    for file in path.iterdir():
        if file.name not in (_GATE, _USERS):
            file.unlink()
