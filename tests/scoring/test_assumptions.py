"""Do attempts share luck, has a prior drifted? By permutations, by hand, and known truth."""

import itertools
import json
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, again, run_of
from scipy.special import ndtr, ndtri
from scipy.stats import chi2, combine_pvalues, norm

from bayes_at_n import scoring
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.compare import cohort, comparison
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.scoring import INFLATION_LEVEL, Counts, inflation, prior_drift, shared_luck


def test_mean_and_variance_over_all_permutations_are_exact() -> None:
    rows = [(1, 1, 0, 0), (1, 0, 0, 0), (1, 1, 1, 0)]
    orders = (set(itertools.permutations(row)) for row in rows)
    every = np.array([*itertools.product(*orders)])
    assert len(every) == 6 * 4 * 4
    found = inflation(every)
    s2 = np.var(rows, axis=1, ddof=1)
    variance = 2 / 3 * (1 - (s2**2).sum() / s2.sum() ** 2)
    assert found.value.mean() == pytest.approx(1)
    assert found.value.var() == pytest.approx(variance)
    of_trials = np.var(every.sum(axis=1), axis=1, ddof=1) / s2.sum()
    np.testing.assert_allclose(found.value, of_trials)
    nu = 2 / variance
    np.testing.assert_allclose(found.p, chi2.sf(nu * of_trials, nu))
    values, step = np.unique(of_trials.round(9)), 2 / (3 * s2.sum())
    np.testing.assert_allclose((np.diff(values) / step).round(6) % 1, 0)
    low = np.maximum(of_trials - step / 2, 0)
    sums = every.sum(axis=1) - every.sum(axis=(1, 2))[:, None] / 4
    squares = (sums**2).sum(axis=1)
    excess = 4 * (sums**4).sum(axis=1) / np.where(squares > 0, squares, np.inf) ** 2 - 3
    nu = 3 / (1 + np.maximum(excess, 0) / 2)
    np.testing.assert_allclose(found.low, nu * low / chi2.ppf(0.975, nu))
    np.testing.assert_allclose(found.high, 3)  # three questions at most are all alike


def test_shared_luck_is_of_all_models_together_and_of_the_pair_of_least_p() -> None:
    rng = np.random.default_rng(3)
    own, common = rng.random((4, 30, 40)), rng.random((1, 40))
    R = np.stack([own[0] + common, own[1] + 0.5, own[2] + 1 - common, own[3] + 0.5]) < 1
    found, alone = shared_luck(R), [inflation(of) for of in R]
    np.testing.assert_allclose(found.models, np.transpose(alone))
    pairs = {(a, b): inflation(R[a], R[b]) for a, b in itertools.combinations(range(4), 2)}
    assert found.pair == (0, 2) == min(pairs, key=lambda pair: pairs[pair].p)
    assert found.of_pair == pytest.approx(pairs[0, 2])
    for of in (R, R[[1, 3, 1]], R[[1, 3]]):
        least = min(inflation(a, b).p for a, b in itertools.combinations(of, 2))
        together = combine_pvalues([inflation(a).p for a in of]).pvalue
        count = len(of) * (len(of) - 1) / 2
        assert shared_luck(of).p == pytest.approx(min(1, 2 * min(together, count * least)))
    one = shared_luck(R[1:2])
    assert one[:1] + one[2:] == (pytest.approx(alone[1].p), None, None)


def luck(p: Any, rho: float, shape: tuple[int, int], rng: np.random.Generator) -> tuple[Any, float]:
    """Outcomes (replicates, M, N) , correlated within a trial; the true inflation."""
    replicates, trials = shape
    z, cut = rng.standard_normal((replicates, 1, trials)), ndtri(p)[:, None]
    own = rng.standard_normal((replicates, len(p), trials))
    R = np.sqrt(rho) * z + np.sqrt(1 - rho) * own < cut
    grid = ndtri((np.arange(4000) + 0.5) / 4000)
    chance = ndtr((cut - np.sqrt(rho) * grid) / np.sqrt(1 - rho))
    shared = chance.sum(axis=0).var() - chance.var(axis=1).sum()
    return R.astype(np.int8), float(1 + shared / (p * (1 - p)).sum())


@pytest.mark.parametrize(
    ("questions", "trials", "rho", "least"),
    [
        (10, 8, 0.0, 0),
        (30, 20, 0.0, 0),
        (30, 80, 0.05, 0.6),
        (30, 20, 0.3, 0.8),
        (10, 40, 0.2, 0.45),
    ],
)
def test_simulated_luck_is_found_and_its_absence_too(
    questions: int, trials: int, rho: float, least: float
) -> None:
    rng, n = np.random.default_rng(5), 400
    R, truth = luck(rng.beta(1, 1, questions), rho, (n, trials), rng)
    found = inflation(R)
    held = ((found.low <= truth) & (truth <= found.high)).mean()
    assert held > 0.95 - 4 * np.sqrt(0.05 * 0.95 / n)
    said = (found.p < INFLATION_LEVEL).mean()
    if rho == 0:
        assert truth == pytest.approx(1) and found.value.mean() == pytest.approx(1, abs=0.05)
        assert said < INFLATION_LEVEL + 4 * np.sqrt(INFLATION_LEVEL / n)
    else:
        assert np.median(found.value) == pytest.approx(truth, rel=0.12) and said > least


