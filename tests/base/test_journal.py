"""The journal: what was appended is readable, whatever happens to the end or the middle of it."""

import os
import random
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from helpers import small_disk
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_at_n.pipeline.base import journal
from bayes_at_n.pipeline.base.journal import MARKER, Journal
from bayes_at_n.pipeline.store.columns import ATTEMPTS

SMALL = pa.schema([("key", pa.int32()), ("text", pa.string())])
FRAMES = [
    [{"key": 0, "text": "one"}, {"key": 1, "text": MARKER.decode("latin-1")}],
    [{"key": 2, "text": "\\boxed{½} 🦉"}],
    [{"key": 3, "text": None}],
]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
int32 = st.integers(-(2**31), 2**31 - 1)
float32, time = st.floats(width=32, allow_nan=False), st.floats(allow_nan=False)
option = {"logprob": float32, "tokens": int32, "bytes": int32, "unconditional": float32}
attempt = st.fixed_dictionaries(
    {
        **dict.fromkeys(("question_id", "text", "finish_reason"), texts),
        **dict.fromkeys(("trial", "prompt_tokens", "completion_tokens"), int32),
        **dict.fromkeys(("started", "first_token", "finished"), time),
        "seed": st.none() | st.integers(-(2**63), 2**63 - 1),
        "token_ids": st.lists(int32, max_size=20),
        "logprobs": st.none() | st.lists(float32, max_size=20),
        "continued_from": st.none() | int32,
        "options": st.none() | st.lists(st.fixed_dictionaries(option), max_size=4),
    }
)


def write(path: Path, frames: list[list[dict[str, Any]]], columns: pa.Schema = SMALL) -> list[int]:
    """A journal of these frames; returns where each frame ends."""
    writer, ends = Journal(path, columns), []
    for rows in frames:
        writer.append(rows)
        ends.append(writer.size)
    writer.close()
    return ends


def frames_of(path: Path, columns: pa.Schema = SMALL) -> list[list[dict[str, Any]]]:
    return [batch.to_pylist() for batch in journal.read(path, columns)[0]]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(attempt, min_size=1, max_size=4), max_size=4))
def test_rows_come_back_as_they_were(frames: list[list[dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.journal"
        write(path, frames, ATTEMPTS)
        batches, damage = journal.read(path, ATTEMPTS)
    assert [batch.to_pylist() for batch in batches] == frames
    assert damage == []


def test_metadata_of_the_columns_stand_first(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.journal"
    write(path, FRAMES, SMALL.with_metadata({"identity": "x"}))
    assert journal.metadata(path) == {b"identity": b"x"} and frames_of(path) == FRAMES
    path.write_bytes(path.read_bytes()[:9])
    assert journal.metadata(path) == {}


def test_the_name_and_the_rows_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = list[int]()
    monkeypatch.setattr(os, "fsync", lambda file: sizes.append(os.fstat(file).st_size))
    writer = Journal(tmp_path / "a.journal", SMALL)
    assert len(sizes) == 1  # of the folder
    writer.append(FRAMES[0])
    writer.sync()
    assert sizes[1:] == [writer.size] == [writer.path.stat().st_size]
    assert not writer.path.stat().st_mode & 0o111
    writer.close()
    with pytest.raises(OSError):
        writer.append(FRAMES[1])


def test_a_sound_frame_of_a_text_that_is_none_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    rows = pa.RecordBatch.from_pylist([{"key": 1, "text": "boxed"}], SMALL).serialize()
    bad = journal.framed(pa.py_buffer(rows.to_pybytes().replace(b"boxed", b"\xffoxed")))
    path.write_bytes(journal.framed(rows) + bad)
    batches, damage = journal.read(path, SMALL)
    assert [batch["text"].to_pylist() for batch in batches] == [["boxed"]] and len(damage) == 1


def test_cut_anywhere_loses_only_what_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    ends = write(path, FRAMES)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        batches, damage = journal.read(path, SMALL)
        complete = sum(end <= size for end in ends)
        assert [batch.to_pylist() for batch in batches] == FRAMES[:complete], size
        assert bool(damage) == (size not in (0, *ends)), size
        assert all("unfinished last frame" in line for line in damage), size


def test_a_flipped_byte_costs_only_its_own_frame(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    ends = write(path, FRAMES)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        hit = sum(end <= at for end in ends)
        batches, damage = journal.read(path, SMALL)
        assert [b.to_pylist() for b in batches] == FRAMES[:hit] + FRAMES[hit + 1 :], at
        assert damage, at


# Under a sound checksum.
NONSENSE = [b"", b"\0" * 64, b"\xff" * 64, random.Random(0).randbytes(512), MARKER * 9]
LYING = [(n, sum_) for n in (7, 0x7FFFFFFF, 0xFFFFFFFF) for sum_ in (zlib.crc32(b""), 0xFFFFFFFF)]
FORGED = [(len(payload), zlib.crc32(payload), payload) for payload in NONSENSE]
FORGED += [(0, 0xFFFFFFFF, b""), *((*head, b"") for head in LYING)]


@pytest.mark.parametrize(("length", "checksum", "payload"), FORGED, ids=range(len(FORGED)))
def test_a_forged_frame_costs_nothing_else(
    tmp_path: Path, length: int, checksum: int, payload: bytes
) -> None:
    path = tmp_path / "a.journal"
    ends = write(path, FRAMES)
    whole = path.read_bytes()
    forged = struct.pack("<8sII", MARKER, length, checksum) + payload
    path.write_bytes(whole[: ends[0]] + forged + whole[ends[0] :] + forged)
    batches, damage = journal.read(path, SMALL)
    assert [batch.to_pylist() for batch in batches] == FRAMES
    assert len(damage) == 2


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=300), st.binary(max_size=300))
def test_any_bytes_around_a_frame_are_survived(before: bytes, after: bytes) -> None:
    frame = journal.framed(pa.RecordBatch.from_pylist(FRAMES[1], schema=SMALL).serialize())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.journal"
        path.write_bytes(before + frame + after)
        assert frames_of(path) == [FRAMES[1]]


def test_a_full_disk_keeps_every_accepted_row(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(64 << 10))
        writer, accepted = Journal(disk / "a.journal", SMALL), list[int]()
        with pytest.raises(OSError, match="No space left"):
            for key in range(100_000):
                writer.append([{"key": key, "text": "x" * (key % 5000)}])
                accepted.append(key)
        batches, damage = journal.read(writer.path, SMALL)
        assert len(accepted) > 10
        assert [batch["key"][0].as_py() for batch in batches] == accepted and damage == []
        ballast.unlink()
        writer.append([{"key": -1, "text": "room again"}])
        writer.close()
        assert frames_of(writer.path)[-1] == [{"key": -1, "text": "room again"}]
