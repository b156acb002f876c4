"""Shards as Arrow tables, and as Parquet or Arrow files in a folder; nothing of it needs pickle."""

from __future__ import annotations

import json
import os
import posixpath
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
from fsspec.core import url_to_fs  # type: ignore[import-untyped]

from seamline.core import rows, tree
from seamline.core.collection import Collection
from seamline.core.errors import ColumnError, SeamlineError
from seamline.orca.xshards.frames import as_frame
from seamline.orca.xshards.survey import surveyed

CARD = "shards.json"
_PART = "part-"
_VERSION = 2
_SHAPE = b"seamline.shapes"
_FORMATS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "parquet": (lambda table, path: pq.write_table(table, path), lambda path: pq.read_table(path)),
    "arrow": (
        lambda table, path: feather.write_feather(table, path, compression="uncompressed"),
        lambda path: feather.read_table(path, memory_map=False),
    ),
}


def as_pandas(_index: int, table: Any) -> pd.DataFrame:
    """An Arrow table as a pandas frame; columns that need no conversion are not copied."""
    frame: pd.DataFrame = table.to_pandas(split_blocks=True)
    return frame


def tables(shards: Collection) -> tuple[Collection, Any]:
    """Tables as Arrow tables of one schema, and the schema."""
    same, _survey = surveyed(shards)
    found = same.map(_as_table)
    schemas = found.map(_schema).collect()
    schema = pa.unify_schemas(schemas, promote_options="permissive").remove_metadata()
    return found.map(_Cast(schema)), schema


@dataclass(frozen=True, slots=True)
class Folder:
    """Where files lie, on any file system that fsspec knows; credentials travel along and are never shown."""

    url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def at(cls, path: str | os.PathLike[str], options: Mapping[str, Any] | None) -> Folder:
        fs, inside = url_to_fs(os.fspath(path), **(options or {}))  # a relative path becomes an absolute one
        return cls(fs.unstrip_protocol(inside), options or {})

    @property
    def name(self) -> str:
        return self.url.removeprefix("file://")

    def open(self, name: str, mode: Literal["rb", "wb"]) -> Any:
        """A file of it as a stream, for Arrow too; a disk of this machine needs no detour through Python."""
        fs, inside = url_to_fs(self.url, **self.options)
        if mode == "wb":
            fs.makedirs(inside, exist_ok=True)
        path = posixpath.join(inside, name)
        return pa.OSFile(path, mode) if self.url.startswith("file://") else fs.open(path, mode)

    def rename(self, name: str, new: str) -> None:
        fs, inside = url_to_fs(self.url, **self.options)
        fs.mv(posixpath.join(inside, name), posixpath.join(inside, new))

    def names(self) -> list[str] | None:
        """What lies in it; ``None`` if it is not there."""
        fs, inside = url_to_fs(self.url, **self.options)
        fs.invalidate_cache()
        return [posixpath.basename(each) for each in fs.ls(inside, detail=False)] if fs.exists(inside) else None

    def remove(self, names: list[str]) -> None:
        fs, inside = url_to_fs(self.url, **self.options)
        for name in names:
            fs.rm_file(posixpath.join(inside, name))
        if names and not self.names():
            fs.rmdir(inside)


@dataclass(frozen=True, slots=True)
class Saved:
    """A folder of shards: what its files are called and how they are read."""

    folder: Folder
    parts: tuple[str, ...]
    format: str
    structure: Any
    """``None`` for frames; for arrays a nest with the numbers of columns at its leaves."""


def save(
    shards: Collection, path: str | os.PathLike[str], format: str, options: Mapping[str, Any] | None = None
) -> None:
    """Files of new names first, and then the card that names them: who reads finds all of the old or all of the new."""
    if format not in _FORMATS:
        raise ValueError(f"no format {format!r}; there are {', '.join(_FORMATS)}")
    folder = Folder.at(path, options)
    before = folder.names()
    if before is not None and CARD not in before:
        raise SeamlineError(f"{folder.name} exists and was not saved by Seamline; choose another path")
    writing = _Write(folder, format, secrets.token_hex(4))
    try:
        structures = shards.map(writing).collect()
        if any(structure != structures[0] for structure in structures):
            raise SeamlineError("shards of different structures cannot be saved together; make them alike")
        card = {
            "version": _VERSION,
            "format": format,
            "parts": [writing.name(number) for number in range(len(structures))],
            "structure": structures[0],
        }
        with folder.open(f"{writing.token}-{CARD}", "wb") as stream:
            stream.write(json.dumps(card).encode())
        folder.rename(f"{writing.token}-{CARD}", CARD)
    except BaseException:
        folder.remove([name for name in folder.names() or () if writing.token in name])
        raise
    folder.remove([name for name in before or () if name.startswith(_PART)])


