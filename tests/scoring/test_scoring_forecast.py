"""Forecasts of the score at a larger limit, by hiding the tail of lengths whose truth is known."""

from functools import partial

import numpy as np
import pytest

from bayes_at_n.scoring import avg, forecast, score_ci
from bayes_at_n.scoring.metrics.bayes import avg_ci
from bayes_at_n.scoring.metrics.forecast import FEWEST

Seen = tuple[np.ndarray, np.ndarray, np.ndarray]


def simulated(seed: int, easy: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes and lengths of 20 questions × 40 trials: hard ones are longer, wrong ones too."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(20, 1))
    right = rng.random((20, 40)) < 1 / (1 + np.exp(1.5 * hard - (6 if easy else 0.5)))
    spread = 0.5 * hard + 0.5 * rng.normal(size=right.shape)
    return right.astype(int), np.ceil(1000 * np.exp(spread) * np.where(right, 1, 1.5))


def hidden(R: np.ndarray, tokens: np.ndarray, limit: int) -> Seen:
    """What a run with this limit would have seen."""
    cut = tokens > limit
    return np.where(cut, 0, R), np.minimum(tokens, limit), cut


@pytest.mark.parametrize("easy", [False, True])
def test_the_interval_holds_the_truth_that_was_hidden(easy: bool) -> None:
    held, width, room = [], [], []
    for seed in range(8):
        R, tokens = simulated(seed, easy)
        seen = hidden(R, tokens, 3000)
        f = forecast(*seen, 6000, draws=300, seed=seed)
        now = score_ci(seen[0])
        assert not f.why and f.least == now.value < f.value < f.most
        assert now.low <= f.low < f.value < f.high <= score_ci(seen[0] + seen[2]).high
        held.append(f.low <= avg(np.where(tokens <= 6000, R, 0))[0] <= f.high)
        width.append(f.high - f.low)
        room.append(score_ci(seen[0] + seen[2]).high - now.low)
    assert sum(held) >= 7
    assert np.mean(width) < 0.8 * np.mean(room)  # and it says more than what is possible


def test_a_forecast_is_in_the_unit_of_the_score_passed() -> None:
    seen = hidden(*simulated(3), 2000)
    for score in (score_ci, avg_ci, partial(avg_ci, w=[0, 100])):
        f = forecast(*seen, 4000, score, draws=200)
        assert (f.least, f.most) == (score(seen[0]).value, score(seen[0] + seen[2]).value)
        assert f.least < f.value < f.most
    assert f.value > 1


def test_why_there_is_no_forecast() -> None:
    R, tokens = simulated(1)
    # Few attempts that reached half of the limit ended: 85 of them did, and 709 were cut off.
    few = forecast(*(seen := hidden(R, tokens, 500)), 1000)
    near = int(((seen[1] > 250) & ~seen[2]).sum())
    assert f"of {near + seen[2].sum()} attempts" in few.why and f"only {near} ended" in few.why
    assert np.isnan(few[:3]).all() and (few.least, few.most) == tuple(
        score_ci(R).value for R in (seen[0], seen[0] + seen[2])
    )
    # Too far.
    assert "more than 4 times" in forecast(*hidden(R, tokens, 3000), 12_001).why
    assert not forecast(*hidden(R, tokens, 3000), 12_000).why
    # Ten attempts must have ended there.
    outcomes, lengths = np.array([[1, 0] * 8] * 2), np.array([[100] * 9 + [300] * 7] * 2)
    lengths[0, : FEWEST - 1] = 800
    lengths[1, -1] = 1000
    assert "only 9 ended" in forecast(outcomes, lengths, lengths == 1000, 2000).why
    lengths[1, 0] = 800
    assert not forecast(outcomes, lengths, lengths == 1000, 2000).why


def test_long_answers_that_are_not_like_short_ones_have_no_forecast() -> None:
    rng = np.random.default_rng(0)
    tokens = np.ceil(1000 * np.exp(0.6 * rng.normal(size=(30, 40))))
    alike = forecast(*hidden((rng.random(tokens.shape) < 0.6).astype(int), tokens, 2000), 4000)
    falling = (rng.random(tokens.shape) < np.where(tokens < 1000, 0.9, 0.2)).astype(int)
    f = forecast(*hidden(falling, tokens, 2000), 4000)
    assert not alike.why and "longer ones may be anything" in f.why
    assert f.why.startswith(f"{falling[(tokens > 1000) & (tokens <= 2000)].mean():.0%} of")


def test_limits_of_what_can_change() -> None:
    R, tokens = simulated(2)
    whole = forecast(R, tokens, np.zeros(R.shape, bool), 10**6)
    assert whole[:5] == (*np.array(score_ci(R))[[0, 2, 3]], whole.value, whole.value)
    # A limit that lies no higher changes nothing; of questions one by one only what may go on.
    seen = hidden(R, tokens, 3000)
    assert forecast(*seen, 3000).value == score_ci(seen[0]).value
    some = forecast(*seen, np.where(np.arange(20) < 10, 9000, 3000))
    assert some.least < some.value < some.most < forecast(*seen, 9000).most
    # Trials that are missing count for nothing, whatever lies under the mask.
    mask = np.zeros(R.shape, bool)
    mask[:, 30:] = True
    ragged = forecast(np.ma.array(seen[0], mask=mask), seen[1], seen[2], 6000)
    assert ragged == forecast(*(part[:, :30] for part in seen), 6000)
    with pytest.raises(ValueError):
        forecast(R, tokens[:, :3], seen[2], 6000)
