"""Points of a judge: scores, comparisons and settling work on them as on correct and wrong."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import again, make_run

from bayes_at_n import scoring
from bayes_at_n.pipeline.adaptive import looks
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort, leaderboard
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.verifier import VerifierConfig
from bayes_at_n.pipeline.score import stage as score
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import generated, prompts, stage
from bayes_at_n.verifiers.judge.quality import krippendorff

M, N = 5, 4
JUDGE = ["verifier=judge-proof", "verifier.engine.name=transformers", "verifier.engine.device=cpu"]


def said(seed: int, undecided: float) -> list[list[str]]:
    """What a judge wrote about each attempt, (M, N)."""
    rng = np.random.default_rng(seed)
    points = rng.binomial(7, rng.uniform(0.2, 0.8, (M, 1)), (M, N))
    texts = [[f"A gap.\n<points>{p} out of 7</points>" for p in row] for row in points.tolist()]
    return [["?" if rng.random() < undecided else text for text in row] for row in texts]


def judged(folder: Path, model: Path, said: list[list[Any]], *more: str) -> Run:
    """A run whose judge wrote this, or these in turn; the texts judged are all different."""
    proofs = {f"q{i}": [f"proof {i} {t}" for t in range(N)] for i in range(M)}
    settings = [*JUDGE, f"verifier.id={model}", "verifier.revision=null", "dataset.judge=all"]
    settings += ["verifier.context=8192", "verifier.sampling.max_tokens=64", *more]
    marks = dict.fromkeys(proofs, "-" * N)
    run = make_run(folder, marks, "sampling.max_tokens=8", *settings, texts=proofs)
    return written(run, said)


def written(run: Run, said: list[list[Any]]) -> Run:
    """The run after its judge has written this, three times, and `verify`."""
    template = prompts.read_template(run.cfg.verifier)
    judge = generated.judge_of(run, stage.identity(run.cfg, template))
    attempts = prompts.texts_to_judge(run, template)
    generated._prepare(run, judge, template, attempts)
    named = zip(attempts["judged"].to_pylist(), attempts["key"].to_pylist(), strict=True)
    rows = [
        {"question_id": name, "trial": vote, "text": of if isinstance(of, str) else of[vote]}
        for name, key in named
        for vote in range(3)
        for of in [said[key >> 32][key & 0xFF]]
    ]
    whole = [row | {"seed": 1, "finish_reason": "stop"} for row in rows]
    columns = ATTEMPTS.with_metadata(provenance.part_metadata(runfolder.read_manifest(judge)))
    path = judge.attempts / "0000000000000001-n1-1-00000.parquet"
    shards.write_part(path, pa.Table.from_pylist(whole, columns))
    stage.verify(run)
    return again(run)


def expected(said: list[list[str]]) -> "np.ma.MaskedArray[tuple[int, int], np.dtype[np.int64]]":
    found = [[re.search(r"\d", text) for text in row] for row in said]
    return np.ma.masked_equal([[int(f[0]) if f else -1 for f in row] for row in found], -1)


def test_scores_of_points(tmp_path: Path, tiny_model: Path) -> None:
    texts = said(1, 0.1)
    run, points = judged(tmp_path / "run", tiny_model, texts), expected(texts)
    score.score(run)
    found, weights = json.loads((run.path / "scores.json").read_text()), np.arange(8) / 7
    head = found["headline"]
    assert [head[k] for k in ("value", "sigma", "low", "high")] == [
        *scoring.score_ci(points, weights)
    ]
    assert found["attempts"] == points.count() < M * N  # what is undecided is left out
    np.testing.assert_allclose([*found["points"]["by_question"].values()], points.mean(axis=1))
    np.testing.assert_allclose(found["metrics"]["avg"]["value"], (points / 7).mean(axis=1).mean())
    full = (points == 7).astype(int)
    assert found["metrics"]["pass@1"]["value"] == pytest.approx(full.mean(axis=1).mean())


def test_comparing_and_settling_on_points(tmp_path: Path, tiny_model: Path) -> None:
    both = [said(seed, 0.0) for seed in (1, 2)]
    made = [judged(tmp_path / "d" / n, tiny_model, of) for n, of in zip("ab", both, strict=True)]
    folders = [str(run.path) for run in made]
    cfg = AnalysisConfig(folders=folders)
    [found] = cohort.load(cfg)
    stack = np.stack([expected(of) for of in both]) / 7
    np.testing.assert_allclose(leaderboard.scores(found, cfg).avg.value, stack.mean(axis=(1, 2)))
    rows = {row["model"]: row for row in leaderboard.leaderboard(found, cfg).rows}
    assert rows["a"]["pass_at_2"] == scoring.pass_at_k((stack[0] == 1).astype(int), 2)
    np.testing.assert_allclose(scoring.values(looks.of_complete(folders).codes), stack)

    weights = "verifier.judgement.weights=[0,0,0,0,0,0,1,1]"
    other = judged(tmp_path / "d" / "c", tiny_model, both[0], weights)
    assert outcomes.read(other).matrix.weights.tolist() == [0] * 6 + [1] * 2
    more = AnalysisConfig(folders=[*folders, str(other.path)])
    assert cohort.load(more)[0].names == ["a", "b"]  # scored in another way
    other.cfg.prior.run = folders[0]
    with pytest.raises(UserError, match="prior="):
        score.score(other)


def test_several_judges_and_votes(tmp_path: Path, tiny_model: Path) -> None:
    """A panel: its alpha, and an attempt's label as the distribution of all votes."""
    one, two = said(1, 0.2), said(3, 0.0)
    run = judged(tmp_path / "run", tiny_model, one)
    run.cfg.verifier.name, run.cfg.verifier.panel = "second", ["judge-proof"]
    run.cfg.verifier.sampling.seed = 7
    run = written(run, two)
    a, b = expected(one), expected(two)
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    units = [[x for x in pair if x is not None] for pair in pairs]
    found = json.loads((run.path / "verdicts" / "_calibration.json").read_text())["alpha"]
    assert found["alpha"] == pytest.approx(krippendorff(units, "interval").alpha)
    assert found["votes"] == 2 * sum(len(unit) == 2 for unit in units)
    for votes, label in (("mean", np.mean), ("majority", min)):
        run.cfg.verifier.judgement.votes = votes
        stage.verify(run)
        scored = scoring.values(outcomes.read(run).matrix)
        names = ["a", "points", "votes"]
        for row in outcomes.VERDICTS_TABLE.read(run, names, None).table.to_pylist():
            place = int(row["question_id"][1:]), row["trial"]
            unit = units[place[0] * N + place[1]]
            assert sorted(map(int, row["votes"])) == sorted(unit)
            assert row["a"] == pytest.approx(unit.count(7) / len(unit))
            assert scored[place] == pytest.approx(label(unit) / 7)
    run.cfg.verifier.panel = ["nobody"]
    with pytest.raises(UserError, match="panel=nobody"):
        stage.verify(run)


