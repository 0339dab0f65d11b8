"""What the decision of a race rests on: independent attempts, and these questions.

The e-values of a race hold for attempts that are independent. Whether they are, its data tell: by
how much more trials vary than those of independent attempts would, of each model and of each
difference of two (:func:`scoring.inflation`).
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.compare.claims import dependent
from bayes_at_n.pipeline.score import headline

if TYPE_CHECKING:
    from bayes_at_n.pipeline.adaptive.data import Outcomes
    from bayes_at_n.pipeline.adaptive.plan import Goal


class Basis(NamedTuple):
    """What is known of a decision beside its e-values."""

    seeds: str  # of its attempts: independent, shared or unknown
    luck: scoring.SharedLuck  # of all trials, also those that did not count
    elsewhere: float  # probability that the best is better on other questions of the kind, than
    nearest: int | None  # that model; None where there is no best one
    leaders: list[int]  # the best and that model, else the two with the highest averages
    more: scoring.NextAttempts | None  # of their difference; None of a single question or cluster

    @property
    def dependent(self) -> str | None:
        """Why attempts are not independent; None where nothing tells."""
        return dependent(self.luck, "shared seeds" * (self.seeds == "shared"))


def basis(known: "Outcomes", spent: npt.NDArray[np.int64], best: int | None) -> Basis:
    """Measure what a decision rests on, given outcomes and the trials that counted, (K,)."""
    codes = known.codes
    luck = scoring.shared_luck(np.ma.array(codes, mask=codes < 0))  # type: ignore[no-untyped-call]
    used = [of[:, :n] for of, n in zip(codes, spent, strict=True)]
    elsewhere, nearest, more = 1.0, None, None
    leaders = np.argsort([-scoring.values(of).mean() for of in used], kind="stable")[:2].tolist()
    if len({*known.clusters}) > 1:
        if best is not None and len(codes) > 1:
            chances = {  # of the best against each other one
                k: float(scoring.paired_questions(used[best], of, clusters=known.clusters)[4])
                for k, of in enumerate(used)
                if k != best
            }
            nearest = min(chances, key=chances.__getitem__)
            elsewhere, leaders = chances[nearest], [best, nearest]
        first, *second = (used[k] for k in leaders)
        other = second[0] if second else None
        more = scoring.next_attempts(first, other, clusters=known.clusters)
    return Basis(known.seeds, luck, elsewhere, nearest, leaders, more)


def sentence(basis: Basis, goal: "Goal") -> str:
    """Say whether attempts are independent, and what follows."""
    luck, k = basis.luck, int(np.argmax(basis.luck.models.value))
    most = scoring.Inflation(*(float(of[k]) for of in luck.models))
    text = (
        f"design effect (1: attempts are independent): {most.value:.2f} for {goal.names[k]}"
        f" ({percent(goal.cfg.confidence)} interval {most.low:.2f} to {most.high:.2f})"
    )
    if luck.pair and luck.of_pair:
        a, b = (goal.names[k] for k in luck.pair)
        text += f", {luck.of_pair.value:.2f} for {a} - {b}"
    if np.isinf(most.high):
        text = "one trial per question does not show whether attempts of a trial are correlated"
    if (why := basis.dependent) is None:
        if basis.seeds == "unknown":
            return f"{text}; seeds are unknown, so {goal.cfg.independent} are assumed independent"
        return text if np.isinf(most.high) else f"{text}: no sign of correlation"
    if goal.cfg.independent == "trials":
        return f"{text}: {why}; independent=trials allows for it"
    return f"{text}: {why}, so nothing is settled; independent=trials allows for it"


def record(basis: Basis, goal: "Goal") -> dict[str, Any]:
    """Return the basis as JSON values by model name; numbers that are not finite are null."""

    def plain(found: scoring.Inflation | None) -> dict[str, Any] | None:
        if found is None:
            return None
        return {k: float(v) if np.isfinite(v) else None for k, v in found._asdict().items()}

    names, luck = goal.names, basis.luck
    models = (scoring.Inflation(*one) for one in zip(*luck.models, strict=True))
    return {
        "seeds": basis.seeds,
        "p": luck.p,
        "inflation": {n: plain(one) for n, one in zip(names, models, strict=True)},
        "pair": luck.pair and [names[k] for k in luck.pair],
        "pair_inflation": plain(luck.of_pair),
        "other_questions": None if basis.nearest is None else basis.elsewhere,
        "nearest": None if basis.nearest is None else names[basis.nearest],
        "next_attempts": basis.more
        and headline.next_attempts(basis.more, [names[k] for k in basis.leaders]),
    }
