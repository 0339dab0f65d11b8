"""Tables in shards: parts appear whole, every key once, and damage costs what it touches."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import attempt_row

from bayes_at_n.pipeline.base import atomic, untrusted
from bayes_at_n.pipeline.base.journal import Journal
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS

FORK = multiprocessing.get_context("fork")
SMALL = pa.schema([("question_id", pa.string()), ("trial", pa.int32()), ("text", pa.string())])


def rows(count: int, text: str = "first", start: int = 0) -> list[dict[str, Any]]:
    return [
        {"question_id": f"q-{i // 4:03d}", "trial": i % 4, "text": f"{text} {i}"}
        for i in range(start, start + count)
    ]


def part(path: Path, made: list[dict[str, Any]], columns: pa.Schema = SMALL) -> Path:
    shards.write_part(path, pa.Table.from_pylist(made, columns))
    return path


def write_journal(path: Path, made: list[dict[str, Any]], per_frame: int = 3) -> Path:
    writer = Journal(path, SMALL)
    for i in range(0, len(made), per_frame):
        writer.append(made[i : i + per_frame])
    writer.close()
    return path


def stored(
    folder: Path, columns: pa.Schema = SMALL
) -> tuple[dict[tuple[str, int], dict[str, Any]], shards.Damage]:
    """Every readable row by its key; fails if a key comes twice."""
    damage, found = shards.Damage(), dict[tuple[str, int], dict[str, Any]]()
    for batch in shards.batches(folder, columns, columns.names, damage):
        for row in batch.to_pylist():
            key = (row["question_id"], row["trial"])
            assert key not in found, f"{key} twice"
            found[key] = row
    return found, damage


def by_key(made: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["question_id"], row["trial"]): row for row in made}


@pytest.mark.parametrize("beside", [0, 7])
def test_a_journal_that_is_sealed_while_files_are_listed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: int
) -> None:
    path, check = write_journal(tmp_path / "a.journal", rows(40)), untrusted.check
    if beside:
        part(tmp_path / "b.parquet", rows(40 + beside)[40:])

    def sealing(looked_at: Path) -> None:
        monkeypatch.setattr(untrusted, "check", check)
        assert looked_at == path and shards.seal(path, SMALL) == []
        check(looked_at)

    monkeypatch.setattr(untrusted, "check", sealing)
    assert stored(tmp_path)[0] == by_key(rows(40 + beside))


@pytest.mark.parametrize("damaged", ["a.journal", "a.parquet"])
def test_after_such_a_crash_damage_to_either_file_loses_nothing(
    tmp_path: Path, damaged: str
) -> None:
    path = write_journal(tmp_path / "a.journal", rows(40))
    copy = path.read_bytes()
    shards.seal(path, SMALL)
    path.write_bytes(copy)
    flip(tmp_path / damaged, 300)
    found, damage = stored(tmp_path)
    shards.set_aside(damage, SMALL)
    shards.seal_leftovers(tmp_path, SMALL)
    found, damage = stored(tmp_path)
    assert found == by_key(rows(40)) and not damage.lines


def flip(path: Path, at: int, bits: int = 0x55) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bits
    path.write_bytes(data)


def attempts(count: int, tokens: int = 12) -> list[dict[str, Any]]:
    made = [attempt_row(row["trial"], tokens) | row for row in rows(count, "so \\boxed{1}")]
    of_arrow: list[dict[str, Any]] = pa.Table.from_pylist(made, ATTEMPTS).to_pylist()
    return of_arrow


@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.soak)])
def test_a_flipped_byte_anywhere_in_a_part_is_noticed_or_harmless(
    tmp_path: Path, step: int
) -> None:
    """No place in the file where a flip crashes a reader, alters a row or loses one in silence."""
    made = attempts(12, tokens=4)
    path = part(tmp_path / "a.parquet", made, ATTEMPTS)
    whole, expected, noticed = path.read_bytes(), by_key(made), 0
    for at in range(0, len(whole), step):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :])
        found, damage = stored(tmp_path, ATTEMPTS)
        assert all(expected[key] == row for key, row in found.items()), at
        assert len(found) == len(expected) or damage.lines, at
        noticed += bool(damage.lines)
    assert noticed > len(whole) / step / 2


@pytest.mark.parametrize("place", ["footer", "text"])
def test_damaged_rows_are_set_aside_and_sound_ones_kept(tmp_path: Path, place: str) -> None:
    made = attempts(3 * shards.ROWS_PER_GROUP)
    path = part(tmp_path / "a.parquet", made, ATTEMPTS)
    meta = pq.ParquetFile(path).metadata
    at = path.stat().st_size - 8 - meta.serialized_size + 2  # in the footer
    if place == "text":  # or in a data page of group 1
        chunk = meta.row_group(1).column(ATTEMPTS.names.index("text"))
        at = chunk.data_page_offset + chunk.total_compressed_size // 2
    flip(path, at)
    found, damage = stored(tmp_path, ATTEMPTS)
    lost = len(made) if place == "footer" else shards.ROWS_PER_GROUP
    assert len(found) == len(made) - lost and "a.parquet" in str(damage)
    shards.set_aside(damage, ATTEMPTS)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"_a.parquet.damaged"} | ({"a-sound.parquet"} if found else set())
    again, damage = stored(tmp_path, ATTEMPTS)
    assert again == found and not damage.lines


def test_reading_while_another_process_writes(tmp_path: Path) -> None:
    def write() -> None:
        for j in range(6):
            journal = Journal(tmp_path / f"w-{j}.journal", SMALL)
            for n in range(j * 100, j * 100 + 100):
                journal.append([{"question_id": "q", "trial": n, "text": f"{n}" * 500}])
            journal.close()
            shards.seal(journal.path, SMALL)

    writer, before, looks = FORK.Process(target=write), set[int](), 0
    writer.start()
    while len(before) < 600:
        assert writer.exitcode in (None, 0)
        found, damage = stored(tmp_path)
        for (_, n), row in found.items():
            assert row["text"] == f"{n}" * 500
        now = {n for _, n in found}
        assert now >= before
        assert all(n % 100 == 0 or n - 1 in now for n in now), "a gap within one journal"
        assert all("unfinished last frame" in line for ls in damage.lines.values() for line in ls)
        before, looks = now, looks + 1
    writer.join()
    assert writer.exitcode == 0 and looks > 3


def _killed(path: Path) -> None:
    with atomic.replacing(path) as file:
        file.write(b"half")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_writer_left_goes_and_a_live_one_s_stays(tmp_path: Path) -> None:
    for name in ("review.jsonl", "share.pdf"):
        writer = FORK.Process(target=_killed, args=(tmp_path / name,))
        writer.start()
        writer.join()
    # Of another machine, who can tell? Unless it is over a day old.
    elsewhere = tmp_path / ".a.json.00000000-1-00000000.tmp"
    older, mine = tmp_path / ".b.json.00000000-2-00000000.tmp", tmp_path / ".mine.tmp"
    for path in (elsewhere, older, mine):
        path.touch()
    os.utime(older, (0, 0))
    os.utime(mine, (0, 0))
    assert len([*tmp_path.glob(".*.tmp")]) == 5
    with atomic.replacing(tmp_path / "slow.json"):
        [slow] = tmp_path.glob(".slow.json.*.tmp")
        atomic.write_text(tmp_path / "a.json", "whole")
        assert {*tmp_path.iterdir()} == {tmp_path / "a.json", elsewhere, mine, slow}