@pytest.mark.parametrize(("questions", "trials"), [(30, 2), (30, 4), (30, 8), (10, 3)])
def test_independent_attempts_of_few_trials_are_not_accused(questions: int, trials: int) -> None:
    rng, n = np.random.default_rng(6), 10_000
    for beta in ((1, 1), (0.3, 0.3), (8, 2)):
        found = inflation(luck(rng.beta(*beta, questions), 0.0, (n, trials), rng)[0])
        accused = (found.p < INFLATION_LEVEL).mean()
        assert accused < INFLATION_LEVEL + 3 * np.sqrt(INFLATION_LEVEL / n)
        held = ((found.low <= 1) & (found.high >= 1)).mean()
        assert held > 0.95 - 4 * np.sqrt(0.05 * 0.95 / n) and (found.high > 0).all()
    shared = inflation(luck(np.full(questions, 0.5), 0.8, (2000, trials), rng)[0])
    assert (shared.p < INFLATION_LEVEL).mean() > (0.4 if trials < 4 else 0.9)
    equal = inflation([[1, 0], [0, 1]])
    assert (equal.value, equal.p) == (0, 1) and equal.low < 1 < equal.high


@pytest.mark.parametrize("R", [[[1], [0]], [[1, 1], [0, 0]], [[1, 1]]])
def test_where_nothing_varies_nothing_is_known(R: Any) -> None:
    assert inflation(R) == (1, 0, np.inf, 1)


def test_score_and_compare_say_it_where_it_matters(tmp_path: Path, capsys: Capsys) -> None:
    rng = np.random.default_rng(4)
    shared = luck(np.full(12, 0.5), 0.4, (1, 40), rng)[0][0]
    own = luck(np.full(12, 0.3), 0.0, (1, 40), rng)[0][0]

    for name, R in (("shared", shared), ("own", own)):
        lines = {f"q{i:02d}": "".join(map(str, row)) for i, row in enumerate(R)}
        made = run_of(tmp_path, name, lines)
        score(again(made))
        avg = json.loads((made.path / "scores.json").read_text())["uniform_prior"]["avg"]
        found = inflation(R)
        sigma = scoring.avg(R)[1] * max(1, found.value) ** 0.5
        assert avg["inflation"] == pytest.approx(found._asdict() | {"sigma": sigma})
        said, warned = " ".join(capsys.readouterr().err.split()), name == "shared"
        assert (f"{found.value:.2f} times" in said) == (f"σ is {sigma:.4f}" in said) == warned
    cfg = analysis.load([f"runs={tmp_path}", "dataset=sums"])
    tables = comparison.tables_of(cohort.load(cfg)[0], cfg)
    board, pairs = tables["leaderboard"], tables["neighbors"]
    by_name = {row["model"]: row for row in board.rows}
    assert by_name["own"]["inflation"] == pytest.approx(inflation(own).value)
    assert by_name["shared"]["inflation_high"] == pytest.approx(inflation(shared).high)
    assert pairs.rows[0]["inflation"] == pytest.approx(inflation(shared, own).value)
    [of_board] = [line for line in board.notes if "between trials" in line]
    assert of_board.startswith("avg of shared:") and "own" not in of_board
    [of_pairs] = [line for line in pairs.notes if "between trials" in line]
    assert of_pairs.startswith("shared minus own:")


def test_by_hand() -> None:
    """Question by question: worth 2 trials of 10, of none, and 3 of 6."""
    new, worth, of = [(3, 4), (1, 2), (0, 5)], [(1.5, 2), (0, 0), (2.4, 3)], [10, 0, 6]
    moves, variances, shares, mus, own, noise = [], [], [], [], [], []
    for (c, n), (b, d), raw in zip(new, worth, of, strict=True):
        total, before = 2 + d + n, b / d if d else 0.0
        pooled = (c + before * raw + 0.5) / (n + raw + 1)
        moves.append(d / total * (before - c / n))
        variances.append((d / total) ** 2 * pooled * (1 - pooled) * (1 / n + 1 / max(raw, 1)))
        mu, rate = (1 + b + c) / total, (c + 0.5) / (n + 1)
        shares, mus = [*shares, c / n], [*mus, mu]
        own.append(mu * (1 - mu) / (total + 1))
        noise.append(rate * (1 - rate) / n * ((n**2 + (2 + d) ** 2) / total**2))
    z = sum(moves) / sqrt(sum(variances))
    bias = np.mean(mus) - np.mean(shares) - np.mean(moves) * min(1, 1 / z**2)
    ends = norm.ppf(0.95) * sqrt(sum(own)) / 3, sqrt(sum(noise)) / 3
    expected = norm.cdf((ends[0] - bias) / ends[1]) - norm.cdf((-ends[0] - bias) / ends[1])
    counts = Counts(np.array([[n - c, c] for c, n in new]))
    found = prior_drift(counts, Counts(np.array([[d - b, b] for b, d in worth])), of, 0.9)
    assert found == pytest.approx((z, 2 * norm.sf(abs(z)), expected), abs=1e-9)
    nothing = prior_drift(counts, Counts(np.zeros((3, 2))))
    assert nothing[:2] == (0.0, 1.0) and 0 < nothing.coverage < 1
    with pytest.raises(ValueError, match="drift of a prior"):
        prior_drift(Counts(np.array([[0, 0]])), Counts(np.ones((1, 2))))


def test_score_warns(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(2)
    for name, chance, trials in (("old", 0.8, 20), ("new", 0.4, 8), ("like", 0.8, 8)):
        right = (rng.random((12, trials)) < chance).astype(int)
        lines = {f"q{q:02d}": "".join(map(str, row)) for q, row in enumerate(right)}
        run_of(Path("runs"), name, lines)

    def said(*words: str) -> str:
        assert main.main([*words, "prior=runs/sums/old", "prior.weight=8"]) == 0
        return " ".join(capsys.readouterr().err.split())

    warned = said("score", "runs/sums/new")
    assert "prior=runs/sums/old: was better than this run" in warned and "in about 0%" in warned
    assert "another checkpoint" not in said("score", "runs/sums/like")
