"""Simulated studies against the paper's pattern, scipy and a normal approximation."""

from collections import Counter

import numpy as np
import pytest
from made_cohorts import tiny
from scipy.stats import kendalltau, norm

from bayes_at_n import scoring
from bayes_at_n.pipeline.paper import simulated, studies
from bayes_at_n.scoring.studies import simulation


def test_coins_agree_with_the_papers_pattern_and_with_scipy() -> None:
    plan = tiny(coin_sets=100)
    found = simulated.coins(plan, [])
    by_id = {n.id: n for n in studies.numbers()}
    for key in (k for k in found.numbers if k in by_id):
        assert by_id[key].agrees(found.numbers[key]), key
    # The commonest whole row, and how often the printed one comes out, counted by hand.

    coins = simulation.coin_models(plan.seed, 100)
    mu, sigma = scoring.bayes(simulation.toss(coins, 80, plan.seed))
    rows = Counter(tuple(map(int, row)) for row in scoring.ranks_with_uncertainty(mu, sigma))
    row = tuple(int(by_id[f"coins.ci.LLM{i}"].value) for i in range(1, 12))
    assert rows.most_common(1)[0][0] == row
    assert found.numbers["coins.ci.LLM1.other"] == rows[row] / 100
    # Panel (a) at N = 5, Bayes@N, from tosses made anew: scipy's tau_b with the true means.
    coins = simulation.coin_models(plan.seed, 1)[0]
    truth = np.round(coins.mean(axis=1), 4)
    taus = [
        kendalltau(matrix[:, :, :8].sum(axis=(1, 2)), truth).statistic
        for matrix in simulation.tosses(coins, 80, plan.matrices, plan.seed)
    ]
    [row] = [r for r in found.tables["fig2"].rows if r["estimator"] == "Bayes@N"]
    assert row["a8"] == pytest.approx(np.mean(taus), abs=1e-12)


def test_separation_lies_where_the_paper_and_a_normal_approximation_put_it() -> None:
    found = simulated.separation(tiny(separation_sets=10, separation_replicates=500), []).numbers
    assert 0.79 <= found["separation.p.80.low"] <= found["separation.p.80"] <= 0.86
    assert found["separation.z.80"] == pytest.approx(1.14, abs=0.06)
    # Mean |z| of a normal with the drift that the printed means give, and 3,600 coins tossed.

    coins = simulation.coin_models(2025, 10)
    a, b = coins[:, 9], coins[:, 8]
    sigma = np.sqrt(((a * (1 - a)).sum(axis=1) + (b * (1 - b)).sum(axis=1)) / 80) / 30
    drift = (0.6213 - 0.608) / sigma
    expected = np.mean(
        np.sqrt(2 / np.pi) * np.exp(-(drift**2) / 2) + drift * (1 - 2 * norm.cdf(-drift))
    )
    assert found["separation.z.80"] == pytest.approx(expected, abs=0.04)
    for z in (1.645, 1.96):
        low, mean, high = (found[f"separation.n.{z}{end}"] for end in (".low", "", ".high"))
        assert low < mean < high
    assert found["separation.n.1.645"] < found["separation.n.1.96"]


def test_priors_meet_the_anchors() -> None:
    found = simulated.priors(tiny(prior_replicates=3000), [])
    by_id = {n.id: n for n in studies.numbers()}
    for key in (k for k in found.numbers if k in by_id):
        assert by_id[key].agrees(found.numbers[key]), key
    shares = [row["share"] for row in found.tables["fig2a_001"].rows]
    assert sum(shares) == pytest.approx(1)
    assert shares[-1] == pytest.approx(1 - found.numbers["priors.changed"], abs=0.02)
