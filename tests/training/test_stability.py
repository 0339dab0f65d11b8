"""Curves, taus, bootstraps and crossings against formulas and enumeration."""

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from made_windows import one_of
from scipy import stats

from bayes_at_n import scoring
from bayes_at_n.pipeline.config.multirun import TrajectoryConfig
from bayes_at_n.pipeline.training import forms, stability
from bayes_at_n.pipeline.training.tracks import Tokens, Track
from bayes_at_n.scoring.metrics import table


def track(right: Any, trials: int, **more: Any) -> Track:
    """With the first trials of every question correct, the others wrong."""
    return along(np.arange(trials) < np.asarray(right)[..., None], **more)


def along(marks: Any, **more: Any) -> Track:
    """`greedy` is (n, M), 1 where the greedy attempt is right."""
    R = np.asarray(marks, np.int8)
    steps = np.arange(1, len(R) + 1) * 100
    names = [f"s-{step}" for step in steps]
    if "greedy" in more:
        more["greedy"] = np.asarray(more["greedy"])[..., None]
    base = Track("", "sums", 1, steps, names, R, None, Tokens(3.0, 5.0), Tokens(None, None))
    return base._replace(**more)


def tau_of(scores: Sequence[float]) -> float:
    n = len(scores)
    rising = sum(b > a + 1e-12 for a, b in itertools.combinations(scores, 2))
    return 4 * rising / (n * (n - 1)) - 1


def pass_at(c: int, n: int, k: int) -> float:
    return 1 - math.comb(n - c, k) / math.comb(n, k)


RIGHT = [[0, 1, 2], [1, 1, 2], [3, 0, 4], [2, 4, 5], [4, 4, 6]]  # of eight, by checkpoint


CFG = TrajectoryConfig(metrics=["pass@1", "pass@2", "pass@4"], replicates=400)


def test_curves_and_taus_are_those_of_scoring() -> None:
    own = track(RIGHT, 8, greedy=np.array([[0, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]]))
    curve = stability.curve([own], CFG)
    rows = stability.judge([own], CFG)["stability"]
    expected = {
        "avg": scoring.avg(own.R)[0],
        "bayes": scoring.bayes(own.R)[0],
        "greedy": np.array([0, 1 / 3, 1 / 3, 2 / 3, 1]),
        **{f"pass@{k}": scoring.pass_at_k(own.R, k) for k in (1, 2, 4)},
    }
    for metric, values in expected.items():
        found = [row for row in curve if row["metric"] == metric]
        assert [row["value"] for row in found] == pytest.approx(values.tolist())
        row = one_of(rows, metric=metric, steps="common")
        assert row["tau"] == pytest.approx(scoring.monotone_tau(values)) and row["n"] == 5
        assert row["down"] == pytest.approx(scoring.down_share(values))
    assert row["tau_mean"] is not None
    greedy = one_of(rows, metric="greedy", steps="common")
    assert greedy["tau_mean"] is None and greedy["tau"] == pytest.approx(0.8)  # a tie is discordant
    assert greedy["tau_b"] == pytest.approx(9 / math.sqrt(90)) and greedy["flat"] == 0.25
    bayes = [row for row in curve if row["metric"] == "bayes"]
    summary = scoring.bayes_ci(own.R)
    assert [row["sigma"] for row in bayes] == pytest.approx(summary.sigma.tolist())
    assert bayes[4]["high"] == pytest.approx(summary.high[4]) and bayes[0]["real"] is None
    for before, after in itertools.pairwise(bayes):
        change = after["value"] - before["value"]
        half = NormalDist().inv_cdf(0.975) * math.hypot(after["sigma"], before["sigma"])
        assert (after["change"], after["change_low"]) == pytest.approx((change, change - half))
        assert after["real"] == (abs(change) > half)
    row = one_of(rows, metric="bayes", steps="all")
    assert row["real_up"] == sum(b["real"] and b["change"] > 0 for b in bayes[1:])


def columns_drawn(n: int, shares: Sequence[float]) -> dict[tuple[int, int], float]:
    """Chances of (c of the first, c of the second) for n columns of kinds 00, 10, 01 and 11."""
    found: dict[tuple[int, int], float] = {}
    for kinds in itertools.product(range(n + 1), repeat=4):
        if sum(kinds) == n:
            ways = math.factorial(n) / math.prod(map(math.factorial, kinds))
            chance = ways * math.prod(s**k for s, k in zip(shares, kinds, strict=True))
            at = (kinds[1] + kinds[3], kinds[2] + kinds[3])
            found[at] = found.get(at, 0) + chance
    return found


def test_bootstrap_is_what_enumeration_gives() -> None:
    """Two checkpoints, one question: every outcome of n draws has a known probability."""
    cfg = TrajectoryConfig(metrics=["pass@2"], replicates=20000, seed=5)
    one = along([[[1, 1, 0, 0, 0, 0, 0, 0]], [[1, 0, 1, 1, 1, 1, 0, 0]]])
    shares = [2 / 8, 1 / 8, 4 / 8, 1 / 8]
    found = stability.judge([one], cfg)
    for n in (1, 2, 8):
        chances = columns_drawn(n, shares)
        assert sum(chances.values()) == pytest.approx(1)
        row = one_of(found["samples"], metric="bayes", n=n)
        mean = sum(p * (1 if j > i else -1) for (i, j), p in chances.items())
        assert row["tau_mean"] == pytest.approx(mean, abs=0.03)
        assert row["tau"] == (1 if n == 8 else None)
        if n > 1:
            taus = {at: tau_of([pass_at(c, n, 2) for c in at]) for at in chances}
            row = one_of(found["samples"], metric="pass@2", n=n)
            mean = sum(p * taus[at] for at, p in chances.items())
            assert row["tau_mean"] == pytest.approx(mean, abs=0.03)


