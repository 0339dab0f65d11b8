"""Wilson's interval against scipy and by its definition."""

import math

import numpy as np
import pytest
from helpers import ragged
from scipy import stats

from bayes_at_n.scoring.intervals.uncertainty import wilson_ci

Z95 = 1.959963984540054


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_wilson_agrees_with_scipy(confidence: float) -> None:
    for c, n in ((0, 12), (12, 12), (7, 12), (1, 1200)):
        R = np.zeros((4, n // 4), dtype=int)
        R.flat[:c] = 1
        a, stderr, lo, hi = wilson_ci(R, confidence)
        peer = stats.binomtest(c, n).proportion_ci(confidence, method="wilson")
        np.testing.assert_allclose((lo, hi), (peer.low, peer.high), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose((a, stderr), (c / n, math.sqrt(c / n * (1 - c / n) / n)))


def test_wilson_of_unequal_trials_uses_the_effective_number() -> None:
    a, stderr, lo, hi = wilson_ci(ragged([[1, 1, 0], [0, 0], [1, 1, 1, 1], [1, 0, 1, 1]]))
    share = (2 / 3 + 0 + 1 + 3 / 4) / 4
    n = 16 / (1 / 3 + 1 / 2 + 1 / 4 + 1 / 4)
    np.testing.assert_allclose((a, stderr), (share, math.sqrt(share * (1 - share) / n)))
    # The ends are where the score test of p just rejects: (a - p)^2 = z^2 p (1 - p) / n.
    for p in (lo, hi):
        assert abs((a - p) ** 2 - Z95**2 * p * (1 - p) / n) < 1e-14
