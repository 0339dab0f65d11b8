"""The page and its folder: whole whatever fails or runs beside it; its first screen."""

import base64
import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, make_run

from bayes_at_n.pipeline.compare import cohort, comparison
from bayes_at_n.pipeline.compare.cohort import from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.report import build, panels


def side(out: Path) -> Path:
    """The side files that the page of a report names; they must be there, and nothing half-made."""
    [stamp] = re.findall(rb'"stamp": ?"([^"]+)"', (out / "index.html").read_bytes())
    folder = out / "attempts" / str(stamp.decode())
    assert [path.name for path in folder.glob("*.js")] == ["0-q0.js"] and not [*out.rglob("*.tmp")]
    return folder


@pytest.mark.usefixtures("unseen")
def test_reports_into_one_place_are_each_whole(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set", "report.texts=false"])
    ours, theirs = build._page, []

    def late(*arguments: Any) -> str:  # another report begins later and ends before this one
        monkeypatch.setattr(build, "_page", ours)
        build.report(cfg)
        theirs.append(side(tmp_path))
        return ours(*arguments)

    monkeypatch.setattr(build, "_page", late)
    build.report(cfg)
    last = side(tmp_path)
    assert last != theirs[0] and theirs[0].is_dir()  # somebody may have that page open

    # What no page has named for an hour goes: of a replaced report, of a killed one.
    killed, notes = tmp_path / "attempts" / "20260101T000001", tmp_path / "attempts" / "notes"
    for folder in (killed, notes):
        folder.mkdir()
    for folder in (last, theirs[0], killed, notes):
        os.utime(folder, (0, 0))
    build.report(cfg)
    assert {*(tmp_path / "attempts").iterdir()} == {side(tmp_path), last, notes}
    for path in side(tmp_path).iterdir():
        assert "window.owned" not in path.read_text()


@pytest.mark.usefixtures("unseen")
def test_a_report_that_fails_leaves_a_whole_one(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = analysis.load([f"runs={runs}", f"out={tmp_path}", "dataset=set", "report.texts=false"])
    build.report(cfg)
    before, write = side(tmp_path), build.atomic.write_text

    def fails(path: Path, text: str, sync: bool = True) -> None:
        if path.name == "index.html":
            write(path, text)
            raise OSError("no space")
        write(path, text, sync)

    monkeypatch.setattr(build.atomic, "write_text", fails)
    with pytest.raises(OSError, match="no space"):
        build.report(cfg)
    assert side(tmp_path) != before and len([*(tmp_path / "attempts").iterdir()]) == 2


def test_outcomes_without_runs(tmp_path: Path) -> None:
    outcomes = np.random.default_rng(0).integers(0, 2, (3, 4, 5))
    cohort = from_arrays("coins</script>", ["a", "b", "c\ud800"], list("wxyz"), outcomes)
    cohort = replace(cohort, warnings=["<c> is left out: other questions"])
    path = build.write([cohort], analysis.load([f"out={tmp_path}"]))
    text = path.read_text(encoding="utf-8")
    assert "&lt;c&gt; is left out: other questions</li>" in text
    assert "</script>" not in text[text.index('id="page-data"') : text.index("</script>")]
    assert panels.counts(cohort)["correct"] == outcomes.sum(axis=2).tolist()
    assert not (tmp_path / "attempts").exists()


def test_open_starts_a_browser_or_says_that_there_is_none(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(build.webbrowser, "open", opened.append)  # None, as where there is none
    settings = [f"runs={runs}", f"out={tmp_path}", "dataset=other", "report.texts=false"]
    build.report(analysis.load(settings), open=True)
    assert opened == [(tmp_path / "index.html").resolve().as_uri()]
    assert "no browser" in capsys.readouterr().err


KATEX = "cMkvdD8LoxVzGF/RPUKAcvmm49FQ0oxwDF3BGKtDXcEc+T1b2N+teh/OJfpU0jr6"  # 0.16.22
PREACT = "w94Y7k7ToXbmIx5Vi/LxHtprASwddoLhbR/0ZhekgNn8pP9VNRRHzmp2tqrALfKY"  # of htm 3.1.1


@pytest.mark.parametrize("name, digest", [("katex", KATEX), ("preact", PREACT)])
def test_libraries_are_the_published_ones(name: str, digest: str) -> None:
    """Checksums are those by which pages that load them from elsewhere know them."""
    library = (build.FOLDER / f"{name}.min.js").read_bytes()
    if name == "katex":
        library = library.partition(b"*/\n")[2]  # behind its license
    assert base64.b64encode(hashlib.sha384(library).digest()).decode() == digest
    assert not re.search(rb"\beval\(|new Function", library)


def test_the_first_screen_has_the_headline_in_the_order_of_avg() -> None:
    brief = np.full((6, 20), -1)
    brief[:, :2] = 1
    long = np.where(np.arange(20) < 18, 1, 0) * np.ones((6, 1), int)
    made = from_arrays("d", ["brief", "long"], [*"abcdef"], np.stack([brief, long]))
    cfg = analysis.load([])
    tables = comparison.tables_of(made, cfg)
    drawn = panels.leaderboard(tables["leaderboard"], cfg)
    heads = [column["title"] for column in drawn["columns"]]
    assert heads[:5] == ["model", "rank", "Bayes@N", "95% interval", "avg"]
    assert [row[0][0] for row in drawn["rows"]] == ["brief", "long"]
    assert any("(brief: avg" in line for line in drawn["notes"])
    best, cells = tables["leaderboard"].rows[0], drawn["rows"][0]
    assert [float(cells[i][1]) for i in (2, 4)] == [best["score"], best["avg"]]
    low, middle, high = drawn["forest"]["bars"][0]
    assert 0 <= low < middle <= high <= 100
    assert [c["title"] for c in drawn["columns"] if c["sorted"]] == ["avg"]


def test_common_settings_are_in_the_line_and_others_are_named(tmp_path: Path) -> None:
    for name, settings in {"a": [], "b": ["sampling.temperature=1.0"]}.items():
        make_run(tmp_path / name, {"q1": "1100", "q2": "1111"}, f"model.name={name}", *settings)
    cfg = analysis.load([f"folders=[{tmp_path / 'a'},{tmp_path / 'b'}]"])
    [loaded] = cohort.load(cfg)
    found = panels.made(loaded)
    assert found is not None
    heads, line = [column["title"] for column in found["table"]["columns"]], found["line"]
    rows = [dict(zip(heads, row, strict=True)) for row in found["table"]["rows"]]
    assert [row["temperature"][0] for row in rows] == ["0.6", "1.0"]
    assert "4 trials per question" in line and line.endswith("different: temperature")
    assert not any(row["model id"][0].startswith("/") for row in rows)
    assert panels.made(from_arrays("coins", ["a"], ["q"], [[[1, 0]]])) is None
