"""What is sampled next: which model a free place takes, and how far ahead of the next look.

The error of a race holds for any such schedule. A look uses rounds (one attempt or more at every
question) in their order, and only those that are complete for all open models; whether a round
counts, for which models, was decided from earlier rounds alone. So each round's bets are fair given
the rounds before it, and the product of bets is an e-process whatever else is sampled, and when
(Ramdas, Grünwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe anytime-valid
inference": predictable bets and optional stopping; docs/adaptive.md has the proof). An attempt that
was sampled ahead has its seed, and counts when its round does, or never.

Sampling ahead costs tokens where a model leaves at the next look, and saves time where it does not:
a look waits for the longest of hundreds of attempts, and meanwhile devices empty.
"""

import numpy as np

from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.race import Bools, Course, Ints, upcoming

IDLE = 1  # rounds that a worker may begin beyond what is wanted, when it would be idle
LOADING = 0.05  # of the time, where models take turns in a place


def wanted(seen: Course, turns: Ints | None = None) -> Ints:
    """Return how many trials of each model may be sampled by now: (K,), 0 of those that have left.

    All up to the next look, and then half of what the forecast leaves, at most as many as are
    sampled: of races that go on for long most is sampled ahead, of those that end soon little.
    `turns`: rounds (K,) after which a model's load was `LOADING` of its turn; so long is a turn.
    """
    trials, chosen = upcoming(seen.states, seen.goal)
    if not seen.states:
        return np.where(chosen, trials, 0)
    left = forecast(seen)
    assert left is not None  # there are looks
    more = (left.trials - trials) // 2
    spent = seen.states[-1].spent
    if turns is not None:
        more = np.maximum(more, turns - (trials - spent))
    more = np.clip(more, 0, spent)
    return np.where(chosen, np.minimum(trials + more, seen.goal.trials), 0)


def choose(
    loaded: int | None, at_work: Ints, needed: Bools, ahead: Bools, first: int = 0
) -> int | None:
    """Return the model that a free place takes, None where there is nothing to do.

    One that the next look waits for before one that can only be sampled ahead; then one that nobody
    is at, that which is loaded, and the one with the fewest workers.

    Args:
        loaded: the model in the place, if any.
        at_work: workers (K,) at each model.
        needed: whether attempts for the next look can be begun (K,).
        ahead: whether attempts can be begun that are wanted after it (K,).
        first: of models that are alike the one to begin with; tasks of Slurm start at once.

    >>> some = np.array([True, True, True])
    >>> choose(2, np.array([0, 1, 0]), some, some), choose(1, np.array([1, 1, 1]), ~some, some)
    (2, 1)
    >>> choose(0, np.array([0, 0, 0]), ~some, ~some) is None
    True
    """
    count = len(at_work)
    able = [k for k in range(count) if needed[k] or ahead[k]]
    return min(
        able,
        key=lambda k: (not needed[k], at_work[k] > 0, k != loaded, at_work[k], (k - first) % count),
        default=None,
    )
