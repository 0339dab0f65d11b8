"""An import that is ended before its time goes on: nothing twice, nothing lost."""

import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from test_import import OSS, QWEN, bring, folders, opened, records, write, write_lines

from pipeline.imports import batches, staging
from pipeline.imports import parquet as staging_parquet
from pipeline.imports.plan import Plan
from pipeline.store import runfolder

pytestmark = pytest.mark.usefixtures("undrawn")


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_ended_import_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Ended twice while it writes: what was on the disk stays, and all is as of one that was not.

    Besides a line torn by a power cut, and a file that no note names.
    """
    rows = records(("aime25", "aime24"), (QWEN, OSS), questions=3, trials=10)
    rows = [row | {"text": "x" * 500} for row in [*rows, rows[5]]]
    rows[2] |= {"cv3b_ctx_A": 7.0, "cv3b_ctx_B": 7.0, "cv3b_ctx_C": 7.0}
    random.Random(0).shuffle(rows)
    source = tmp_path / f"x.{form}"
    if form == "parquet":
        write(source, rows, group=7)
    else:
        write_lines(source, rows)
    monkeypatch.setattr(staging, "MOST_BYTES", 10_000)
    monkeypatch.setattr(staging_parquet, "_MOST_ROWS", 20)
    monkeypatch.setattr(batches, "_ROWS", 20)
    real, left, written = staging.parquet.write_part, [math.inf], list[Path]()

    def write_part(path: Path, *given: Any) -> None:
        written.append(path)
        if len(written) > left[0]:
            raise KeyboardInterrupt
        real(path, *given)

    monkeypatch.setattr(staging.parquet, "write_part", write_part)
    whole = bring(tmp_path / "whole", source)
    number, runs = len(written), tmp_path / "ended" / "runs"
    left[0] = number // 2
    for _ in range(2):
        written.clear()
        with pytest.raises(KeyboardInterrupt):
            bring(tmp_path / "ended", source)
        assert folders(runs) == []
        [notes] = runs.glob("_import-*/_read.jsonl")
        with notes.open("a") as file:
            file.write('{"program": "')
        stray = next(notes.parent.glob("*/*/attempts/*.parquet")).with_name("import-99999.parquet")
        stray.write_bytes(b"PAR1")
        os.utime(notes.parent, (0, 0))  # its own may be as old as it likes
    with monkeypatch.context() as within, pytest.raises(KeyboardInterrupt):  # in the first pass
        within.setattr(Plan, "note", interrupt)
        bring(tmp_path / "ended", source)
    written.clear()
    left[0] = math.inf
    bring(tmp_path / "ended", source)
    assert 0 < len(written) < number
    assert not list(runs.glob("_import-*"))
    assert folders(runs) == folders(whole) != []
    for folder in folders(runs):
        made = [opened(root / folder) for root in (runs, whole)]
        told = [runfolder.read_json(run.manifest)["imported"] for run in made]
        assert told[0] == told[1] and "1 verdict left out" in str(told[0]["left_out"])
        for table in ("attempts", "grades", "verdicts", "means"):
            files = [sorted((run.path / table).glob("*.parquet")) for run in made]
            assert [path.name for path in files[0]] == [path.name for path in files[1]] != []
            assert all(a.read_bytes() == b.read_bytes() for a, b in zip(*files, strict=True))
