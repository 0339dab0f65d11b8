"""What the decision of a race rests on: independent attempts, and these questions.

The e-values of a race hold for attempts that are independent. Whether they are, its data tell: by
how much more trials vary than those of independent attempts would, of each model and of each
difference of two (:func:`scoring.inflation`).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent

if TYPE_CHECKING:
    from bayes_at_n.pipeline.adaptive.plan import Goal

LEVEL = 0.05  # of independent attempts so many races are called "ahead", where "settled" would do


class Basis(NamedTuple):
    """What is known of a decision beside its e-values."""

    seeds: str  # of its attempts: independent, shared or unknown
    models: list[scoring.Inflation]  # (K,)
    pairs: dict[tuple[int, int], scoring.Inflation]  # of differences
    p: float  # that independent attempts vary so much: of all models together, or of some pair
    elsewhere: dict[int, float]  # that the best is better on other questions of the kind, than each

    @property
    def sound(self) -> bool:
        """Whether nothing tells that attempts of a trial share luck."""
        return self.seeds != "shared" and self.p >= LEVEL


def basis(
    codes: npt.NDArray[Any], spent: npt.NDArray[np.int64], seeds: str, best: int | None
) -> Basis:
    """Measure it, of outcomes (K, M, N), -1 where there is none, and trials that counted (K,).

    All trials tell of luck, also those that did not count. The p of all models together is Fisher's
    (1925), that of pairs Bonferroni's, and the smaller of the two counts twice.
    """
    outcomes: Any = np.ma.array(codes, mask=codes < 0)  # type: ignore[no-untyped-call]
    count, pairs = len(codes), dict[tuple[int, int], scoring.Inflation]()
    models = _each(scoring.inflation(outcomes))
    for a in range(count - 1):
        rest = outcomes[a + 1 :]
        found = _each(scoring.inflation(outcomes[[a] * len(rest)], rest))
        pairs |= {(a, b): one for b, one in enumerate(found, a + 1)}
    all_p = np.maximum([one.p for one in models], 1e-300)
    p = float(scipy.stats.combine_pvalues(all_p).pvalue)
    if pairs:
        p = min(1.0, 2 * min(p, len(pairs) * min(one.p for one in pairs.values())))
    elsewhere = {}
    if best is not None and codes.shape[1] > 1:
        used = [of[:, :n] for of, n in zip(codes, spent, strict=True)]
        for k in {*range(count)} - {best}:
            elsewhere[k] = float(scoring.paired_questions(used[best], used[k]).probability)
    return Basis(seeds, models, pairs, p, elsewhere)


def _each(found: scoring.Inflation) -> list[scoring.Inflation]:
    return [scoring.Inflation(*map(float, one)) for one in zip(*found, strict=True)]


def sentence(basis: Basis, goal: "Goal") -> str:
    """Say whether attempts are independent, and what follows."""
    k, most = max(enumerate(basis.models), key=lambda one: one[1].value)
    text = (
        f"trials of {goal.names[k]} vary {most.value:.2f} times as much as independent attempts"
        f" would ({percent(goal.cfg.confidence)} interval {most.low:.2f} to {most.high:.2f})"
    )
    if basis.pairs:
        a, b = max(basis.pairs, key=lambda pair: basis.pairs[pair].value)
        value = basis.pairs[a, b].value
        text += f", those of {goal.names[a]} - {goal.names[b]} {value:.2f} times"
    if basis.sound and basis.seeds == "unknown":
        return f"{text}; nobody knows their seeds, so that they are independent is assumed"
    if basis.sound:
        return f"{text}: no sign of shared luck"
    why = "attempts of a trial share luck" if basis.p < LEVEL else "attempts of a trial share seeds"
    if goal.cfg.independent == "trials":
        return f"{text}: {why}, which independent=trials allows for"
    return f"{text}: {why}, so nothing is settled; independent=trials holds nevertheless"


def record(basis: Basis, goal: "Goal") -> dict[str, Any]:
    """Return it as JSON has it, by names; of the pair whose trials vary most."""
    names = goal.names

    def plain(one: scoring.Inflation) -> dict[str, float | None]:
        return {key: x if np.isfinite(x) else None for key, x in one._asdict().items()}

    widest = sorted(basis.pairs, key=lambda pair: -basis.pairs[pair].value)[:1]
    return {
        "seeds": basis.seeds,
        "p": basis.p,
        "inflation": {n: plain(one) for n, one in zip(names, basis.models, strict=True)},
        "pairs": [{"pair": [names[a], names[b]], **plain(basis.pairs[a, b])} for a, b in widest],
        "other_questions": {names[k]: p for k, p in basis.elsewhere.items()},
    }
