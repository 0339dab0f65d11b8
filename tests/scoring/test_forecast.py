"""Forecasts of the score at a larger limit, by hiding the tail of lengths whose truth is known."""

import numpy as np
import pytest

from bayes_at_n.scoring import bayes, bayes_ci, forecast


def simulated(seed: int, loops: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes and lengths of 20 questions × 40 trials: hard ones are longer, wrong ones too."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(size=(20, 1))
    right = rng.random((20, 40)) < 1 / (1 + np.exp(1.5 * hard - 0.5))
    spread = 0.5 * hard + 0.5 * rng.normal(size=right.shape)
    tokens = np.ceil(1000 * np.exp(spread) * np.where(right, 1, 1.5))
    endless = rng.random(right.shape) < loops
    return (right & ~endless).astype(int), np.where(endless, 1e9, tokens)


def hidden(R: np.ndarray, tokens: np.ndarray, limit: int) -> tuple[np.ndarray, ...]:
    """What a run with this limit would have seen."""
    cut = tokens > limit
    return np.where(cut, 0, R), np.minimum(tokens, limit), cut


@pytest.mark.parametrize("loops", [0.0, 0.03])
def test_the_interval_holds_the_truth_that_was_hidden(loops: float) -> None:
    held, width, room = [], [], []
    for seed in range(8):
        R, tokens = simulated(seed, loops)
        f = forecast(*hidden(R, tokens, 3000), 6000, draws=600, seed=seed)
        truth = bayes(np.where(tokens <= 6000, R, 0))[0]
        assert f.supported and f.least <= truth <= f.most and f.least <= f.value <= f.most
        held.append(f.low_continued <= truth <= f.high_continued)
        width.append(f.high_continued - f.low_continued)
        room.append(f.most - f.least)
        assert f.high - f.low > f.high_continued - f.low_continued  # other trials, too
    assert sum(held) >= 7
    assert np.mean(width) < 0.5 * np.mean(room)  # and it says more than what is possible


def test_what_nothing_supports_is_as_wide_as_what_is_possible() -> None:
    R, tokens = simulated(1)
    seen = hidden(R, tokens, 500)
    f = forecast(*seen, 4000)
    none, every = bayes_ci(seen[0], bounds=(0, 1)), bayes_ci(seen[0] + seen[2], bounds=(0, 1))
    near = ((seen[1] > 250.5) & ~seen[2]).sum()
    assert f.support == pytest.approx(near / (near + seen[2].sum())) and not f.supported
    assert (f.low, f.high) == pytest.approx((none[2], every[3]))
    assert (f.low_continued, f.high_continued) == pytest.approx((none[0], every[0]))


def test_limits_of_what_can_change() -> None:
    R, tokens = simulated(2)
    whole = forecast(R, tokens, np.zeros(R.shape, bool), 10**6)
    assert whole[:4] == pytest.approx(bayes_ci(R, bounds=(0, 1))) and whole.supported
    # A limit that lies no higher changes nothing; of questions one by one only what may go on.
    seen = hidden(R, tokens, 3000)
    assert forecast(*seen, 3000).value == pytest.approx(bayes(seen[0])[0])
    some = forecast(*seen, np.where(np.arange(20) < 10, 9000, 3000))
    assert bayes(seen[0])[0] < some.value < forecast(*seen, 9000).value
    # Trials that are missing count for nothing, whatever lies under the mask.
    mask = np.zeros(R.shape, bool)
    mask[:, 30:] = True
    ragged = forecast(np.ma.array(seen[0], mask=mask), seen[1], seen[2], 6000)
    assert ragged == forecast(*(part[:, :30] for part in seen), 6000)
    with pytest.raises(ValueError, match="other shapes"):
        forecast(R, tokens[:, :3], seen[2], 6000)
    with pytest.raises(ValueError, match="at least 1"):
        forecast(R, 0 * tokens, seen[2], 6000)
