"""Append-only files of checksummed Arrow batches, where a finished attempt becomes durable.

A Parquet file is readable only when complete, so a worker first appends to a journal. Each frame
is a marker, the payload's length, its CRC-32 and the payload, one Arrow record batch. A torn tail
or a flipped bit costs the frames it touches: the reader goes on at the next marker.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

MARKER = b"\xffBAN\r\n\x1a\n"  # no UTF-8 text holds a byte of 255, so no model output holds it
_HEAD = struct.Struct("<8sII")
_MOST_ABOUT = 1 << 24  # bytes that a journal says of itself
_UNREADABLE = (pa.ArrowException, OSError, ValueError, EOFError)


class Journal:
    """Append rows to a file of one writer; the metadata of `columns` become its first frame.

    What `append` wrote survives the death of the process, what `sync` has seen a power cut too.
    """

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        self.path, self.columns = path, columns
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        sync_folder(path.parent)  # or a power cut takes the name, and with it every row
        self.size = self._synced = 0
        if columns.metadata:
            self._write(_framed(columns.serialize()))

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write the rows as one frame. Raises OSError: what was appended before stays readable."""
        self._write(encode(rows, self.columns))

    def _write(self, frame: bytes) -> None:
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self.size)  # shrinking needs no space: no torn frame stays
            raise
        self.size += len(frame)

    def sync(self) -> None:
        """Flush to the disk what is new; may run in another thread than `append`."""
        size = self.size
        if size > self._synced:
            os.fsync(self._file)
            self._synced = size

    def close(self) -> None:
        os.close(self._file)


def sync_folder(folder: Path) -> None:
    """Make new and changed names in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def encode(rows: list[dict[str, Any]], columns: pa.Schema) -> bytes:
    """Return rows as one frame."""
    return _framed(pa.RecordBatch.from_pylist(rows, schema=columns).serialize())


def _framed(payload: pa.Buffer) -> bytes:
    return _HEAD.pack(MARKER, payload.size, zlib.crc32(payload)) + bytes(payload)


def metadata(path: Path) -> dict[bytes, bytes]:
    """Return the metadata of a journal; none if they are damaged."""
    with path.open("rb") as file:
        payload = _payload(memoryview(file.read(_MOST_ABOUT)), 0)
    return dict((_schema(payload or b"") or pa.schema([])).metadata or {})


def read(path: Path, columns: pa.Schema) -> tuple[list[pa.RecordBatch], list[str]]:
    """Return all sound frames of a journal, and one line for each damaged stretch of it.

    Safe while another process appends: an unfinished last frame is left out and named.
    """
    data, batches, damage = path.read_bytes(), list[pa.RecordBatch](), list[str]()
    for start, end, batch in _frames(data, columns):
        if batch is None:
            what = "unfinished last frame" if end == len(data) else "damaged frame"
            damage.append(f"{path.name}: {what}, bytes {start} to {end}")
        elif len(batch):
            batches.append(batch)
    return batches, damage


def read_on(path: Path, columns: pa.Schema, start: int) -> tuple[list[pa.RecordBatch], int]:
    """Return the sound frames from byte `start` on, and where to read on when it has grown."""
    with path.open("rb") as file:
        file.seek(start)
        sound = [(end, batch) for _, end, batch in _frames(file.read(), columns) if batch]
    # What follows the last sound one may be the beginning of a frame.
    return [batch for _, batch in sound], start + (sound[-1][0] if sound else 0)


def _frames(data: bytes, columns: pa.Schema) -> Iterator[tuple[int, int, pa.RecordBatch | None]]:
    """Yield (start, end, batch) of each frame; the batch is None for a damaged stretch."""
    view, at = memoryview(data), 0
    while at < len(data):
        if (payload := _payload(view, at)) is not None:
            end, batch = at + _HEAD.size + len(payload), _decode(payload, columns)
        else:
            following = data.find(MARKER, at + 1)
            end, batch = len(data) if following < 0 else following, None
        yield at, end, batch
        at = end


def _payload(view: memoryview, at: int) -> memoryview | None:
    """Return the content of the frame at this byte; None where there is no sound one."""
    if view[at : at + 8] != MARKER or at + _HEAD.size > len(view):
        return None
    _, length, checksum = _HEAD.unpack_from(view, at)
    payload = view[at + _HEAD.size : at + _HEAD.size + length]
    return payload if len(payload) == length and zlib.crc32(payload) == checksum else None


def _decode(payload: memoryview, columns: pa.Schema) -> pa.RecordBatch | None:
    """Return a frame's rows, none of the first one's; None: a forged checksum, or other columns."""
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), columns)
        batch.validate(full=True)
        return batch
    except _UNREADABLE:
        return None if _schema(payload) is None else pa.RecordBatch.from_pylist([], columns)


def _schema(payload: bytes | memoryview) -> pa.Schema | None:
    try:
        return pa.ipc.read_schema(pa.py_buffer(payload))
    except _UNREADABLE:
        return None
