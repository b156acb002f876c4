"""A store like those of the cloud: keys and no folders, objects that appear whole, no rename, listings that go stale.

``bucket://NAME/key``, where ``NAME`` is the quoted path of a folder: so other processes find it too, once they have
imported this module. ``Bucket(folder).when("put", "model", "kill")`` makes it go wrong.
"""

import io
import os
import signal
import tempfile
from pathlib import Path
from urllib.parse import quote, unquote

import fsspec
from fsspec import AbstractFileSystem

from seamline.core.fault import Moment


class Bucket:
    """The folder behind a store, for tests to look into."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.url = f"bucket://{quote(str(self.folder), safe='')}"

    def objects(self):
        return sorted(unquote(file.name) for file in self.folder.iterdir() if not file.name.startswith("."))

    def when(self, key, what):
        """At the next object whose key has this in it: ``refuse`` it, or ``kill`` the process that brings it."""
        (self.folder / ".trouble").write_text(f"{what} {key}")


class BucketFileSystem(AbstractFileSystem):
    protocol = "bucket"

    def _object(self, path):
        name, _, key = self._strip_protocol(path).partition("/")
        return Path(unquote(name)) / quote(key, safe="")

    def _listing(self, path):
        path = self._strip_protocol(path)
        if path not in self.dircache:
            name, _, prefix = path.partition("/")
            prefix = f"{prefix}/" if prefix else ""
            entries = {}
            for file in sorted(Path(unquote(name)).iterdir()):
                key = unquote(file.name)
                if key.startswith(prefix) and not file.name.startswith("."):
                    child, slash, _ = key.removeprefix(prefix).partition("/")
                    entries[child] = {
                        "name": f"{name}/{prefix}{child}",
                        "type": "directory" if slash else "file",
                        "size": 0 if slash else file.stat().st_size,
                    }
            self.dircache[path] = list(entries.values())
        return self.dircache[path]

    def invalidate_cache(self, path=None):
        self.dircache.clear()

    def ls(self, path, detail=True, **_):
        entries = self._listing(path)
        if not entries:
            if not self._object(path).is_file():
                raise FileNotFoundError(path)
            entries = [self.info(path)]
        return entries if detail else [entry["name"] for entry in entries]

    def info(self, path, **_):
        path = self._strip_protocol(path)
        if "/" in path and self._object(path).is_file():
            return {"name": path, "type": "file", "size": self._object(path).stat().st_size}
        if self._listing(path):
            return {"name": path, "type": "directory", "size": 0}
        raise FileNotFoundError(path)

    def rm_file(self, path):
        self._object(path).unlink()

    def rm(self, path, recursive=False, maxdepth=None):
        for file in self.find(path):
            self.rm_file(file)

    def _open(self, path, mode="rb", **_):
        return self._object(path).open("rb") if mode == "rb" else _Upload(self._object(path))


class _Upload(io.BytesIO):
    """An object that is there once all of it has come."""

    def __init__(self, place):
        super().__init__()
        self.place = place
        self.refused = False

    def close(self):
        if not self.closed and not self.refused:
            trouble = self.place.parent / ".trouble"
            if trouble.exists():
                what, key = trouble.read_text().split()
                if key in unquote(self.place.name):
                    trouble.unlink()
                    if what == "kill":
                        os.kill(os.getpid(), signal.SIGKILL)
                    self.refused = True
                    raise OSError("the store is out of reach")
            with tempfile.NamedTemporaryFile(dir=self.place.parent, prefix=".upload-", delete=False) as file:
                file.write(self.getvalue())
            Path(file.name).rename(self.place)
        super().close()


class Known:
    """A fault that does no harm: where it travels, this module is imported and the store known."""

    def strike(self, moment: Moment):
        assert fsspec.get_filesystem_class("bucket") is BucketFileSystem


fsspec.register_implementation("bucket", BucketFileSystem, clobber=True)
