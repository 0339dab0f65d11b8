"""settle bank=true with real workers: what is asked, what is said, and how it goes on."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import Capsys, make_run
from raced import forked

from bayes_at_n.pipeline.adaptive import bank, live
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS

QUESTIONS = 120
RNG = np.random.default_rng(3)
EASY = RNG.normal(size=QUESTIONS)
RIGHT = EASY + 0.2 * RNG.normal(size=QUESTIONS) > 0
OWN = ["verifier=none", "sampling.prompt_logprobs=false", "engine.batch_size=4"]
BANK = [
    "model=custom", "model.name=a", 'model.id="models/a"', "dataset=jsonl",
    "dataset.path=sums.jsonl", *OWN, "engine.replicas=1", "bank=true", "until=width:0.2",
]  # fmt: skip


def is_right(model: str, question: str, trial: int) -> bool:
    """As `RIGHT` has it; a model b is right half as often."""
    number = int(question[1:])
    return bool(RIGHT[number] and (model == "a" or number % 2))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undrawn: None) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bank, "Residents", forked(is_right))
    monkeypatch.setattr(bank, "BATCH", 50)
    monkeypatch.setattr(live, "STAGES", "stages=[generate]")
    Path("models/a").mkdir(parents=True)
    Path("models/a/config.json").write_text("{}")
    names, rng = [f"q{q:03d}" for q in range(QUESTIONS)], np.random.default_rng(4)
    for old in range(3):
        solved = EASY[:100] + 0.5 * rng.normal(size=100) > 0
        lines = dict(zip(names, "".join(map(str, solved.astype(int))), strict=False))
        make_run(Path("runs/sums", f"old{old}"), lines, f"model.name=old{old}", *OWN)
    paths = []
    for model in "ab":
        own = [f"model.name={model}", "model.id=models/a", "sampling.seeds=independent"]
        made = make_run(Path("runs/sums", model), dict.fromkeys(names, "."), *own, *OWN)
        paths.append(made.path)
    return paths[0]


def test_it_asks_a_sample_once_and_goes_on(run: Path, capsys: Capsys) -> None:
    status = main.main(["settle", *BANK, "earlier=runs/sums", "--json"])
    out, err = capsys.readouterr()
    assert status == 0, err
    [row] = json.loads(out)["banks"]
    assert row["low"] <= RIGHT.mean() <= row["high"] and row["high"] - row["low"] <= 0.2
    assert row["settled"] and row["asked"] < row["questions"] == QUESTIONS
    opened = runfolder.open_run(run)
    asked = shards.keys(opened.attempts, ATTEMPTS, shards.Damage())
    assert len(asked) == row["asked"] and {trial for _, trial in asked} == {0}
    written = json.loads(Path("runs/sums/_settle/width-0.2/bank.json").read_text())
    assert written["banks"] == [row]

    # The same command asks nothing more; a narrower interval asks only what is new.
    assert main.main(["settle", *BANK, "earlier=runs/sums", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["banks"] == [row]
    narrower = [*BANK[:-1], "until=width:0.01", "earlier=runs/sums", "--json"]
    assert main.main(["settle", *narrower]) == 0
    [row] = json.loads(capsys.readouterr().out)["banks"]
    assert row["asked"] == QUESTIONS and row["low"] == row["high"] == pytest.approx(RIGHT.mean())


def test_it_finds_the_best_on_a_bank_and_scores_know_of_draws(run: Path, capsys: Capsys) -> None:
    best = ["model.name=a,b", *BANK[:1], *BANK[2:-1], "until=best", "--json"]
    assert main.main(["settle", *best]) == 0
    a, b = json.loads(capsys.readouterr().out)["banks"]
    assert (a["outcome"], b["outcome"], a["settled"]) == ("best", "out", True)
    assert b["high"] < a["low"] and b["asked"] <= QUESTIONS
    for row, path in ((a, run), (b, run.with_name("b"))):
        assert main.main(["score", str(path), "--json"]) == 0
        found, err = json.loads((said := capsys.readouterr()).out), " ".join(said.err.split())
        if row["asked"] < QUESTIONS:
            assert (
                found["stopped"]["mean"] == row["score"] and found["stopped"]["low"] == row["low"]
            )
            assert f"on all {QUESTIONS}" in err
        else:
            assert "stopped" not in found
    assert min(a["asked"], b["asked"]) < QUESTIONS


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["until=order"], "bank=true: needs until=best or width:W"),
        (["bank=false", "earlier=runs"], "earlier=runs: needs bank=true"),
        (["earlier=runs/none"], "runs/none"),
    ],
)
def test_what_it_refuses(run: Path, capsys: Capsys, words: list[str], message: str) -> None:
    assert main.main(["settle", *BANK, *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
