"""The conclusion on a cohort: against `Race`, where the truth is known, where people labeled."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, run_of
from scipy.stats import norm, t

from bayes_at_n import scoring
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.compare import leaderboard, rankings
from bayes_at_n.pipeline.compare.claims import claims
from bayes_at_n.pipeline.compare.cohort import Cohort, from_arrays, load
from bayes_at_n.pipeline.compare.conclusion import conclude, is_open
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.score.headline import correlation_warning
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.scoring import Inflation, labeled, prediction_powered
from bayes_at_n.scoring.sequential import Race, Target

CFG = analysis.load([])


def drawn(rng: np.random.Generator, rates: np.ndarray, trials: int) -> Cohort:
    """A cohort of models a, b, ... with these rates of being correct, (L, M)."""
    R = (rng.random((*rates.shape, trials)) < rates[..., None]).astype(int)
    models, questions = rates.shape
    return from_arrays("d", [*"abcdefgh"[:models]], [f"q{i}" for i in range(questions)], R)


@pytest.mark.parametrize("questions", [2, 30])
def test_a_conclusion_is_that_of_the_averages_together(questions: int) -> None:
    rng = np.random.default_rng(questions)
    cohort = drawn(rng, np.array([[0.58], [0.55], [0.6], [0.35]]) * np.ones(questions), 30)
    found = conclude(cohort, CFG)
    avg, sigma = scoring.avg(cohort.matrix())
    order = np.argsort(-avg)
    stay = scoring.best_candidates(avg, sigma)
    assert found.candidates == [cohort.names[i] for i in order if stay[i]]
    assert found.models[0] == found.candidates[0] and len(found.candidates) > 1
    chance = scoring.probability_best(avg, sigma)[order[0]]
    assert found.probability == pytest.approx(chance)
    row = rankings.neighbors(cohort, CFG).rows[0]
    assert [row["above"], row["below"]] == found.candidates[:2]
    ends = [found.trials, found.fewest, found.most]
    planned = [row[key] for key in ("trials", "trials_fewest", "trials_most")]
    assert ends == [None if np.isinf(trials) else trials for trials in planned]
    if questions == 2:
        assert found.other_questions is None
        return
    # Two models: half of the variance of the paired gaps each, as Student's t has it.
    two = from_arrays("d", ["a", "b"], cohort.question_ids, cohort.matrix()[:2])
    gaps = np.asarray(two.matrix().mean(axis=2))
    each = math.sqrt((gaps[0] - gaps[1]).var(ddof=1) / 30 / 2 * 29 / 27)
    a, sigma = scoring.avg(two.matrix())
    chances = scoring.probability_best(a, np.maximum(each, sigma))
    assert conclude(two, CFG).other_questions == pytest.approx(chances.max())


def test_what_is_settled_is_what_settle_would_claim() -> None:
    """The claims of `Race` after each trial; the second model has fewer of them."""
    rng = np.random.default_rng(5)
    codes = (rng.random((3, 12, 40)) < np.array([0.8, 0.55, 0.3])[:, None, None]).astype(int)
    codes[1, 4, 25] = -1  # no complete trial from here on counts
    cohort = from_arrays("d", [*"abc"], [*"abcdefghijkl"], codes)
    race, largest = Race(3, 12, Target("order"), tie=0.01), np.zeros((3, 3))
    for trial in range(40):
        live = [1, trial < 25, 1] * np.ones((12, 1), int)
        race.add(codes[:, :, trial] * live.T, live.T)
        largest = np.maximum(largest, race.look().log_e)
    look, found = race.look(), claims(cohort, CFG)
    np.testing.assert_allclose(found.log_e, largest)
    assert (found.better == look.better).all() and (found.tied == look.tied).all()
    assert found.needed == look.log_needed and conclude(cohort, CFG).settled
    rows = {(row["above"], row["below"]): row for row in rankings.pairs(cohort, CFG).rows}
    assert rows["a", "b"]["log10_e"] == pytest.approx(largest[0, 1] / np.log(10))
    assert rows["a", "b"]["settled"] == "better"


def test_what_is_claimed_follows_the_numbers() -> None:
    rng = np.random.default_rng(3)
    clear = conclude(drawn(rng, np.array([[0.9], [0.5], [0.1]]) * np.ones(5), 40), CFG)
    assert clear.settled and clear.candidates == ["a"] and clear.trials is None

    # Apart at this N, but not for all looks: `settle` is what goes on.
    near = drawn(np.random.default_rng(1), np.array([[0.6], [0.5]]) * np.ones(20), 16)
    found = conclude(near, CFG)
    assert found.candidates == ["a"] and not found.settled and "`settle`" in found.sentence()

    # All equal: nothing is claimed, and no number of trials would help.
    same = from_arrays("d", [*"abcdefgh"], ["p", "q"], np.ones((8, 2, 3), int))
    equal = conclude(same, CFG)
    assert not equal.settled and equal.probability == pytest.approx(1 / 8)
    assert len(equal.candidates) == 8 and equal.trials is None
    many = from_arrays("d", ["a", "b"], [f"{i}" for i in range(30)], np.ones((2, 30, 80), int))
    alike = conclude(many, analysis.load(["margin=5"]))
    assert alike.margin == 5 and "5 points" in alike.sentence()

    # Trials that share luck settle nothing, however far models are apart.
    luck = np.random.default_rng(2).random(40) < 0.5
    shared = np.stack([np.repeat(luck[None], 12, axis=0), np.zeros((12, 40))]).astype(int)
    lucky = conclude(from_arrays("d", ["a", "b"], [*"abcdefghijkl"], shared), CFG)
    assert lucky.dependent is not None and not lucky.settled

    alone = from_arrays("d", ["a"], ["p", "q"], np.array([[[1, 1, 0, 1], [0, 0, 1, -1]]]))
    only = conclude(alone, CFG)
    assert not only.settled and only.other_questions is None and "0.542" in only.sentence()
    for one in (clear, found, equal, alike, lucky, only):
        assert one.sentence().endswith(".") and "\n" not in one.sentence()


def test_single_trials_need_more_questions() -> None:
    rng = np.random.default_rng(5)
    greedy = from_arrays(
        "d", ["a", "b"], [*map(str, range(50))], rng.random((2, 50, 1)) < [[[0.7]], [[0.55]]]
    )
    found = conclude(greedy, CFG)
    assert found.trials is None and found.new_questions is not None and not is_open(found._asdict())
    avg, sigma = leaderboard.scores(greedy, CFG).avg[:2]
    z = abs(avg[0] - avg[1]) / np.hypot(*sigma)
    # z of so many questions, at the same gap, exceeds 1.96 by the quantile of the power
    assert z * (1 + found.new_questions / 50) ** 0.5 == pytest.approx(1.96 + norm.ppf(0.9), 1e-3)


def test_a_conclusion_says_that_outcomes_decided_the_trials(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", {"q": "1100"})
    manifest = runfolder.read_json(run.manifest) | {"stopped": {"until": "best", "trials": 4}}
    runfolder.write_json(run.manifest, manifest)
    run_of(tmp_path, "b", {"q": "0000"})
    cfg = analysis.load([f"runs={tmp_path}"])
    found = conclude(load(cfg)[0], cfg)
    assert found.stopped and "`settle`" in found.sentence()
    runfolder.write_json(run.manifest, runfolder.read_json(run.manifest) | {"imported": {}})
    found = conclude(load(cfg)[0], cfg)
    assert found.imported and "`settle` samples" not in found.sentence()


def test_seeds_that_couple_attempts_settle_nothing(tmp_path: Path) -> None:
    for name, mark in (("a", "1"), ("b", "0")):
        run = run_of(tmp_path, name, {f"q{i}": mark * 16 for i in range(10)})
        manifest = runfolder.read_json(run.manifest) | {
            "generated": {"engines": [{"runner": "V1"}]}
        }
        runfolder.write_json(run.manifest, manifest)
    cfg = analysis.load([f"runs={tmp_path}"])
    [cohort] = load(cfg)
    assert cohort.members[0].run.cfg.sampling.seeds == "shared"
    found = conclude(cohort, cfg)
    assert not found.settled and "random numbers (a and b)" in found.sentence()
    cohort.scored.clear()
    for member in cohort.members:
        member.run.cfg.sampling.seeds = "independent"
    assert conclude(cohort, cfg).settled


def made(root: Path, name: str, chance: float, accepted: float, dataset: str = "x") -> list[float]:
    """Of a run with 40 labels the corrected score, sigma as wide as Student's, the judged score,
    and the low end that `score` prints."""
    rng = np.random.default_rng([*f"{dataset}/{name}".encode()])
    y = rng.random((12, 20)) < chance
    f, at = y | (rng.random(y.shape) < accepted), rng.permutation(240)[:40]
    lines = {f"q{i:02d}": "".join(map(str, row.astype(int))) for i, row in enumerate(f)}
    path = run_of(root, name, lines, "sampling.seeds=independent", dataset=dataset).path / "labels"
    path.mkdir()
    keys = ({"question_id": f"q{i // 20:02d}", "trial": int(i % 20)} for i in at)
    rows = (key | {"correct": bool(y.flat[i])} for key, i in zip(keys, at, strict=True))
    (path / "ana.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sample = labeled(f.ravel(), y.ravel()[at], at, questions=np.arange(240) // 20)
    found = prediction_powered(sample)
    wider = t(found.freedom).ppf(0.975) / norm.ppf(0.975)
    return [found.value, found.sigma * wider, float(f.mean()), found.low]


def compared(root: Path, capsys: Capsys, *settings: str) -> Any:
    assert main.main(["compare", f"runs={root}", *settings, "--json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    return found["pooled"] or found["datasets"][0]


def test_differences_carry_the_error_of_judges(tmp_path: Path, capsys: Capsys) -> None:
    a, s, strict, *low = made(tmp_path, "strict", 0.6, 0.0)
    b, u, lenient, *low[1:] = made(tmp_path, "lenient", 0.45, 0.5)
    found = compared(tmp_path, capsys)
    assert [row["model"] for row in found["models"]] == ["strict", "lenient"]
    assert [row["score"] for row in found["models"]] == pytest.approx([a, b])
    assert [row["low"] for row in found["models"]] == pytest.approx(low)
    pair, sigma = found["pairs"][0], np.hypot(s, u)
    assert pair["log10_e"] is None
    assert pair["high"] == pytest.approx(a - b + norm.ppf(0.975) * sigma)
    assert pair["probability"] == pytest.approx(norm.cdf((a - b) / sigma))
    assert 0.5 < pair["probability_other_questions"] < pair["probability"] and not pair["settled"]
    (tmp_path / "x" / "lenient" / "labels" / "ana.jsonl").unlink()  # then none is corrected
    found = compared(tmp_path, capsys)
    assert [row["avg"] for row in found["models"]] == pytest.approx([lenient, strict])


def test_datasets_are_pooled_and_the_gate_asks_people_too(tmp_path: Path, capsys: Capsys) -> None:
    values = [made(tmp_path, "new", 0.4, 0.6, of)[0] for of in "xy"]
    for dataset in "xy":
        made(tmp_path, "base", 0.4, 0.0, dataset)
    pooled = compared(tmp_path, capsys, "dataset=x,y")
    value = {row["model"]: row["avg"] for row in pooled["models"]}["new"]
    assert value == pytest.approx(np.mean(values)) and "people" not in pooled
    (tmp_path / "policy.yaml").write_text("datasets: {x: {better: 0}}")
    gate = ["compare", f"runs={tmp_path}", "model=base,new", f"gate={tmp_path}/policy.yaml"]
    gate.append(f"out={tmp_path}/out")
    assert main.main(gate) == 4 and "human labels" in capsys.readouterr().out
    (tmp_path / "policy.yaml").write_text("datasets: {x: {no_worse: 90}}")
    assert main.main(gate) == 0 and "any look" not in capsys.readouterr().out.splitlines()[-1]
    [row] = json.loads((tmp_path / "out" / "gate.json").read_text())["datasets"]
    assert row["labels_low"] < row["labels"] < row["labels_high"]
    (tmp_path / "policy.yaml").write_text("datasets: {x: {better: 0}}")
    for name in ("base", "new"):
        (tmp_path / "x" / name / "labels" / "ana.jsonl").unlink()
    assert main.main(gate) == 0  # the judge's own outcomes are far apart
    assert "any look" in capsys.readouterr().out.splitlines()[-1]


def test_shared_luck_inflates_the_part_of_trials_alone() -> None:
    [line] = correlation_warning(["a"], Inflation(4.0, 2.0, 6.0, 1e-9), 0.01, 0.95, 0.05)
    assert f"{(0.05**2 + 3 * 0.01**2) ** 0.5:.4f}, not 0.0500" in line


def test_changes_and_rankings_name_what_they_compare(tmp_path: Path, capsys: Capsys) -> None:
    values = [made(tmp_path / night, "a", 0.4, share)[0] for night, share in (("o", 0), ("n", 0.6))]
    for night in "on":
        run_of(tmp_path / night, "b", {f"q{i:02d}": "0110" for i in range(12)}, dataset="x")
    assert main.main(["compare", f"{tmp_path}/o", f"{tmp_path}/n", "--json"]) == 0
    found: Any = json.loads(capsys.readouterr().out)
    row = next(row for row in found["changes"] if row["model"] == "a")
    assert [row["old"], row["new"]] == pytest.approx(values) and "labels in 1 of" in found["notes"][
        0
    ]
    made(tmp_path / "n", "c", 0.5, 0.1)
    found = compared(tmp_path / "n", capsys, "model=a,c", "ranking=borda")
    assert [row["method"] for row in found["ranking_methods"]] == ["avg (corrected)", "borda"]
    assert "avg (corrected)" in found["notes"]["ranking_methods"][0]
    run_of(tmp_path / "n", "short", {f"q{i:02d}": "01" * 10 for i in range(6)}, dataset="x")
    row = compared(tmp_path / "n", capsys, "model=c,short")["people"][0]
    labels = [json.loads(line) for line in (tmp_path / "n/x/c/labels/ana.jsonl").open()]
    counted = sum(int(row[key].split(" of ")[1]) for key in ("missed", "accepted"))
    assert counted == sum(label["question_id"] < "q06" for label in labels) < len(labels)
