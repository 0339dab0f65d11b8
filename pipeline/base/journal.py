"""Append-only files of checksummed Arrow batches, in which finished attempts become durable.

Each frame is a marker, the payload's length, its CRC-32 and the payload, one Arrow record batch. A
torn tail or a flipped bit costs the frames it touches: the reader continues at the next marker.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bayes_at_n.pipeline.base.atomic import sync_folder

MARKER = b"\xffBAN\r\n\x1a\n"  # byte 255 is in no UTF-8 text, and so in no model's output
_HEAD = struct.Struct("<8sII")
_MOST_METADATA = 1 << 24  # bytes
# A frame with a valid checksum may be forged, or have other columns.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, EOFError)


class Journal:
    """A journal and its only writer; metadata of `columns` become the first frame.

    Rows survive the death of the process after `append`, and a power cut after `sync`.
    """

    def __init__(self, path: Path, columns: pa.Schema) -> None:
        self.path, self.columns, self.size = path, columns, 0
        path.parent.mkdir(exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        sync_folder(path.parent)  # a power cut must not lose the name and with it every row
        if columns.metadata:
            self._write(columns.serialize())

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write rows as one frame. Raises OSError: what was appended before stays readable."""
        self._write(pa.RecordBatch.from_pylist(rows, schema=self.columns).serialize())

    def _write(self, payload: pa.Buffer) -> None:
        view = memoryview(frame := framed(payload))
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, self.size)  # remove the torn frame; this needs no space
            raise
        self.size += len(frame)

    def sync(self) -> None:
        """Flush to disk; may run in another thread than `append`."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def framed(payload: pa.Buffer) -> bytes:
    """Return a serialized batch or schema as one frame."""
    return _HEAD.pack(MARKER, payload.size, zlib.crc32(payload)) + bytes(payload)


def metadata(path: Path) -> dict[bytes, bytes]:
    """Return the metadata of a journal; empty if damaged."""
    with path.open("rb") as file:
        _, _, payload = next(_frames(file.read(_MOST_METADATA)), (0, 0, b""))
    try:
        return dict(pa.ipc.read_schema(pa.py_buffer(payload)).metadata or {})
    except _UNREADABLE:
        return {}


def read(path: Path, columns: pa.Schema) -> tuple[list[pa.RecordBatch], list[str]]:
    """Read a journal: batches, and a line per damaged stretch.

    Safe while another process appends: an unfinished last frame is left out, with a line.
    """
    batches, damage = list[pa.RecordBatch](), list[str]()
    data = path.read_bytes()
    for begin, end, payload in _frames(data):
        try:
            message = pa.ipc.read_message(pa.py_buffer(payload))
            if message.type != "schema":
                batch = pa.ipc.read_record_batch(message, columns)
                batch.validate(full=True)
                batches.append(batch)
        except _UNREADABLE:
            fault = "unfinished last frame" if end == len(data) else "damaged frame"
            damage.append(f"{path.name}: {fault}, bytes {begin} to {end}")
    return batches, damage


def _frames(data: bytes) -> Iterator[tuple[int, int, bytes | memoryview]]:
    """Yield (start, end, payload) of each frame; a damaged stretch has an empty payload."""
    start, view = 0, memoryview(data)
    while start < len(data):
        following = data.find(MARKER, start + 1)
        end, payload = len(data) if following < 0 else following, view[:0]
        if data.startswith(MARKER, start) and start + _HEAD.size <= len(data):
            _, length, checksum = _HEAD.unpack_from(data, start)
            content = view[start + _HEAD.size : start + _HEAD.size + length]
            if len(content) == length and zlib.crc32(content) == checksum:
                end, payload = start + _HEAD.size + length, content
        yield start, end, payload
        start = end
