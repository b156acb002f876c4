"""Shards as Arrow tables, and as Parquet or Arrow files in a folder; nothing of it needs pickle."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from seamline.core import rows, tree
from seamline.core.collection import Collection
from seamline.core.errors import ColumnError, SeamlineError
from seamline.orca.xshards.frames import as_frame
from seamline.orca.xshards.survey import surveyed

CARD = "shards.json"
_VERSION = 1
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
class Saved:
    """A folder of shards: where its files are and how they are read."""

    parts: tuple[str, ...]
    format: str
    structure: Any
    """``None`` for frames; for arrays a nest with the numbers of columns at its leaves."""


def save(shards: Collection, path: str | os.PathLike[str], format: str) -> None:
    if format not in _FORMATS:
        raise ValueError(f"no format {format!r}; there are {', '.join(_FORMATS)}")
    target = Path(path).absolute()
    if target.exists() and not (target / CARD).exists():
        raise SeamlineError(f"{target} exists and was not saved by Seamline; choose another path")
    unfinished = target.with_name(f".{target.name}-{secrets.token_hex(4)}")
    unfinished.mkdir(parents=True)
    try:
        structures = shards.map(_Write(str(unfinished), format)).collect()
        if any(structure != structures[0] for structure in structures):
            raise SeamlineError("shards of different structures cannot be saved together; make them alike")
        card = {
            "version": _VERSION,
            "format": format,
            "count": len(structures),
            "structure": structures[0],
        }
        (unfinished / CARD).write_text(json.dumps(card))
        if target.exists():
            shutil.rmtree(target)
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def opened(path: str | os.PathLike[str]) -> Saved:
    folder = Path(path).absolute()
    if not (folder / CARD).exists():
        raise FileNotFoundError(f"there are no saved shards at {folder}; give the path that save was given")
    card = json.loads((folder / CARD).read_text())
    if card["version"] > _VERSION:
        raise SeamlineError(f"{folder} was saved by a newer Seamline; upgrade this one")
    parts = tuple(str(folder / _file(number, card["format"])) for number in range(card["count"]))
    return Saved(parts, card["format"], card["structure"])


def read(path: str, saved: Saved) -> Any:
    """One shard of a folder, as it was."""
    table = _FORMATS[saved.format][1](path)
    if saved.structure is None:
        return table.to_pandas()
    shapes = json.loads(table.schema.metadata[_SHAPE])
    columns = [_array(table.column(number), *shape) for number, shape in enumerate(shapes)]
    return _rebuilt(saved.structure, columns)


@dataclass(frozen=True, slots=True)
class _Write:
    folder: str
    format: str

    def __call__(self, index: int, shard: Any) -> Any:
        structure, table = _taken_apart(shard)
        _FORMATS[self.format][0](table, str(Path(self.folder) / _file(index, self.format)))
        return structure


@dataclass(frozen=True, slots=True)
class _Cast:
    schema: Any

    def __call__(self, _index: int, table: Any) -> Any:
        return table.cast(self.schema)


def _as_table(_index: int, frame: Any) -> Any:
    return pa.Table.from_pandas(frame, preserve_index=False)


def _schema(_index: int, table: Any) -> Any:
    return table.schema


def _file(number: int, format: str) -> str:
    return f"part-{number:05}.{format}"


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