def opened(path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Saved:
    folder = Folder.at(path, options)
    if CARD not in (folder.names() or ()):
        raise FileNotFoundError(f"there are no saved shards at {folder.name}; give the path that save was given")
    with folder.open(CARD, "rb") as stream:
        card = json.loads(stream.read())
    if card["version"] > _VERSION:
        raise SeamlineError(f"{folder.name} was saved by a newer Seamline; upgrade this one")
    numbered = (f"{_PART}{number:05}.{card['format']}" for number in range(card.get("count", 0)))  # of version 1
    return Saved(folder, tuple(card.get("parts") or numbered), card["format"], card["structure"])


def read(name: str, saved: Saved) -> Any:
    """One shard of a folder, as it was."""
    with saved.folder.open(name, "rb") as stream:
        table = _FORMATS[saved.format][1](stream)
    if saved.structure is None:
        return table.to_pandas()
    shapes = json.loads(table.schema.metadata[_SHAPE])
    columns = [_array(table.column(number), *shape) for number, shape in enumerate(shapes)]
    return _rebuilt(saved.structure, columns)


@dataclass(frozen=True, slots=True)
class _Write:
    folder: Folder
    format: str
    token: str

    def __call__(self, index: int, shard: Any) -> Any:
        structure, table = _taken_apart(shard)
        with self.folder.open(self.name(index), "wb") as stream:
            _FORMATS[self.format][0](table, stream)
        return structure

    def name(self, index: int) -> str:
        return f"{_PART}{index:05}-{self.token}.{self.format}"


@dataclass(frozen=True, slots=True)
class _Cast:
    schema: Any

    def __call__(self, _index: int, table: Any) -> Any:
        return table.cast(self.schema)


def _as_table(_index: int, frame: Any) -> Any:
    return pa.Table.from_pandas(frame, preserve_index=False)


def _schema(_index: int, table: Any) -> Any:
    return table.schema


def _taken_apart(shard: Any) -> tuple[Any, Any]:
    """A description as JSON has it, and a table."""
    if not isinstance(shard, np.ndarray) and not (rows.is_nest(shard) and _of_arrays(shard)):
        try:
            return None, pa.Table.from_pandas(as_frame(shard))
        except ColumnError as error:
            raise SeamlineError(
                f"a shard of type {type(shard).__name__} cannot be saved; frames, arrays and nests of arrays can"
            ) from error
    rows.count(shard)
    arrays = [shard] if isinstance(shard, np.ndarray) else list(tree.leaves(shard))
    shapes = [(array.dtype.str, list(array.shape[1:])) for array in arrays]
    columns = [pa.array(_flat(array)) for array in arrays]
    table = pa.table(columns, names=[str(number) for number in range(len(arrays))])
    return _structure(shard, iter(range(len(arrays)))), table.replace_schema_metadata({_SHAPE: json.dumps(shapes)})


def _of_arrays(shard: Any) -> bool:
    return all(isinstance(leaf, np.ndarray) for leaf in tree.leaves(shard))


def _flat(array: Any) -> Any:
    """One value for each row: a number, or the row's bytes in a list of fixed size."""
    if array.ndim == 1:
        return array
    width = int(np.prod(array.shape[1:]))
    values = pa.array(np.ascontiguousarray(array).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, width) if width else pa.nulls(len(array))


def _array(column: Any, dtype: str, shape: list[int]) -> Any:
    whole = column.combine_chunks()
    if pa.types.is_null(whole.type):
        return np.zeros((len(whole), *shape), dtype)
    values = whole.flatten() if pa.types.is_fixed_size_list(whole.type) else whole
    return np.array(values.to_numpy(zero_copy_only=False), dtype).reshape(len(whole), *shape)


def _structure(value: Any, numbers: Any) -> Any:
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise SeamlineError("dicts are saved with texts as keys; rename those that are not")
        return {"dict": {key: _structure(each, numbers) for key, each in value.items()}}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_structure(each, numbers) for each in value]}
    return next(numbers)


def _rebuilt(structure: Any, columns: list[Any]) -> Any:
    if not isinstance(structure, dict):
        return columns[structure]
    (kind, inner), *_ = structure.items()
    if kind == "dict":
        return {key: _rebuilt(each, columns) for key, each in inner.items()}
    parts = [_rebuilt(each, columns) for each in inner]
    return tuple(parts) if kind == "tuple" else parts
