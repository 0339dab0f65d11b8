"""verifier.kind=generate: votes are sampled, resumed and counted, on real engines."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from forked import Attempts, Command, Forker, stored
from helpers import Capsys, again, make_run

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.score import stage as score
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import stage
from bayes_at_n.verifiers.judge.quality import krippendorff
from benchmarks.servers import Server

TEXTS = {"q1": [r"\boxed{2}", r"\boxed{3}", "", r"\boxed{2}"], "q2": ["so 2", "5", "no"]}
MARKS, DISTINCT = {"q1": "10-1", "q2": "---"}, 6
TEMPLATE = "Q: {question}\nGold: {gold}\n<text {tag}>\n{response}\n</text {tag}>\nJudge.\n"
PLAIN = ["engine=transformers", "engine.device=cpu", "dtype=float32", "kind=generate"]


def with_judge(folder: Path, model: Path, *more: str, **made: Any) -> Run:
    """A graded run whose judge is a model that was never taught to judge."""
    template = folder.with_name("mine.txt")
    template.write_text(TEMPLATE)
    of_verifier = [*PLAIN, f"id={model}", f"prompt={template}", "sampling.max_tokens=8"]
    settings = [f"verifier.{setting}" for setting in of_verifier]
    made = {"texts": TEXTS} | made
    return make_run(folder, MARKS, "sampling.max_tokens=8", *settings, *more, **made)


def rows(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    names = ["a", "b", "c", "label", "points", "votes"]
    table = outcomes.VERDICTS_TABLE.read(run, names, None).table.to_pylist()
    return {(row["question_id"], row["trial"]): row for row in table}


def votes(run: Run) -> list[dict[str, Any]]:
    parts = sorted(run.path.glob("judgements/*/attempts/*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


def test_what_cannot_be_read_is_undecided(
    tmp_path: Path, tiny_model: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampled again twice under other seeds, then left out of scores; never wrong."""
    run = with_judge(tmp_path / "run", tiny_model, "dataset.judge=all")
    stage.verify(run)
    assert {row["label"] for row in rows(run).values()} == {"U"} and len(rows(run)) == 7
    by_text: dict[str, list[int]] = {}
    for row in votes(run):
        by_text.setdefault(row["question_id"], []).append(row["seed"])
    assert len(by_text) == DISTINCT
    assert {(*sorted(seeds),) for seeds in by_text.values()} == {(1234, 1235, 1236)}
    assert "7 of 7 attempts" in capsys.readouterr().err
    assert (outcomes.read(run).codes == outcomes.PENDING).all()
    with pytest.raises(UserError, match="undecided"):
        score.score(again(run))

    monkeypatch.setattr(engines, "load", None)  # nothing is left to sample
    stage.verify(again(run))


