"""Parquet files and folders of them, read by row group with no detour."""

from __future__ import annotations

import fnmatch
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from seamline.core.errors import DataError
from seamline.core.shards import Reading
from seamline.data.arrow.chunks import ParquetChunk
from seamline.data.arrow.layout import unfilled
from seamline.data.arrow.shards import ArrowShards, Gathered
from seamline.data.arrow.staging import Stage

if TYPE_CHECKING:
    import pyarrow as pa


class ParquetShards(ArrowShards):
    """A path, a pattern or a URL of Parquet files, or a folder of them; several in a list.

    Workers read the files themselves, so they have to see them under the same path.
    """

    _stage: Stage | None = None

    @staticmethod
    def accepts(data: object) -> bool:
        several = data if isinstance(data, list) and data else [data]
        return all(isinstance(each, (str, Path)) for each in several)

    def names(self) -> Sequence[str]:
        return list(self._files[0].schema.names)

    def gather(self, names: Sequence[str], reading: Reading) -> Gathered:
        for file in self._files[1:]:
            self._agree(file, names)
        nulls = {name: sum(file.nulls(name) for file in self._files) for name in names}
        if self._columns.na == "drop" and any(nulls.values()):
            self._stage = Stage(names, self._columns, reading)
            return self._stage.write(self._batches(names))
        for name, count in nulls.items():
            unfilled(name, count, self._columns.na)
        chunks = [ParquetChunk(file.path, file.filesystem, file.groups) for file in self._files]
        example = next(self._batches(names, rows=1), None)
        if example is None:
            raise DataError("the data has no rows")
        mark = zlib.crc32(repr([(file.size, file.groups) for file in self._files]).encode())
        return Gathered(chunks, example, mark)

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    @cached_property
    def _files(self) -> list[_File]:
        several = self._data if isinstance(self._data, list) else [self._data]
        found = [file for each in several for file in _found(str(each))]
        if not found:
            raise FileNotFoundError(f"no Parquet file in {self._data}")
        return found

    def _agree(self, file: _File, names: Sequence[str]) -> None:
        first = self._files[0]
        for name in names:
            if name not in file.schema.names:
                raise DataError(f"{first.path} has a column {name!r} and {file.path} has not; give files of one kind")
            ours, theirs = first.schema.field(name).type, file.schema.field(name).type
            if ours != theirs:
                raise DataError(
                    f"column {name!r} is {ours} in {first.path} and {theirs} in {file.path}; "
                    "write the files anew with one type"
                )

    def _batches(self, names: Sequence[str], rows: int | None = None) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            chunk = ParquetChunk(file.path, file.filesystem, file.groups)
            stop = sum(file.groups) if rows is None else min(rows, sum(file.groups))
            if stop:
                yield from chunk.read(0, stop, names)


class _File:
    """What the end of a Parquet file says."""

    def __init__(self, path: str, filesystem: Any) -> None:
        import pyarrow.parquet as pq

        self.path = path
        self.filesystem = filesystem
        self.size = filesystem.get_file_info(path).size
        try:
            with filesystem.open_input_file(path) as source, pq.ParquetFile(source) as file:
                self.schema = file.schema_arrow
                self.metadata = file.metadata
        except Exception as error:
            raise DataError(f"{path} cannot be read as Parquet: {error}") from error
        self.groups = tuple(self.metadata.row_group(n).num_rows for n in range(self.metadata.num_row_groups))

    def nulls(self, name: str) -> int:
        """Missing values in a column that holds one value for each row, as far as the file says."""
        column = next(
            (n for n in range(self.metadata.num_columns) if self.metadata.schema.column(n).path == name), None
        )
        if column is None:
            return 0
        statistics = [self.metadata.row_group(n).column(column).statistics for n in range(len(self.groups))]
        return sum(each.null_count or 0 for each in statistics if each is not None)


def _found(path: str) -> list[_File]:
    """The files of a path, pattern, folder or URL, in the order of their names."""
    filesystem, inside = _filesystem(path)
    return [_File(name, filesystem) for name in _paths(filesystem, inside, path)]


def _paths(filesystem: Any, inside: str, asked: str) -> list[str]:
    import pyarrow.fs as fs

    if any(letter in inside for letter in "*?["):
        above = PurePosixPath(*_before_pattern(PurePosixPath(inside).parts))
        files = filesystem.get_file_info(fs.FileSelector(str(above), recursive=True, allow_not_found=True))
        return sorted(f.path for f in files if f.is_file and fnmatch.fnmatch(f.path, inside))
    info = filesystem.get_file_info(inside)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{asked} does not exist")
    if info.is_file:
        return [inside]
    files = filesystem.get_file_info(fs.FileSelector(inside, recursive=True))
    return sorted(f.path for f in files if f.is_file and f.path.endswith(".parquet") and not _hidden(f.base_name))


def _before_pattern(parts: Sequence[str]) -> Iterator[str]:
    for part in parts:
        if any(letter in part for letter in "*?["):
            return
        yield part


def _hidden(name: str) -> bool:
    return name.startswith(("_", "."))


def _filesystem(path: str) -> tuple[Any, str]:
    """Arrow's own file system for a path or URL, else one of fsspec."""
    import pyarrow.fs as fs

    if "://" not in path:
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        return fs.FileSystem.from_uri(path)  # type: ignore[no-any-return]
    except Exception as error:
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError:
            raise DataError(f"{path} cannot be opened ({error}); pip install fsspec for more kinds of URL") from error
        other, inside = fsspec.core.url_to_fs(path)
        return fs.PyFileSystem(fs.FSSpecHandler(other)), inside
