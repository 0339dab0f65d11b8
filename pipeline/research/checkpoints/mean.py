"""The element-wise mean of weights that are never in memory: block by block, each file read once.

For every checkpoint a thread reads ahead and hashes what it read; this thread adds, divides, rounds
and writes. What is in memory are three blocks of every checkpoint, whatever the size of the model.
"""

import contextlib
import math
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from blake3 import blake3

from pipeline.base.errors import UserError
from pipeline.research.checkpoints import rounding
from pipeline.research.checkpoints.alike import FLOATS
from pipeline.research.checkpoints.weights import Shard, Tensor, Weights

_AHEAD = 3  # blocks in memory: one in work, two on their way
_BLOCK, _MEMORY = 2 << 20, 64 << 20  # bytes: of a block, and of all blocks of all checkpoints
_CHUNK = 32768  # elements in float64 fit a core's cache; and torch starts no threads for so few
_FLUSH = 64 << 20  # bytes after which the disk is told to begin
_DTYPES: dict[str, Any] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


class Piece(NamedTuple):
    """A stretch of one tensor: elements `first` to `first + length`."""

    name: str
    first: int
    length: int


class Reader:
    """The files of one checkpoint: a thread that reads in order, and hashes as it reads.

    A file that is read from its first byte to its last is hashed on the way. Where the newest
    checkpoint is sharded in another way the order is another, and `hashes` reads the rest again.
    """

    def __init__(self, source: Weights) -> None:
        self.source = source
        self.thread = ThreadPoolExecutor(1)
        self._shards = {shard.path: shard for shard in source.shards}
        self._hashes = {path: blake3() for path in self._shards}
        self._hashed = dict.fromkeys(self._shards, 0)  # bytes
        self._open: tuple[Path, int] | None = None

    def ask(self, tensor: Tensor, first: int, into: memoryview) -> "Future[None]":
        """Fill `into` with the bytes of a tensor from its byte `first` on."""
        return self.thread.submit(self._read, tensor.file, tensor.start + first, into)

    @property
    def unhashed(self) -> int:
        """Bytes that `hashes` would read."""
        return sum(self._shards[path].size - done for path, done in self._hashed.items())

    def hashes(self) -> dict[str, str]:
        """BLAKE3 of every file by name; in this reader's thread."""
        for path, shard in self._shards.items():
            buffer = memoryview(bytearray(min(_BLOCK, shard.size - self._hashed[path])))
            while (left := shard.size - self._hashed[path]) > 0:
                self._read(path, self._hashed[path], buffer[:left])
        return {path.name: self._hashes[path].hexdigest() for path in self._shards}

    def close(self) -> None:
        self.thread.shutdown(cancel_futures=True)
        if self._open:
            os.close(self._open[1])
            self._open = None

    def _read(self, path: Path, start: int, into: memoryview) -> None:
        data = self._shards[path].data
        if self._hashed[path] == 0 and start == data:
            header = memoryview(bytearray(data))
            self._fill(path, 0, header)
        self._fill(path, start, into)

    def _fill(self, path: Path, start: int, into: memoryview) -> None:
        try:
            if self._open is None or self._open[0] != path:
                if self._open:
                    os.close(self._open[1])
                    self._open = None
                self._open = path, os.open(path, os.O_RDONLY)
            handle, got = self._open[1], 0
            while got < len(into):
                more = os.preadv(handle, [into[got:]], start + got)
                if not more:
                    raise UserError(f"{path}: became shorter while it was read; start again")
                got += more
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        if self._hashed[path] == start:
            self._hashes[path].update(into)
            self._hashed[path] += len(into)


