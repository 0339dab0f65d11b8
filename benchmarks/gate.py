"""How often is a gate over four datasets wrong, with a look after every trial? Simulated.

BASE and NEW answer 30 questions of each of four datasets, up to 80 trials; each requires that NEW
is no worse by two points. NEW differs by `gaps` (in points) on the four; at -2 the requirement does
not hold, by nothing. Per world: wrong GO (a requirement that does not hold is claimed by a GO), any
claim on any dataset that is wrong, and what is decided, after how many trials. Beside it: the same
with Bonferroni's share of the error for each dataset, and a gate that asks after every trial
whether the posterior of each dataset is 95 % sure.

    python -m benchmarks.gate [SEED]
"""

import sys

import numpy as np
import scipy

from bayes_at_n.scoring.sequential import Target, claimed, wealth
from bayes_at_n.scoring.sequential.batch import Batch

QUESTIONS, TRIALS, RUNS, ERROR, BOUND = 30, 80, 1000, 0.05, -0.02
WORLDS = {
    "all four just fail": (-2, -2, -2, -2),
    "one just fails, three are far better": (-2, 10, 10, 10),
    "one just fails, three are equal": (-2, 0, 0, 0),
    "one fails by 4, three are equal": (-6, 0, 0, 0),
    "all equal": (0, 0, 0, 0),
    "all better by 3": (3, 3, 3, 3),
    "all better by 6": (6, 6, 6, 6),
}


def chances(rng: np.random.Generator, gap: float) -> np.ndarray:
    """Chances (2, M) of BASE and NEW at contest-like questions, on average exactly `gap` apart."""
    base = np.clip(rng.beta(0.5, 0.4, QUESTIONS), 0.1, 0.9)
    return np.stack([base, base + gap / 100])


def evidence(
    rng: np.random.Generator, p: np.ndarray, runs: int = RUNS
) -> tuple[np.ndarray, np.ndarray]:
    """Largest log e-values so far (TRIALS, runs, 2), holds and fails; z of the posterior."""
    batch = Batch((runs, 2, QUESTIONS), Target("order"), ERROR, 0.01)
    log_e, z, best = np.empty((TRIALS, runs, 2)), np.empty((TRIALS, runs)), np.zeros((runs, 2))
    ones = np.ones((runs, 2, QUESTIONS), np.int64)
    for trial in range(TRIALS):
        batch.add((rng.random(ones.shape) < p).astype(np.int64), ones)
        up, slope = batch.pairs, batch.slopes
        holds = wealth.log_wealth(up[:, 1, 0], batch.weights, slope[:, 1, 0], BOUND)
        fails = wealth.log_wealth(up[:, 0, 1], batch.weights, slope[:, 0, 1], -BOUND)
        best = np.maximum(best, np.stack([holds, fails], axis=-1))
        log_e[trial], n = best, trial + 1
        share = (batch.successes + 1) / (n + 2)
        variance = ((n + 2) / n) ** 2 * (share * (1 - share) / (n + 3)).sum(axis=(1, 2))
        average = batch.successes.mean(axis=2) / n
        z[trial] = (average[:, 1] - average[:, 0] - BOUND) * QUESTIONS / np.sqrt(variance)
    return log_e, z


def ours(log_e: np.ndarray) -> np.ndarray:
    """Claims (D, 2) of one run after one trial, from (D, 2)."""
    return np.stack([claimed(log_e[:, side], ERROR / 2) for side in (0, 1)], axis=-1)


def bonferroni(log_e: np.ndarray) -> np.ndarray:
    """The same, each dataset by itself."""
    return np.asarray(log_e >= np.log(2 * len(log_e) / ERROR))


def wrong(claims: np.ndarray, gaps: tuple[float, ...]) -> np.ndarray:
    """Check which runs claim anything wrong at any look: (runs,) of (TRIALS, runs, D, 2)."""
    true = np.array(gaps) / 100 > BOUND
    return ((claims[..., 0] & ~true) | (claims[..., 1] & true)).any(axis=(0, 2))


def judged(claims: np.ndarray, gaps: tuple[float, ...]) -> list[float]:
    """Rates of wrong GO, any wrong claim, GO, NO-GO; mean trials to the end of it."""
    true = np.array(gaps) / 100 > BOUND
    go = claims[..., 0].all(axis=-1)  # (TRIALS, RUNS)
    stop = claims[..., 1].any(axis=-1)
    over = go | stop
    first = np.where(over.any(axis=0), over.argmax(axis=0) + 1, TRIALS)
    at = (first - 1, np.arange(RUNS))
    shares = [go.any(axis=0) & ~true.all(), wrong(claims, gaps), go[at] & ~stop[at], stop[at]]
    return [*(float(share.mean()) for share in shares), float(first.mean())]


def main() -> None:
    """Print the table of docs/compare.md."""
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    print("| NEW - BASE in points | rule | wrong GO | any wrong claim | GO | NO-GO | trials |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    sure = scipy.special.ndtri(1 - ERROR)
    for name, gaps in WORLDS.items():
        found = [evidence(rng, chances(rng, gap)) for gap in gaps]
        log_e = np.stack([of for of, _ in found], axis=2)  # (TRIALS, RUNS, D, 2)
        z = np.stack([of for _, of in found], axis=2)
        peeking = np.stack([z >= sure, z <= -sure], axis=-1)
        for rule, of in (("this one", ours), ("Bonferroni", bonferroni)):
            claims = np.array([[of(run) for run in trial] for trial in log_e])
            *shares, trials = judged(claims, gaps)
            cells = " | ".join(f"{share:.1%}" for share in shares)
            print(f"| {name} | {rule} | {cells} | {trials:.0f} |", flush=True)
        *shares, trials = judged(peeking, gaps)
        cells = " | ".join(f"{share:.1%}" for share in shares)
        print(f"| {name} | posterior, peeking | {cells} | {trials:.0f} |", flush=True)


if __name__ == "__main__":
    main()
