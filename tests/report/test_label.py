"""The verb `label`: what is drawn with what chance, what the page holds, and what is kept."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import again, make_run, run_of

from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.report import label
from bayes_at_n.pipeline.score import labels
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run, open_run

MARKS = {f"q{i}": "1100101101" for i in range(1, 7)}  # 60 attempts


def given(run: Run, path: Path, number: int) -> None:
    """A person labels the first attempts that were drawn: all are correct."""
    sample = labels.drawn(run)
    assert sample
    rows = [
        {"question_id": f"q{(key >> 32) + 1}", "trial": key & 0xFFFFFFFF, "correct": True}
        for key in sample.order[:number].tolist()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_chances_of_two_draws_are_those_of_either(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", MARKS, "verifier=none")
    first = label.draw(again(run, "labels.sample=12"))
    assert first.order.size == 12 and first.chances == pytest.approx(np.full((1, 60), 0.2))
    assert label.draw(again(run)).order.tolist() == first.order.tolist()  # no more were asked for
    given(run, tmp_path / "ana.jsonl", 12)
    score(again(run, f"labels={tmp_path / 'ana.jsonl'}"))
    second = label.draw(again(run, "labels.sample=10"))
    assert second.order[:12].tolist() == first.order.tolist() and second.order.size == 22
    assert np.unique(second.order).size == 22
    later = second.chances[1]
    left = ~np.isin(second.keys, first.order)
    assert later[left].sum() == pytest.approx(10)
    wrong = np.array([mark == "0" for marks in MARKS.values() for mark in marks])
    assert later[wrong].min() > 1.2 * later[~wrong].max()  # there the grader was found to err
    read = labels.read(run, second.keys)  # of the second draw nothing is labeled
    assert read and read.chances == pytest.approx(np.full(12, 0.2))
    given(run, tmp_path / "ana.jsonl", 17)
    score(again(run, f"labels={tmp_path / 'ana.jsonl'}"))
    read = labels.read(run, second.keys)  # of the second draw a half
    assert read and read.chances == pytest.approx(1 - 0.8 * (1 - later[read.at] / 2))
    some = labels.read(run, second.keys[:40])  # as of fewer questions: chances are the same
    assert some and some.chances == pytest.approx(read.chances[read.at < 40])
    given(run, tmp_path / "ana.jsonl", 22)
    score(again(run, f"labels={tmp_path / 'ana.jsonl'}"))
    found = json.loads((run.path / "scores.json").read_text())["people"]
    table = labels.table([("run", run, of := outcomes.read(run), labels.samples(run, of))])
    assert (
        table
        and table.rows[0]["missed"]
        == f"{int(wrong[np.isin(second.keys, second.order)].sum())} of 22"
    )
    assert found["labels"] == 22 and found["outcomes"]["corrected"]["value"] == pytest.approx(1)


def test_a_page_of_several_runs_is_blind_and_refuses_scripts(tmp_path: Path) -> None:
    for name in ("a-model", "b-model"):
        run_of(tmp_path, name, MARKS)
    folder = next(tmp_path.rglob("a-model"))
    assert main.main(["label", str(folder), str(folder.with_name("b-model"))]) == 0
    page = (folder.parent / "_labels" / "label.html").read_text()
    data = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page)
    assert data and "default-src &#39;none&#39;" in page
    rows = json.loads(data[1])
    names = [row["run"] for row in rows]
    assert len(rows) == 120 and names != sorted(names) and {*names} == {"a-model", "b-model"}
    assert not {"outcome", "label", "a", "model"} & {*rows[0]}
    first, second = (labels.drawn(open_run(folder.with_name(name))) for name in {*names})
    assert first and second and first.order.tolist() != second.order.tolist()  # independent
    assert main.main(["label", "labels.sample=3"]) == 2  # of no run
