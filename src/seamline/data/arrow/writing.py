"""Writing record batches aside as a file: on a Spark executor, on a Ray node, in this process.

The function travels by value and imports what it needs, because it runs where Seamline may not be found.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any


def write(target: dict[str, Any], part: str, batches: Iterator[Any]) -> dict[str, Any] | None:
    """Write the wanted columns of record batches to one file; says where it lies and what is in it.

    ``None`` where there are no rows. Only one record batch is held at a time.
    """
    import contextlib
    import os
    import shutil
    import socket
    import time
    import zlib

    import pyarrow as pa
    import pyarrow.compute as pc

    def folder() -> str:
        """The driver's own folder where this machine has it, else one that the cluster removes with the application."""
        if target["shared"] or os.path.isdir(target["folder"]):  # noqa: PTH112
            return str(target["folder"])
        of_the_application = ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS")
        places = next((os.environ[name] for name in of_the_application if os.environ.get(name)), None)
        if places:
            return os.path.join(places.replace(os.pathsep, ",").split(",")[0], str(target["name"]))  # noqa: PTH118
        above = os.path.dirname(target["folder"])  # noqa: PTH120
        for old in os.listdir(above):  # noqa: PTH208
            path = os.path.join(above, old)  # noqa: PTH118
            if old.startswith(target["away"]):
                with contextlib.suppress(OSError):
                    if time.time() - os.stat(path).st_mtime > target["forget_after_s"]:  # noqa: PTH116
                        shutil.rmtree(path, ignore_errors=True)
        return os.path.join(above, f"{target['away']}{target['name']}")  # noqa: PTH118

    def plain(batch: Any) -> Any:
        """The wanted columns and rows, without dictionaries: a file has room for one of each column only."""
        arrays = []
        for name in target["names"]:
            column = batch.column(name)
            arrays.append(column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)
        batch = pa.RecordBatch.from_arrays(arrays, names=target["names"])
        missing = [column for column in arrays if column.null_count]
        if target["drop"] and missing:
            keep = pc.is_valid(missing[0])
            for column in missing[1:]:
                keep = pc.and_(keep, pc.is_valid(column))
            batch = batch.filter(keep)
        return batch

    def pieces(batch: Any) -> Iterator[Any]:
        most = min(target["rows"], max(1, target["bytes"] * batch.num_rows // max(1, batch.nbytes)))
        if batch.num_rows <= 2 * most:
            yield batch
            return
        for first in range(0, batch.num_rows, most):
            yield batch.slice(first, most)

    def marked(before: int, batch: Any) -> int:
        """Of the first and last rows: other rows, or the same in another order, give another number."""
        ends = [batch.slice(0, 32), batch.slice(max(0, batch.num_rows - 32))]
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as lines:
            for end in ends:
                lines.write_batch(end)
        return zlib.crc32(memoryview(stream.getvalue()), zlib.crc32(str(batch.num_rows).encode(), before))

    def alone(batch: Any) -> bytes:
        """The first row of a record batch as bytes."""
        row = [pa.concat_arrays([column]) for column in batch.slice(0, 1).columns]
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, batch.schema) as lines:
            lines.write_batch(pa.RecordBatch.from_arrays(row, schema=batch.schema))
        return bytes(stream.getvalue().to_pybytes())

    writer: Any = None
    sink: Any = None
    path, example = "", b""
    rows: list[int] = []
    nulls: dict[str, int] = {}
    mark = 0
    try:
        for whole in batches:
            batch = plain(whole)
            if batch.num_rows == 0:
                continue
            if writer is None:
                where = folder()
                os.makedirs(where, mode=0o700, exist_ok=True)  # noqa: PTH103
                path = os.path.join(where, f"{part}-{os.urandom(6).hex()}.arrow")  # noqa: PTH118
                sink = pa.OSFile(path, "wb")
                writer = pa.ipc.new_file(sink, batch.schema)
                example = alone(batch)
            for name, column in zip(target["names"], batch.columns, strict=True):
                if column.null_count:
                    nulls[name] = nulls.get(name, 0) + column.null_count
            mark = marked(mark, batch)
            for piece in pieces(batch):
                writer.write_batch(piece)
                rows.append(piece.num_rows)
    except BaseException:
        if sink is not None:
            sink.close()
            os.unlink(path)  # noqa: PTH108
        raise
    if writer is None:
        return None
    writer.close()
    sink.close()
    return {
        "part": part,
        "host": socket.gethostname(),
        "path": path,
        "rows": rows,
        "nulls": nulls,
        "mark": mark,
        "example": example,
    }


def mark(ends: Sequence[Any], rows: int) -> int:
    """A number of some record batches, which differs when they do."""
    text = zlib.crc32(str(rows).encode())
    for batch in ends:
        for column in batch.columns:
            text = zlib.crc32(repr(column.to_pylist()).encode(), text)
    return text


write.__module__ = "__main__"  # functions of that module are pickled by value
