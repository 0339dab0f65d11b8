"""The page of frequencies: worlds are what they say, and what does not hold is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bayes_at_n import scoring
from benchmarks.calibration_page import failures, page
from benchmarks.simulated_claims import Chance, Claim, better, cells, covers, simulate
from benchmarks.simulated_worlds import QUESTIONS, Cell, World, draw, inflation


def test_a_planted_narrow_interval_fails_and_a_sound_one_does_not() -> None:
    def narrow(w: World) -> Any:
        value, sigma, *_ = scoring.avg_ci(w.counts)
        return covers(value - 1.3 * sigma, value + 1.3 * sigma, w.truth)

    claims = [
        Claim("planted", "interval", narrow),
        Claim("paper's", "interval", lambda w: covers(*scoring.avg_ci(w.counts)[2:], w.truth)),
        Claim("eager", "wrong", lambda w: (w.outcomes[:, 0, 0, 0] == 1).astype(float)),
    ]
    chances = [Chance("P", better("compare"), (2,))]
    grid = cells(("alike 0.5", "contest"), (5,), ((1, "equal"), (2, "spread")))
    found = simulate(1, grid, claims, chances, trials=(1, 8), share=0.5)
    assert failures(claims[0], found) and failures(claims[2], found)
    assert not failures(claims[1], found)
    text = page(found, claims, chances, "a command")
    assert "| **planted** |" in text and "| paper's |" in text and "| P | spread |" in text
    again = simulate(1, grid, claims, chances, trials=(1, 8), share=0.5)
    assert page(again, claims, chances, "a command") == text


@pytest.mark.parametrize("kind", QUESTIONS[:-1])  # the last has no pool, and no luck to share
def test_a_world_has_the_truth_it_says(kind: str) -> None:
    rng = np.random.default_rng(7)
    world = draw(Cell(kind, 12, 2.1, 2, "equal"), 60, 40, rng)
    assert np.ptp(world.truth, axis=1).max() < 1e-12  # equal on these questions
    off = world.outcomes.mean(axis=-1) - world.chance
    assert abs(off.mean()) < 4 * off.mean(axis=(1, 2)).std() / 60**0.5
    luck = inflation(world.chance, world.r)
    assert luck.mean() == pytest.approx(2.1, abs=0.15)
    assert scoring.inflation(world.outcomes).value.mean() == pytest.approx(luck.mean(), rel=0.15)
    pool = draw(Cell(kind, 4000, 1.0, 1, "equal"), 2, 1, rng)
    assert pool.truth == pytest.approx(pool.pool, abs=0.03)
