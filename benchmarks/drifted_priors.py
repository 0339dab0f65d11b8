"""When has a prior of the same questions drifted? Simulated, with known truth.

The logits of all thirty questions move by `shift` between the two runs: how often that is warned
of, in how many runs the interval holds the truth, and in how many `scoring.prior_drift` says that
it does, where it warns.

    python -m benchmarks.drifted_priors [REPLICATES]
"""

import sys

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.scoring import Counts

QUESTIONS, SPREAD = 30, 2.0


def drifted(shift: float, trials: int, weight: int, replicates: int) -> list[float]:
    """Shares of runs that are warned of, and that hold the truth; what the warnings say of that."""
    rng, old, rows = np.random.default_rng(1), np.full(QUESTIONS, 80), []
    for logit in rng.normal(0, SPREAD, (replicates, QUESTIONS)):
        p = 1 / (1 + np.exp(-logit - shift))
        before, right = rng.binomial(80, 1 / (1 + np.exp(-logit))), rng.binomial(trials, p)
        R0 = Counts(np.stack([80 - before, before], axis=-1) * weight / 80)
        counts = Counts(np.stack([trials - right, right], axis=-1))
        found, (_, _, low, high) = (
            scoring.prior_drift(counts, R0, old),
            scoring.bayes_ci(counts, R0=R0),
        )
        warned = found.p < scoring.DRIFT_LEVEL
        rows.append([warned, low <= p.mean() <= high, found.coverage if warned else np.nan])
    return [float(np.nanmean(column)) for column in zip(*rows, strict=True)]


def main() -> None:
    """Print the table of docs/scoring.md."""
    replicates = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| logits move by | N | D | warned | holds the truth | as the warnings say |")
    print("| --- | --- | --- | --- | --- | --- |")
    for shift in (0.0, 0.3, 0.6, 1.2):
        for trials, weight in ((4, 4), (16, 4), (4, 16)):
            cells = " | ".join(f"{x:.0%}" for x in drifted(shift, trials, weight, replicates))
            print(f"| {shift:g} | {trials} | {weight} | {cells} |")


if __name__ == "__main__":
    main()
