"""From claims on pairs to decisions: which models are placed, and which still matter.

All functions take and return arrays with a leading axis of runs: claims (R, K, K), models (R, K).
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import check_positive, check_whole, finite_array
from bayes_at_n.scoring.numerics.inputs import Bools

Kind = Literal["best", "top", "order", "above"]
KINDS = ("best", "top", "order", "above")
# Share of the error that goes to calling survivors of `best` and `top` tied.
TIED_SHARE = 0.1


class Target(NamedTuple):
    """What is to be settled: the best model, the best k, the order of all, who beats a baseline."""

    kind: Kind
    k: int = 1
    baseline: int | None = None


class Needed(NamedTuple):
    """Wealth at which something is claimed; see :func:`needed`."""

    better: float
    tied: float
    differences: float  # of intervals of all of them together


def check_target(target: Target, models: int) -> None:
    """Check that the target makes sense for so many models.

    Raises ValueError: it does not.
    """
    if target.kind not in KINDS:
        raise ValueError(f"target is {target.kind!r}: pass one of {', '.join(KINDS)}")
    if target.kind == "top" and check_whole(target.k, "k", least=1) >= models:
        raise ValueError(
            f"k is {target.k}: of {models} models, at most {models - 1} can be the top"
        )
    if target.kind == "above":
        baseline = check_whole(target.baseline, "baseline", least=0)
        if baseline >= models:
            raise ValueError(f"baseline is {baseline}: pass an index below {models}")


def needed(target: Target, models: int, error: float, rivals: bool) -> Needed:
    """Compute the wealth each claim needs for all to be true with a chance of 1 - error.

    The number of claims that could be wrong, over the error; which these are is proved in
    docs/adaptive.md. ``rivals``: the best is found by bets on the leader, not by pairs.
    """
    every = max(models * (models - 1), 2) / error
    if models <= 2 or target.kind in ("order", "above"):
        claims = 2 * (models - 1) / error if target.kind == "above" else every
        return Needed(claims, claims, every)
    k = target.k if target.kind == "top" else 1
    claims = k * (models - k) + models - 1 if not rivals else 2
    ties = models - 1 if target.kind == "best" else models * (models - 1) / 2
    return Needed(claims / ((1 - TIED_SHARE) * error), ties / (TIED_SHARE * error), every)


def implied(better: Bools) -> Bools:
    """Close claims under what follows from them: A over B and B over C is A over C."""
    closed = better.copy()
    for k in range(better.shape[-1]):
        closed |= closed[..., :, k, None] & closed[..., None, k, :]
    return closed


def place_top(better: Bools, placed: Bools, out: Bools, k: int) -> tuple[Bools, Bools]:
    """Place models in the best k, or out, from who was (R, K) and claims on pairs.

    With k' places left, an open model that beats all but k' - 1 of the other open ones is in,
    and one that k' of them beat is out; then those are fewer, and it starts again.
    """
    placed, out = placed.copy(), out.copy()
    while True:
        open_ = ~placed & ~out
        left = k - placed.sum(axis=-1, keepdims=True)
        among = better & open_[..., :, None] & open_[..., None, :]
        others = open_.sum(axis=-1, keepdims=True)
        enters = open_ & ((among.sum(axis=-1) >= others - left) | (others <= left))
        leaves = open_ & ~enters & ((among.sum(axis=-2) >= left) | (left <= 0))
        # Contradicting claims, which are wrong ones, fill no more places than there are.
        enters &= np.cumsum(enters, axis=-1) <= left
        if not (enters | leaves).any():
            return placed, out
        placed |= enters
        out |= leaves


def all_tied(tied: Bools, models: Bools) -> Bools:
    """Check whether each two of the models (R, K) are tied: (R,)."""
    both = models[..., :, None] & models[..., None, :]
    same = np.eye(models.shape[-1], dtype=bool)
    return np.asarray((tied | same | ~both).all(axis=(-1, -2)))


def tested_pairs(target: Target, models: int) -> Bools:
    """Select the pairs (K, K) with a share of the error: of `above` those with the baseline."""
    pairs = ~np.eye(models, dtype=bool)
    if target.kind == "above":
        baseline = np.arange(models) == target.baseline
        pairs &= baseline[:, None] | baseline
    return pairs


def ordered_groups(order: list[int], better: Bools) -> list[list[int]]:
    """Group models so that all above are better than all below, by claims (K, K).

    >>> ordered_groups([2, 0, 1], np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool))
    [[0], [2, 1]]
    """
    places = {model: place for place, model in enumerate(order)}
    score = better.sum(axis=0) - better.sum(axis=1)
    ranked = sorted(order, key=lambda model: (int(score[model]), places[model]))
    consistent = better & ~better.T  # claims that contradict each other show nothing
    groups: list[list[int]] = [[]]
    for i, model in enumerate(ranked):
        if groups[-1] and consistent[np.ix_(ranked[:i], ranked[i:])].all():
            groups.append([])
        groups[-1].append(model)
    return [sorted(group, key=places.__getitem__) for group in groups]


def claimed(log_e: npt.ArrayLike, level: float) -> Bools:
    """Choose which of D claims are made so that any is wrong with a chance of at most ``level``.

    ``log_e`` (D,) are natural logs of the largest e-value of each claim so far, of independent
    data. The k largest are claimed where the k-th is at least (D - k + 1) / level: all D where each
    reaches 1 / level, one by itself at D / level. That holds at all looks together (the proof is in
    docs/compare.md). Raises ValueError: numbers that are not finite, a level not in (0, 1]. Source:
    Hochberg, "A sharper Bonferroni procedure for multiple tests of significance", Biometrika 1988.

    >>> claimed(np.log([45, 41, 50, 44]), 0.025).tolist()
    [True, True, True, True]
    >>> claimed(np.log([45, 39, 170, 44]), 0.025).tolist()
    [False, False, True, False]
    """
    values = finite_array(log_e, "log_e")
    check_positive(level, "level", most=1.0)
    order = np.argsort(-values, kind="stable")
    needed = np.log(np.arange(values.size, 0, -1) / level)
    passed = np.flatnonzero(values[order] >= needed)
    found = np.zeros(values.size, bool)
    found[order[: passed[-1] + 1 if passed.size else 0]] = True
    return found