def test_merged_and_single_are_drawn_jointly() -> None:
    """Merged models with the very outcomes of single ones gain nothing in any replicate."""
    marks = np.random.default_rng(2).integers(0, 2, (5, 3, 8))
    single, pair = along(marks), along(marks, window=2)
    rows = stability.judge([single, pair], CFG)["stability"]
    gains = [r for r in rows if r["window"] == 2 and r["steps"] == "common"]
    assert {(r["gain_mean"], r["gain_low"], r["gain_high"]) for r in gains} == {(0, 0, 0)}


def test_windows_are_compared_over_the_steps_that_all_have() -> None:
    single = track([[0], [3], [2], [4], [5]], 8)
    pair = track([[1], [2], [3], [6]], 8, window=2)._replace(steps=single.steps[1:])
    rows = stability.judge([single, pair], CFG)["stability"]
    assert one_of(rows, metric="avg", window=1, steps="all")["n"] == 5
    common = one_of(rows, metric="avg", window=1, steps="common")
    assert common["n"] == 4 and common["tau"] == pytest.approx(tau_of([3, 2, 4, 5]))
    made = forms.of_map(rows)
    assert list(made) == ["protocols", "merge", "passk"]
    costs = stability.judge([single, pair], CFG)["samples"]
    assert all(row["cost_trajectory"] == pytest.approx(4 * row["cost"]) for row in costs)
    row = one_of(made["merge"].rows, metric="avg@8")
    assert row["original"] == pytest.approx(2 / 3) and row["merge"] == 1
    assert row["improve"] == pytest.approx(1 / 3)
    protocols = ["Original (Merge@1, Pass@1)", "+ Merge@2", "+ Pass@4", "MaP (Merge@2, Pass@4)"]
    assert [row["protocol"] for row in made["protocols"].rows] == protocols
    assert [row["of_sums"] for row in made["protocols"].rows[:2]] == [pytest.approx(2 / 3), 1]
    assert [row["protocol"] for row in made["passk"].rows] == ["Pass@1", "Pass@2", "Pass@4"]
    assert made["passk"].rows[0]["of_sums"] == pytest.approx(tau_of([0, 3, 2, 4, 5]))


def test_trainings_side_by_side() -> None:
    a = track([[10, 20], [30, 30], [20, 30], [60, 70]], 80, training="a")
    b = track([[20, 20], [10, 10], [60, 60], [62, 70]], 80, training="b")
    b = b._replace(steps=np.array([100, 200, 300, 500]))
    rows = stability.ahead([a, b], CFG)
    assert [row["step"] for row in rows] == [100, 200, 300]
    row = rows[1]
    variance = sum((82 / 80) ** 2 * (c + 1) * (81 - c) / 82**2 / 83 / 4 for c in (30, 30, 10, 10))
    assert row["difference"] == pytest.approx(40 / 160)
    assert row["probability"] == pytest.approx(NormalDist().cdf(0.25 / math.sqrt(variance)))


def test_equal_totals_have_no_difference() -> None:
    """The same mean summed over other questions differs by rounding: no sign."""
    one, other = [12, 26, 17], [17, 26, 12]
    a = track([one, other, one, [30, 30, 30]], 30, training="a")
    b = track([other, one, other, [20, 20, 20]], 30, training="b")
    found = [table.parse("avg").summary(of.R).value for of in (a, b)]
    assert (found[0] != found[1])[:3].all()  # else this would show nothing
    rows = stability.ahead([a, b], CFG)
    assert [row["difference"] for row in rows[:3]] == [0, 0, 0]
    assert [row["probability"] for row in rows[:3]] == [0.5] * 3 and not rows[0]["real"]


@pytest.mark.parametrize("title", ["accuracy", "-bits per byte"])
def test_what_is_not_random_varies_between_questions_only(title: str) -> None:
    """Steps are differences on the same questions, and a replicate draws questions."""
    rng = np.random.default_rng(1)
    R = rng.integers(0, 2, (4, 12, 1)) if title == "accuracy" else -rng.random((4, 12, 1))
    one, values = along(R, fixed=True)._replace(R=R), R[..., 0].astype(float)
    rows = stability.curve([one], CFG)
    assert {row["protocol"] for row in rows} == {f"Merge@1, {title}"}
    for row, now, apart in zip(rows, values, np.diff(values, axis=0, prepend=0), strict=True):
        assert (row["value"], row["sigma"]) == pytest.approx((now.mean(), stats.sem(now)))
        assert row["z"] in (None, pytest.approx(apart.mean() / stats.sem(apart)))
    assert all(-1 < row["tau_mean"] < 1 for row in stability.judge([one], CFG)["stability"])