class Mean:
    """The mean of one set of checkpoints, oldest first; `readers` must be closed by the caller."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self.readers, self.sources = readers, [reader.source for reader in readers]
        self.newest = self.sources[-1]
        block = min(_BLOCK, _MEMORY // (_AHEAD * len(readers))) // (8 * _CHUNK) * (8 * _CHUNK)
        self._block = max(block, 8 * _CHUNK)
        self._buffers = [
            [torch.empty(self._block, dtype=torch.uint8) for _ in readers] for _ in range(_AHEAD)
        ]
        self._out = torch.empty(self._block, dtype=torch.uint8)
        # float32 would not do for weights stored in it, nor where a large weight and its opposite
        # cancel: its rounding shows in the mean's last places. float64 takes a tenth longer.
        self._sum, self._spare = torch.empty(2, _CHUNK, dtype=torch.float64)
        self._equal: dict[str, bool] = {}

    def shard(self, shard: Shard) -> Iterator[memoryview]:
        """The bytes of the mean's tensors, in the order of a shard of the newest checkpoint.

        A view is valid until the next is asked for.

        Raises:
            UserError: whole numbers that differ, or a mean that is no number.
        """
        pending: deque[tuple[Piece, list[Future[None]], list[torch.Tensor]]] = deque()
        for number, piece in enumerate(self._pieces(shard)):
            pending.append(self._ask(piece, self._buffers[number % _AHEAD]))
            if len(pending) == _AHEAD:
                yield self._take(*pending.popleft())
        while pending:
            yield self._take(*pending.popleft())

    def _pieces(self, shard: Shard) -> Iterator[Piece]:
        for name in shard.names:
            tensor = self.newest.tensors[name]
            total = tensor.size // _size(tensor)
            step = self._block // max(_size(source.tensors[name]) for source in self.sources)
            for first in range(0, total, step):
                yield Piece(name, first, min(step, total - first))

    def _ask(
        self, piece: Piece, buffers: Sequence[torch.Tensor]
    ) -> tuple[Piece, "list[Future[None]]", list[torch.Tensor]]:
        waiting, parts = [], []
        for reader, buffer in zip(self.readers, buffers, strict=True):
            tensor = reader.source.tensors[piece.name]
            part = buffer[: piece.length * _size(tensor)]
            view = memoryview(part.numpy())
            waiting.append(reader.ask(tensor, piece.first * _size(tensor), view))
            parts.append(part)
        return piece, waiting, parts

    def _take(
        self, piece: Piece, waiting: "Sequence[Future[None]]", parts: Sequence[torch.Tensor]
    ) -> memoryview:
        for future in waiting:
            future.result()
        dtypes = [source.tensors[piece.name].dtype for source in self.sources]
        if dtypes[-1] not in FLOATS:
            self._must_be_equal(piece, parts)
            return memoryview(parts[-1].numpy())
        made = self._out[: len(parts[-1])]
        numbers = [part.view(_DTYPES[d]) for part, d in zip(parts, dtypes, strict=True)]
        out = made.view(_DTYPES[dtypes[-1]])
        for i in range(0, piece.length, _CHUNK):
            chunk = [part[i : i + _CHUNK] for part in numbers]
            if not self._mean(chunk, out[i : i + _CHUNK]):
                self._no_number(piece, chunk, out[i : i + _CHUNK])
        return memoryview(made.numpy())

    def _mean(self, parts: Sequence[torch.Tensor], out: torch.Tensor) -> bool:
        """The mean of a chunk, oldest to newest; whether all of it surely is finite."""
        total, spare = self._sum[: len(out)], self._spare[: len(out)]
        total.copy_(parts[0])
        for part in parts[1:]:
            total.add_(spare.copy_(part))  # sooner than adding unlike dtypes
        if len(parts) & len(parts) - 1:
            total.div_(len(parts))
        else:  # a power of two: the same number, in a third of the time
            total.mul_(1 / len(parts))
        mixed = any(part.dtype != out.dtype for part in parts)
        rounding.assign(out, total, spare, mixed)
        if out.dtype == torch.float64:  # only there can n times x, divided by n, not be x
            same = torch.stack([part == parts[-1] for part in parts]).all(0)
            out.copy_(torch.where(same, parts[-1], out))
        if mixed:  # a wider range may not fit
            return bool(out.isfinite().all())
        return math.isfinite(total.sum().item())  # not, where anything is not

    def _must_be_equal(self, piece: Piece, parts: Sequence[torch.Tensor]) -> None:
        for source, part in zip(self.sources, parts, strict=True):
            if not torch.equal(part, parts[-1]):
                dtype = self.newest.tensors[piece.name].dtype
                raise UserError(
                    f"{source.folder}: {piece.name} ({dtype}) is not the same in"
                    f" {self.newest.folder}, and whole numbers have no mean; if it counts"
                    " something, give all checkpoints the same"
                )

    def _no_number(self, piece: Piece, parts: Sequence[torch.Tensor], out: torch.Tensor) -> None:
        """NaN or infinity in the mean: right only in a tensor that is the same everywhere."""
        if out.isfinite().all():
            return  # the sum over the chunk was too large, no number in it
        if piece.name not in self._equal:
            self._equal[piece.name] = self._same_everywhere(piece.name)
        if self._equal[piece.name]:
            out.copy_(parts[-1])
            return
        for source, part in zip(self.sources, parts, strict=True):
            if not part.isfinite().all():
                raise UserError(
                    f"{source.folder}: {piece.name} holds NaN or infinity, so the mean would, too;"
                    " leave this checkpoint out"
                )
        raise UserError(
            f"{self.newest.folder}: {piece.name}: the mean is too large for this checkpoint's"
            f" {self.newest.tensors[piece.name].dtype}; the others are stored with a wider range"
        )

    def _same_everywhere(self, name: str) -> bool:
        digests = set()
        for source in self.sources:
            tensor = source.tensors[name]
            with tensor.file.open("rb") as file:
                file.seek(tensor.start)
                digest, left = blake3(tensor.dtype.encode()), tensor.size
                while data := file.read(min(left, _BLOCK)):
                    digest.update(data)
                    left -= len(data)
            digests.add(digest.digest())
        return len(digests) == 1


def write(mean: Mean, shard: Shard, folder: Path, digest: blake3) -> Iterator[int]:
    """One shard of the mean into a folder, flushed to the disk; yields bytes as they are written.

    Args:
        mean: of the checkpoints.
        shard: of the newest of them.
        folder: of the mean.
        digest: takes what is written.

    Raises:
        UserError: as `Mean.shard`.
        OSError: when it could not be written.
    """
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(shard.path.open("rb"))
        file = stack.enter_context((folder / shard.path.name).open("wb", buffering=0))
        flusher = stack.enter_context(ThreadPoolExecutor(1))
        flushing: Future[None] | None = None
        header = source.read(shard.data)
        digest.update(header)
        hasher = stack.enter_context(ThreadPoolExecutor(1))
        _write(file, memoryview(header))
        fresh = 0
        for data in mean.shard(shard):
            hashed = hasher.submit(digest.update, data)
            _write(file, data)
            hashed.result()
            yield len(data)
            fresh += len(data)
            if fresh >= _FLUSH and (flushing is None or flushing.done()):
                if flushing is not None:
                    flushing.result()
                flushing, fresh = flusher.submit(os.fdatasync, file.fileno()), 0
        if flushing is not None:
            flushing.result()
        os.fsync(file.fileno())


def _write(file: Any, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


def _size(tensor: Tensor) -> int:
    """Bytes of one element; whole numbers are only compared, byte by byte."""
    return _SIZES.get(tensor.dtype, 1)
