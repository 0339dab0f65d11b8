"""Has a prior run drifted? By hand, in simulation with known truth, and on run folders."""

from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from helpers import Capsys, run_of
from scipy.stats import norm

from bayes_at_n.pipeline.cli import main
from bayes_at_n.scoring import Counts, prior_drift


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
