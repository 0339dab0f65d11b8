"""Average weights element by element, in blocks: each file is read once and never held whole.

Threads read ahead, so memory holds a few blocks of every checkpoint, however large it is.
"""

import itertools
import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.training.checkpoints import Tensor, Weights

_AHEAD = 3  # blocks in memory: one being averaged, two being read
_BLOCK = 1 << 22  # elements per block, summed over checkpoints
_CHUNK = 1 << 15  # elements: float64 fits a core's cache, and torch starts no threads for so few
_LOW = (1 << 29) - 1  # the bits of a float64 that a float32 drops
_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def write(sources: Sequence[Weights], file: Path, out: Path) -> Iterator[int]:
    """Write to `out` the mean of the tensors in one `file` of the newest checkpoint.

    `sources` are oldest first. The header of `file` is kept: dtypes, shapes, order of tensors.
    Yields the number of bytes of each block. Raises UserError: integers differ, or a mean is NaN
    or infinite.
    """
    with file.open("rb") as newest, out.open("wb") as mean:
        mean.write(length := newest.read(8))
        mean.write(newest.read(int.from_bytes(length, "little")))
        with ThreadPoolExecutor(len(sources)) as threads:
            blocks = _blocks(sources, file, threads)
            pending = deque(itertools.islice(blocks, _AHEAD))
            while pending:
                name, parts = pending.popleft()
                block = _mean(name, [part.result() for part in parts], sources)
                yield mean.write(block.view(torch.uint8).numpy())
                pending.extend(itertools.islice(blocks, 1))


def average(parts: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Average float tensors of shape (n,) element by element in float64, and round once.

    Rounds to the nearest number of `dtype`, ties to even. torch converts float64 to 16 bits through
    float32, and what float32 rounds to a tie is then rounded wrongly: 1 + 2^-8 + 2^-32 becomes 1 in
    bfloat16. So the step to float32 rounds to odd: an inexact result gets a last bit of 1, which
    puts it on the right side of every tie. (Below 2^-126 float32 has fewer bits, but means of
    16-bit numbers need no more.)

    Source: Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms
    using rounding to odd" (2008).

    >>> average([torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]).half()], torch.float16)
    tensor([1.5000, 3.0000], dtype=torch.float16)
    """
    out = torch.empty(len(parts[0]), dtype=dtype)
    sums, buffers = torch.empty(2, _CHUNK, dtype=torch.float64)
    for start in range(0, len(out), _CHUNK):
        first, *others = (part[start : start + _CHUNK] for part in parts)
        total, buffer = sums[: len(first)].copy_(first), buffers[: len(first)]
        for part in others:
            total += buffer.copy_(part)  # faster than adding different dtypes
        total /= len(parts)
        if dtype.itemsize == 2:
            # NumPy adds integers faster than torch.
            bits, sticky = total.numpy().view(np.int64), buffer.numpy().view(np.int64)
            np.bitwise_and(bits, _LOW, out=sticky)
            sticky += _LOW
            bits |= sticky
            bits &= ~_LOW
        out[start : start + _CHUNK] = total
    return out


def _blocks(
    sources: Sequence[Weights], file: Path, threads: ThreadPoolExecutor
) -> "Iterator[tuple[str, list[Future[torch.Tensor]]]]":
    """Yield the name and the parts of every block, in the order of the newest checkpoint's file."""
    length = max(1, _BLOCK // len(sources))
    # Sized for 64-bit elements; shorter ones leave the rest untouched.
    buffers = itertools.cycle(torch.empty(_AHEAD, len(sources), 8 * length, dtype=torch.uint8))
    for name, newest in sources[-1].tensors.items():
        count = math.prod(newest.shape) if newest.file == file else 0
        tensors = [source.tensors[name] for source in sources]
        for first in range(0, count, length):
            slots = zip(tensors, next(buffers), strict=True)
            last = min(first + length, count)
            yield name, [threads.submit(_read, t, first, last, buffer) for t, buffer in slots]


def _read(tensor: Tensor, first: int, last: int, buffer: torch.Tensor) -> torch.Tensor:
    """Read elements of a tensor into a byte buffer; elements that are not floats stay bytes."""
    width = tensor.size // math.prod(tensor.shape)
    part = buffer[: (last - first) * width]
    with tensor.file.open("rb", buffering=0) as file:
        file.seek(tensor.start + first * width)
        file.readinto(part.numpy())  # a file that shrinks meanwhile changes the fingerprint
    return part.view(_DTYPES[tensor.dtype]) if tensor.dtype in _DTYPES else part


def _mean(name: str, parts: Sequence[torch.Tensor], sources: Sequence[Weights]) -> torch.Tensor:
    newest, dtype = parts[-1], sources[-1].tensors[name].dtype
    if dtype not in _DTYPES:
        for part, source in zip(parts, sources, strict=True):
            if not torch.equal(part, newest):
                raise UserError(
                    f"{source.folder}: {name} ({dtype}) differs from {sources[-1].folder}, and"
                    " integers are not averaged; merge quantized weights in full precision"
                )
        return newest
    out = average(parts, newest.dtype)
    if dtype != "F64" and math.isfinite(out.sum(dtype=torch.float32).item()):
        return out
    # Keep elements that are equal in all checkpoints: NaN and infinity, as in masks; and in float64
    # n times x, divided by n, may not be x.
    same = torch.stack([(p == newest) | (p.isnan() & newest.isnan()) for p in parts]).all(0)
    if not (same | out.isfinite()).all():
        wrong = (s for part, s in zip(parts, sources, strict=True) if not part.isfinite().all())
        raise UserError(
            f"{next(wrong, sources[-1]).folder}: {name} holds NaN, infinity, or numbers too large"
            f" for the newest checkpoint's {dtype}; leave this checkpoint out"
        )
    return torch.where(same, newest, out)
