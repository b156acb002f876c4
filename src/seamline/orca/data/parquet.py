"""Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, cast

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq

from seamline.core.errors import ColumnError
from seamline.orca.data.column_types import MixedSchemasError
from seamline.orca.data.files import File, Paths, StorageOptions, find_files
from seamline.orca.data.sharing import even_shares, number_of_shards
from seamline.orca.xshards import XShards

SUFFIXES = (".parquet", ".pq")
Backend = Literal["pyarrow", "numpy_nullable"]


def read_parquet(
    path: Paths,
    *,
    columns: Sequence[str] | None = None,
    filters: Any = None,
    dtype_backend: Backend | None = None,
    num_shards: int | None = None,
    storage_options: StorageOptions = None,
) -> XShards:
    """Parquet files as shards of pandas frames; ``columns``, ``filters`` and ``dtype_backend`` are pandas'.

    Only footers are read now: they tell the types, which all files agree on, and the row groups, which are dealt out
    evenly; a shard has at least one. Folders named ``key=value`` within a folder that is read are columns.
    """
    files = find_files(path, SUFFIXES, storage_options)
    with ThreadPoolExecutor(16) as pool:
        footers = list(pool.map(_footer, files))
    keys = _Keys.of(files)
    schema = keys.added_to(agreed_schema([(footer.file.name, footer.schema) for footer in footers]))
    for name in columns or ():
        if name not in schema.names:
            raise ColumnError.missing(name, schema.names)
    groups = [(footer.file, number) for footer in footers for number in range(len(footer.sizes))]
    sizes = [size for footer in footers for size in footer.sizes]
    count = number_of_shards(num_shards, sum(file.size for file in files))
    nulls = frozenset().union(*(footer.nulls for footer in footers))
    load = ParquetReader(schema, _with_index(columns, schema), filters, dtype_backend, nulls, keys)
    return XShards.from_items(even_shares(groups, sizes, count), load)


def agreed_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """One schema for files of these, or an error that names two files and the column on which they differ."""
    first, agreed = schemas[0]
    owners = {field.name: first for field in agreed}
    for file, schema in schemas[1:]:
        for name in [*agreed.names, *schema.names]:
            if (name in agreed.names) != (name in schema.names):
                has, lacks = (first, file) if name in agreed.names else (file, first)
                raise MixedSchemasError(
                    f"column {name!r} of {has} is missing in {lacks}; read files of different columns apart"
                )
        for number, mine in enumerate(agreed):
            theirs = schema.field(mine.name)
            try:
                both = pa.unify_schemas([pa.schema([mine]), pa.schema([theirs])], promote_options="permissive")
            except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
                raise MixedSchemasError(
                    f"column {mine.name!r} is {mine.type} in {owners[mine.name]} and {theirs.type} in {file}; "
                    "write one of the files anew, or read them apart"
                ) from error
            if pa.types.is_null(mine.type):
                owners[mine.name] = file
            agreed = agreed.set(number, both.field(0).with_metadata(mine.metadata))
    return agreed


@dataclass(frozen=True, slots=True)
class ParquetReader:
    """Row groups of files as one frame."""

    schema: pa.Schema
    columns: Sequence[str] | None
    filters: Any
    backend: Backend | None
    nulls: frozenset[str]
    """Columns that hold nulls somewhere, and so are of the type that pandas needs for those everywhere."""
    keys: _Keys

    def __call__(self, groups: Sequence[tuple[File, int]]) -> pd.DataFrame:
        numbers: dict[File, list[int]] = {}
        for file, number in groups:
            numbers.setdefault(file, []).append(number)
        tables = [self._table(file, chosen) for file, chosen in numbers.items()]
        table = pa.concat_tables(tables) if tables else self._nothing()
        return self._frame(table)

    def _table(self, file: File, groups: list[int]) -> pa.Table:
        system, path = _arrow_file_system(file)
        file_of_rows = ds.ParquetFileFormat().make_fragment(
            path, filesystem=system, partition_expression=self.keys.of_file(file)
        )
        fragment = file_of_rows.subset(row_group_ids=groups)  # make_fragment(row_groups=...) forgets their order
        condition = None if self.filters is None else pq.filters_to_expression(self.filters)
        columns = None if self.columns is None else list(self.columns)
        return fragment.to_table(schema=self.schema, columns=columns, filter=condition)

    def _nothing(self) -> pa.Table:
        table = self.schema.empty_table()
        return table if self.columns is None else table.select(list(self.columns))

    def _frame(self, table: pa.Table) -> pd.DataFrame:
        if self.backend is not None:
            mapper = pd.ArrowDtype if self.backend == "pyarrow" else _NULLABLE.get
            return cast("pd.DataFrame", table.to_pandas(types_mapper=mapper))
        for number, column in enumerate(table.schema):
            if column.name in self.nulls and pa.types.is_integer(column.type):
                table = table.set_column(number, column.name, table.column(number).cast(pa.float64()))
        frame: pd.DataFrame = table.to_pandas()
        bools = [field.name for field in table.schema if pa.types.is_boolean(field.type) and field.name in self.nulls]
        return frame.astype(dict.fromkeys([name for name in bools if name in frame], object)) if bools else frame


_NULLABLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.uint8(): pd.UInt8Dtype(),
    pa.uint16(): pd.UInt16Dtype(),
    pa.uint32(): pd.UInt32Dtype(),
    pa.uint64(): pd.UInt64Dtype(),
    pa.float32(): pd.Float32Dtype(),
    pa.float64(): pd.Float64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(),
    pa.large_string(): pd.StringDtype(),
}


@dataclass(frozen=True, slots=True)
class _Keys:
    """Columns whose values stand in the names of folders."""

    schema: pa.Schema | None

    @classmethod
    def of(cls, files: Sequence[File]) -> _Keys:
        values: dict[str, list[str]] = {}
        for file in files:
            for key, equals, value in (part.partition("=") for part in file.within.split("/")[:-1]):
                if equals:
                    values.setdefault(key, []).append(value)
        types = {key: pa.int64() if all(map(_is_whole, found)) else pa.string() for key, found in values.items()}
        return cls(pa.schema(types) if types else None)

    def added_to(self, schema: pa.Schema) -> pa.Schema:
        for field in self.schema or ():
            if field.name not in schema.names:
                schema = schema.append(field)
        return schema

    def of_file(self, file: File) -> Any:
        if self.schema is None or "=" not in file.within:
            return None
        return ds.HivePartitioning(self.schema).parse(file.within)


def _is_whole(value: str) -> bool:
    return value.removeprefix("-").isdecimal()


@dataclass(frozen=True, slots=True)
class _Footer:
    file: File
    schema: pa.Schema
    sizes: Sequence[int]
    nulls: frozenset[str]


def _footer(file: File) -> _Footer:
    try:
        with file.open() as stream:
            metadata = pq.read_metadata(stream)
            schema = metadata.schema.to_arrow_schema()
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file.name} is not a Parquet file: {error}") from error
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return _Footer(file, schema, [group.total_byte_size for group in groups], frozenset(_with_nulls(groups)))


def _with_nulls(groups: Sequence[Any]) -> set[str]:
    """Columns with nulls, or of which nobody has counted them."""
    found = set()
    for group in (group for group in groups if group.num_rows):
        for number in range(group.num_columns):
            column = group.column(number)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                found.add(column.path_in_schema)
    return found


def _with_index(columns: Sequence[str] | None, schema: pa.Schema) -> Sequence[str] | None:
    """The columns that pandas' index was written as come along, as they do in pandas."""
    if columns is None:
        return None
    notes: Mapping[str, Any] = schema.pandas_metadata or {}
    index = [name for name in notes.get("index_columns", ()) if isinstance(name, str) and name not in columns]
    return [*columns, *index]


def _arrow_file_system(file: File) -> tuple[pyarrow.fs.FileSystem, str]:
    system, path = file.file_system()
    if file.url.startswith("file://"):
        return pyarrow.fs.LocalFileSystem(use_mmap=True), path
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(system)), path