@pytest.mark.soak
def test_votes_are_read_again_without_a_judge(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judgement in another form, and points, change verdicts and not what was sampled."""
    form = [r"verifier.judgement.pattern='\A\D*(\d)'", "verifier.judgement.points=9"]
    form += ["verifier.judgement.votes=majority", "verifier.sampling.trials=3"]
    run = with_judge(tmp_path / "run", tiny_model, *form, "dataset.judge=all")
    stage.verify(run)
    found, sampled = rows(run), votes(run)
    assert all(row["label"] in "ABU" for row in found.values())
    points = {row["points"] for row in found.values()} - {None}
    assert points and points <= set(range(10))
    assert found["q1", 0]["votes"] == found["q1", 3]["votes"]  # one text
    monkeypatch.setattr(engines, "load", None)
    run.cfg.verifier.judgement.labels = {str(n): int(n > 4) for n in range(10)}
    run.cfg.verifier.judgement.points = 1
    stage.verify(run)
    assert {row["points"] for row in rows(run).values()} <= {0, 1, None}
    assert votes(run) == sampled


def judgements(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    """Every stored vote; each is there once."""
    [folder] = run.path.glob("judgements/*/")
    return stored(folder)


def test_a_killed_judge_continues(tmp_path: Path, tiny_model: Path, forker: Forker) -> None:
    """Nothing is lost, nothing made twice, and seeds are those of a judge that nobody killed."""
    settings = ["dataset.judge=all", "verifier.sampling.trials=3", "verifier.batch_size=2"]
    whole = with_judge(tmp_path / "a", tiny_model, *settings)
    run = with_judge(tmp_path / "b", tiny_model)
    stage.verify(whole)
    command = Command(run.path, forker, line=["verify", str(run.path), *settings], hold=3)
    command.held()
    before = judgements(run)
    command.kill()
    command.release()
    Command(run.path, forker, line=["verify", str(run.path)]).finish()
    after, expected = judgements(run), judgements(whole)
    assert 3 < len(before) < len(after) == 9 * DISTINCT and before.items() <= after.items()
    assert {k: v["seed"] for k, v in after.items()} == {k: v["seed"] for k, v in expected.items()}
    assert rows(run).keys() == rows(whole).keys()


def test_a_budget_of_the_judge(tmp_path: Path, tiny_model: Path, capsys: Capsys) -> None:
    """What it leaves out has no verdict; more of it continues."""
    run = with_judge(tmp_path / "run", tiny_model, "dataset.judge=all", "verifier.batch_size=1")
    run.cfg.verifier.budget.tokens = 30
    stage.verify(run)
    assert 0 < len(rows(run)) < 7 and "of 6, " in capsys.readouterr().err
    stage.verify(again(run, "verifier.budget.tokens=null"))
    assert len(rows(run)) == 7 and len(votes(run)) == 3 * DISTINCT


@pytest.mark.soak
def test_the_demo_s_judge_on_vllm(
    forker: Forker, reference: tuple[Path, Attempts], tmp_path: Path
) -> None:
    """Real attempts, judged by vLLM on the CPU."""
    folder = Path(shutil.copytree(reference[0], tmp_path / "run"))
    demo = compose.load(["verifier=demo-judge"]).verifier
    keys = ["name", "id", "kind", "prompt"]
    typed = [f"verifier.{key}={getattr(demo, key)}" for key in keys]
    line = ["verify", str(folder), *typed, "verifier.sampling.max_tokens=64", "dataset.judge=all"]
    command = Command(folder, forker, line=line, hold=20)
    command.held()
    run = Run(load_folder(folder, []))
    before = judgements(run)
    command.kill()
    command.release()
    Command(folder, forker, line=line).finish()
    run = Run(load_folder(folder, []))
    after = judgements(run)
    assert 20 < len(before) < len(after) and before.items() <= after.items()
    grades = outcomes.graded(run)
    pairs = Counter(zip(grades["ruled"].to_pylist(), grades["outcome"].to_pylist(), strict=True))
    n = grades.num_rows
    alike = sum(count for (rule, judge), count in pairs.items() if rule == judge)
    assert alike >= 0.8 * n, pairs
    assert sum(count for (_, judge), count in pairs.items() if judge is None) <= 0.1 * n
    again_ = [row["question_id"] for row in votes(run)]
    Command(folder, forker, line=["verify", str(folder)]).finish()
    assert [row["question_id"] for row in votes(run)] == again_


@pytest.mark.soak
def test_a_judge_on_a_server(server: Server, tmp_path: Path, tiny_model: Path) -> None:
    """It gets the schema of its judgement."""
    url = [f"verifier.engine.url={server.url}", "verifier.engine.name=openai"]
    form = ["verifier.judgement.key=points", "verifier.judgement.points=3"]
    run = with_judge(tmp_path / "run", tiny_model, *url, *form, "verifier.engine.device=null")
    stage.verify(run)
    sampled = votes(run)
    assert {row["question_id"] for row in sampled} and len(sampled) == 3 * DISTINCT
    assert all(row["text"].startswith("{") for row in sampled)


def test_alpha_of_the_published_example() -> None:
    """Krippendorff (2011), section D: four observers, twelve units; nominal .743, interval .849."""
    lines = ["1 2 3 3 2 1 4 1 2 . . .", "1 2 3 3 2 2 4 1 2 5 . 3"]
    lines += [". 3 3 3 2 3 4 2 2 5 1 .", "1 2 3 3 2 4 4 1 2 5 1 ."]
    units = [
        [int(x) for x in unit if x != "."] for unit in zip(*map(str.split, lines), strict=True)
    ]
    assert round(krippendorff(units).alpha, 3) == 0.743
    found = krippendorff(units, "interval")
    assert round(found.alpha, 3) == 0.849 and found.low < found.alpha < found.high
