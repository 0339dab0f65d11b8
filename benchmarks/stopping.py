"""Ways to find the best of several models, on the same attempts: part `methods` of `settle`.

    python -m benchmarks.settle methods --runs 1000

A way sees outcomes and samples trials, each of all questions. Those that stop by themselves run as
published, at 95 %, and with their threshold set so that they name one of two models that tie at the
top in 5 % (`equal error`), which nobody with a guarantee needs. Those of a fixed budget always
name one, so theirs is the least with which they are wrong in at most 5 % where the best is ahead,
which nobody knows beforehand.

  race                    scoring.sequential, a look after every trial; with the looks of `settle`
  peeking                 a model leaves when z against the leader reaches 1.645
  Wilson                  .. when its Wilson interval, attempts pooled, is below the leader's
  Track-and-Stop          Garivier and Kaufmann (2016), normal, until log((1 + log t) / .05)
  fixed N                 the same number of trials for all
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from bayes_at_n.scoring.sequential import Target
from bayes_at_n.scoring.sequential.batch import Batch

TRIALS, ERROR = 80, 0.05
TRIANGULAR = [n * (n + 1) // 2 for n in range(2, 13)]
Way = Callable[["Attempts", float], tuple[Any, Any]]  # best (R,), -1 for none, and trials (R, K)


class Attempts(NamedTuple):
    """Outcomes of R races: sums over the first n trials, and what follows from them."""

    sums: Any  # (R, K, M, N + 1)
    mean: Any  # (R, K, N + 1)
    noise: Any  # of a trial's mean, by its questions' shares of successes, (R, K, N + 1)
    truth: Any  # (R, K)


def attempts(codes: Any, truth: Any) -> Attempts:
    """Add up outcomes (R, K, M, N)."""
    sums = np.zeros((*codes.shape[:3], codes.shape[3] + 1), np.int16)
    np.cumsum(codes, axis=3, out=sums[..., 1:])
    n, questions = np.arange(sums.shape[3]), codes.shape[2]
    share = (sums + 0.5) / (n + 1)
    noise = (share * (1 - share)).sum(axis=2) / questions**2 * (n + 1) / np.maximum(n, 1)
    return Attempts(sums, sums.mean(axis=2) / np.maximum(n, 1), noise, truth)


def race(looks: Any = None) -> Way:
    """Ours."""

    def way(of: Attempts, error: float) -> tuple[Any, Any]:
        runs, models, questions, trials = (*of.sums.shape[:3], of.sums.shape[3] - 1)
        batch = Batch((runs, models, questions), Target("best"), error, 0.01)
        open_, used, number = batch.open, np.zeros((runs, models), np.int64), 0
        while True:
            live = open_ & (used < trials)
            live &= live.sum(axis=1, keepdims=True) > 1
            if not live.any():
                return batch.best, used
            after = used + live
            gained = [np.take_along_axis(of.sums, n[..., None, None], 3) for n in (after, used)]
            part = np.repeat(live[..., None].astype(np.int64), questions, axis=2)
            batch.add((gained[0] - gained[1])[..., 0].astype(float), part)
            used, number = after, number + 1
            if looks is None or number in looks:
                open_ = batch.open.copy()

    return way


def elimination(apart: Callable[[Any, Any, int, int, float], Any]) -> Way:
    """Sample all that are open, and drop whom `apart` puts below the leader."""

    def way(of: Attempts, level: float) -> tuple[Any, Any]:
        runs, models, trials = (*of.mean.shape[:2], of.mean.shape[2] - 1)
        open_, used = np.ones((runs, models), bool), np.zeros((runs, models), np.int64)
        for n in range(1, trials + 1):
            live = open_ & (open_.sum(axis=1, keepdims=True) > 1)
            used += live
            if n > 1:
                lead = np.where(open_, of.mean[..., n], -1.0).argmax(axis=1)[:, None]
                ahead = np.take_along_axis(of.mean[..., n], lead, 1)
                both = ahead, np.take_along_axis(of.noise[..., n], lead, 1)
                own = of.mean[..., n], of.noise[..., n]
                open_ &= ~(live & apart(both, own, n, of.sums.shape[2], level))
        return np.where(open_.sum(axis=1) == 1, open_.argmax(axis=1), -1), used

    return way


def peeking(lead: Any, own: Any, n: int, questions: int, level: float) -> Any:
    """z of the difference."""
    return lead[0] - own[0] >= -ndtri(level) * np.sqrt((lead[1] + own[1]) / n)


def wilson(lead: Any, own: Any, n: int, questions: int, level: float) -> Any:
    """Two intervals of pooled attempts."""
    z, count = -ndtri(level / 2), n * questions

    def end(p: Any, sign: int) -> Any:
        half = z * np.sqrt(p * (1 - p) / count + (z / count) ** 2 / 4)
        return (p + z**2 / count / 2 + sign * half) / (1 + z**2 / count)

    return end(own[0], 1) < end(lead[0], -1)


def _now(of: Attempts, used: Any) -> tuple[Any, Any]:
    return tuple(np.take_along_axis(x, used[..., None], 2)[..., 0] for x in (of.mean, of.noise))  # type: ignore[return-value]


def track_and_stop(of: Attempts, level: float) -> tuple[Any, Any]:
    """Track the shares that are best if the estimates are true; stop by the likelihood ratio."""
    runs, models, trials = (*of.mean.shape[:2], of.mean.shape[2] - 1)
    used, going, rows = np.full((runs, models), 2), np.ones(runs, bool), np.arange(runs)
    while True:
        mean, noise = _now(of, used)
        lead = mean.argmax(axis=1)
        gap = np.maximum(mean[rows, lead][:, None] - mean, 1e-3)
        own = noise[rows, lead][:, None]
        others = np.arange(models) != lead[:, None]
        ratio = gap**2 / 2 / (own / used[rows, lead][:, None] + noise / used)
        total = used.sum(axis=1)
        least = np.where(others, ratio, np.inf).min(axis=1)
        near = np.where(others, ratio, np.inf).argmin(axis=1)
        left = (used[rows, lead] < trials) | (used[rows, near] < trials)
        going &= (least < np.log((1 + np.log(total)) / level)) & left
        if not going.any():
            done = least >= np.log((1 + np.log(total)) / level)
            return np.where(done, lead, -1), used
        low, high = np.zeros(runs), np.where(others, gap**2 / 2 / own, np.inf).min(axis=1)
        for _ in range(40):  # shares x of the leader's, all ratios equal to y
            y = (low + high) / 2
            x = np.where(others, noise / np.maximum(gap**2 / 2 / y[:, None] - own, 1e-12), 0.0)
            more = (x**2 * own / noise).sum(axis=1) < 1
            low, high = np.where(more, y, low), np.where(more, high, y)
        x[rows, lead] = 1.0
        owed = x / x.sum(axis=1, keepdims=True) * total[:, None] - used
        poor = used < np.sqrt(total)[:, None] - models / 2
        owed = np.where(used < trials, np.where(poor, 1e6 - used, owed), -np.inf)
        used[rows[going], owed.argmax(axis=1)[going]] += 1


def fixed(of: Attempts, budget: float) -> tuple[Any, Any]:
    """The same number for all."""
    each = np.full(of.mean.shape[:2], max(1, round(budget / of.mean.shape[1])))
    return of.mean[..., each[0, 0]].argmax(axis=1), each


STOPPING: dict[str, tuple[Way, float]] = {  # and its published level
    "race": (race(), ERROR),
    "race, looks after 3, 6, 10, ...": (race(TRIANGULAR), ERROR),
    "peeking at .95": (elimination(peeking), ERROR),
    "Wilson": (elimination(wilson), ERROR),
    "Track-and-Stop": (track_and_stop, ERROR),
}


def outcome(way: Way, of: Attempts, level: float) -> tuple[float, float, float]:
    """Shares of attempts, of runs that name a wrong model (any, of a tie), and undecided ones."""
    best, used = way(of, level)
    top = of.truth >= of.truth.max(axis=1, keepdims=True) - 1e-9
    named = best >= 0
    right = named & top[np.arange(len(best)), best] & (top.sum(axis=1) == 1)
    return float(used.mean() / TRIALS), float((named & ~right).mean()), float((~named).mean())


def compare(ahead: Attempts, tied: Attempts) -> list[list[Any]]:
    """All ways, as published and at equal error, in %."""
    rows = []
    for name, (way, level) in STOPPING.items():
        spent, wrong, open_ = outcome(way, ahead, level)
        low, high = np.log(1e-6), np.log(0.5)  # of the level that errs in 5 %
        for _ in range(8):
            middle = (low + high) / 2
            good = outcome(way, tied, float(np.exp(middle)))[1] <= ERROR
            low, high = (middle, high) if good else (low, middle)
        even = outcome(way, ahead, float(np.exp(low)))[0]
        shares = spent, wrong, open_, outcome(way, tied, level)[1], even
        rows.append([name, *(100 * share for share in shares)])
    models = ahead.mean.shape[1]
    least, most = 2 * models, models * TRIALS
    while most - least > models / 4:
        middle = (least + most) // 2
        good = outcome(fixed, ahead, middle)[1] <= ERROR
        least, most = (least, middle) if good else (middle, most)
    return [*rows, ["fixed N", "", "", "", "", 100 * outcome(fixed, ahead, most)[0]]]