@pytest.mark.parametrize(("judge", "most"), [("judge-proof", 7), ("judge-exam", 1)])
def test_several_votes_are_a_mean(tmp_path: Path, tiny_model: Path, judge: str, most: int) -> None:
    """Of an attempt: so the score is that of all votes, its interval that of attempts."""
    votes = np.random.default_rng(5).integers(0, most + 1, (M, N, 3))
    say = {"judge-proof": "<points>{}</points>", "judge-exam": "correct: {}"}[judge]
    words = ["no", "yes"] if most == 1 else [*map(str, range(8))]
    texts = [[[say.format(words[v]) for v in of] for of in row] for row in votes.tolist()]
    more = [f"verifier={judge}", "verifier.sampling.trials=3"]
    run = judged(tmp_path / "run", tiny_model, texts, *more)
    score.score(run)
    found = json.loads((run.path / "scores.json").read_text())
    assert found["metrics"]["avg"]["value"] == pytest.approx(votes.mean() / most)
    head = scoring.score_ci(votes.sum(axis=2), np.arange(3 * most + 1) / (3 * most))
    assert [found["headline"][key] for key in head._fields] == pytest.approx([*head])
    assert generated.written(run)["q1", 2] == texts[1][2]
    means = votes.mean(axis=(1, 2)) / most
    np.testing.assert_allclose([*found["points"]["by_question"].values()], means)


def test_votes_on_repeated_answers() -> None:
    """Intervals of answers that attempts share miss; with the sigma of their votes they hold."""
    rng, cfg, held = np.random.default_rng(4), VerifierConfig(kind="generate"), np.zeros(2)
    cfg.sampling.trials = 5
    verdicts = [generated.verdict([["correct"] * n + ["wrong"] * (5 - n)], cfg) for n in range(6)]
    for _ in range(100):
        share, p = rng.dirichlet([0.8, 0.8], 30), rng.beta(1, 1, (30, 2))
        texts = (rng.random((30, 16)) > share[:, :1]).astype(int)
        votes = rng.binomial(5, p)
        right = np.take_along_axis(votes, texts, 1)
        of = [verdicts[n] for n in right.ravel()]
        keys = (np.arange(480) // 16 << 32) + np.arange(480) % 16
        names = [f"{key >> 32} {text}" for key, text in zip(keys, texts.ravel(), strict=True)]
        shared = generated.shared_sigma(pa.table({"key": keys, "judged": names}), of)
        found = scoring.score_ci(right, np.arange(6) / 5)
        away = abs(found.value - (share * p).sum(axis=1).mean())
        held += away < 1.96 * np.array([found.sigma, np.hypot(found.sigma, shared)])
    assert held[0] < 75 and held[1] > 90, held
