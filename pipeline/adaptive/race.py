"""A race: states after every look, round by round of the trials, and what they rest on.

The e-values of a race hold for attempts that are independent. Whether they are, its data tell: by
how much more trials vary than those of independent attempts would, of each model and of each
difference of two (:func:`scoring.inflation`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n import scoring
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.compare.claims import dependent
from bayes_at_n.pipeline.score import headline
from bayes_at_n.pipeline.store.outcomes import Codes
from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints
from bayes_at_n.scoring.sequential import Look, MeanSequence, Race, Target


class Outcomes(NamedTuple):
    """K models, the M questions of all datasets, N trials."""

    names: list[str]
    codes: Codes  # (K, M, N) 1 correct, 0 not, -1 pending; of complete runs also `scoring.Points`
    tokens: npt.NDArray[np.int64]  # (K, N) sampled for a trial of all questions; 0 where not known
    seeds: str  # independent; shared, which couples attempts of a trial; or unknown
    clusters: list[str]  # (M,) the same label for questions that were drawn together


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


def basis(known: Outcomes, spent: npt.NDArray[np.int64], best: int | None) -> Basis:
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


def basis_sentence(basis: Basis, goal: Goal) -> str:
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


def basis_record(basis: Basis, goal: Goal) -> dict[str, Any]:
    """Return the basis as JSON values by model name; numbers that are not finite are null."""

    def plain(found: Sequence[float]) -> dict[str, float | None]:
        numbers = (float(value) if np.isfinite(value) else None for value in found)
        return dict(zip(scoring.Inflation._fields, numbers, strict=True))

    names, luck, more = goal.names, basis.luck, basis.more
    of_models = zip(names, zip(*luck.models, strict=True), strict=True)
    return {
        "seeds": basis.seeds,
        "p": luck.p,
        "inflation": {name: plain(found) for name, found in of_models},
        "pair": luck.pair and [names[k] for k in luck.pair],
        "pair_inflation": luck.of_pair and plain(luck.of_pair),
        "other_questions": None if basis.nearest is None else basis.elsewhere,
        "nearest": None if basis.nearest is None else names[basis.nearest],
        "next_attempts": more and headline.next_attempts(more, [names[k] for k in basis.leaders]),
    }


class State(NamedTuple):
    """What is known after a look, of K models."""

    look: int  # counted from 1
    trials: int  # of a question, of the models that were sampled for this look
    spent: Ints  # (K,) trials of each model that counted
    sampled: Bools  # (K,) models that were sampled for this look
    known: Look


class Course(NamedTuple):
    """A race so far: L looks at K models."""

    goal: Goal
    states: list[State]
    tokens: Ints  # (L, K) of each model by then; 0 where not known
    questions: int
    basis: Basis | None = None  # of what is decided, once nothing more is sampled

    def upto(self, look: int) -> "Course":
        """Return the course as it was after so many looks."""
        return self._replace(states=self.states[:look], tokens=self.tokens[:look])


class _Widths:
    """until=width: each model by itself, until its interval is as narrow as requested."""

    def __init__(self, goal: Goal, questions: int) -> None:
        of = questions, goal.cfg.confidence, goal.cfg.independent
        self.sequences = [MeanSequence(*of) for _ in goal.names]  # type: ignore[arg-type]
        self.rounds, self.width = np.zeros(len(goal.names), np.int64), goal.until.width

    def add(self, successes: Ints, attempts: Ints) -> None:
        for k, sequence in enumerate(self.sequences):
            if attempts[k].any():
                sequence.add(successes[k], attempts[k])
                self.rounds[k] += 1

    def look(self) -> Look:
        low, high = np.array([sequence.interval() for sequence in self.sequences]).T
        mean = np.array([sequence.mean for sequence in self.sequences])
        open_, apart = high - low > self.width, np.ones((len(mean), len(mean)))
        return Look(
            round=int(self.rounds.max()),
            rounds=self.rounds.copy(),
            mean=mean,
            low=low,
            high=high,
            log_e=np.zeros_like(apart),
            log_out=np.zeros_like(mean),
            log_needed=np.inf,
            difference_low=-apart,
            difference_high=apart,
            better=apart < 0,
            tied=apart < 0,
            open=open_,
            placed=np.zeros(len(mean), np.int64),
            groups=[np.argsort(-mean, kind="stable").tolist()],
            best=None,
            settled=not open_.any(),
        )


def states(outcomes: npt.ArrayLike, goal: Goal) -> Iterator[State]:
    """Yield what each look sees, the first to the last that the outcomes reach.

    Args:
        outcomes: (K, M, N) 1 correct, 0 not, -1 pending; trials beyond the goal's do not count. A
            model that has left needs no more of them.

    Example:
        >>> from bayes_at_n.pipeline.config.multirun import SettleConfig
        >>> from bayes_at_n.pipeline.adaptive.plan import Goal
        >>> always = np.stack([np.ones((30, 80)), np.zeros((30, 80))])
        >>> *_, last = states(always, Goal(SettleConfig(), ["a", "b"], trials=80, block=1))
        >>> last.known.best, last.known.settled, last.trials < 8
        (0, True, True)
    """
    codes = np.asarray(scoring.values(outcomes))
    models, questions, _ = codes.shape
    if not questions:  # nothing is prepared
        return
    wanted, kind = target(goal), goal.cfg.independent
    race: Any = _Widths(goal, questions)
    if wanted is not None:
        level, tie = goal.cfg.confidence, goal.margin
        race = Race(models, questions, wanted, level, tie, independent=kind)  # type: ignore[arg-type]
    live, spent, done = np.ones(models, bool), np.zeros(models, np.int64), 0
    for number, trials in enumerate(goal.looks, 1):
        if codes.shape[2] < trials or (codes[live, :, done:trials] < 0).any():
            return
        for trial in range(done, trials):
            attempts = np.repeat(live[:, None], questions, axis=1).astype(np.int64)
            race.add(codes[:, :, trial] * attempts, attempts)
        spent[live] += trials - done
        known = race.look()
        yield State(number, trials, spent.copy(), live, known)
        if known.settled:
            return
        live, done = known.open, trials


def target(goal: Goal) -> Target | None:
    """Return what is to be settled between models; None of until=width, each model by itself."""
    kind, k = goal.until.kind, goal.until.k
    return None if kind == "width" else Target(kind, k, goal.baseline)  # type: ignore[arg-type]


def ended(state: State, goal: Goal) -> bool:
    """Return whether nothing more is sampled: all is decided, or all trials are used."""
    return state.known.settled or state.trials == goal.trials


def upcoming(seen: Sequence[State], goal: Goal) -> tuple[int, Bools]:
    """Return the trials of the next look and its models (K,); (0, none) where the race is over."""
    if not seen:
        return goal.looks[0], np.ones(len(goal.names), bool)
    if ended(seen[-1], goal):
        return 0, np.zeros(len(goal.names), bool)
    return goal.looks[seen[-1].look], seen[-1].known.open


def evidence(state: State, goal: Goal) -> Floats:
    """Return the natural log of the e-value that decides each model (K,), NaN where none does.

    A model is decided when it reaches `state.known.log_needed`: until=best for "it is not the
    best", top:K for "it is in" or "it is out", above for "it differs from the baseline", and order
    for the least certain of its pairs.
    """
    known, kind, count = state.known, goal.until.kind, len(goal.names)
    if kind == "width":
        return np.full(count, np.nan)
    own = np.eye(count, dtype=bool)
    pairs = np.where(own, -np.inf, known.log_e)
    if kind == "best":  # against the leader, the highest mean of those that can be the best
        leader = int(np.argmax(np.where(known.placed < 0, -1.0, known.mean)))
        decisive = known.log_out if count > 2 else pairs[leader]
        return np.where(np.arange(count) == leader, np.nan, decisive)
    if kind == "top":
        beaten_by, beats = -np.sort(-pairs, axis=0), -np.sort(-pairs, axis=1)
        decisive = np.maximum(beaten_by[goal.until.k - 1], beats[:, count - goal.until.k - 1])
        return np.asarray(decisive)
    either = np.maximum(pairs, pairs.T)
    if kind == "above":
        return np.where(own[goal.baseline], np.nan, either[goal.baseline])
    decided = known.better | known.better.T | known.tied
    certain = np.where(decided, np.maximum(either, known.log_needed), either)
    decisive = np.where(own, np.inf, certain).min(axis=1)
    return np.asarray(decisive)


def progress(state: State, goal: Goal) -> Floats:
    """Return how far each model is decided (K,): 1 is there; NaN where nothing says so."""
    known = state.known
    if goal.until.kind == "width":
        return np.minimum(1.0, goal.until.width / np.maximum(known.high - known.low, 1e-12))
    return np.clip(evidence(state, goal) / known.log_needed, 0.0, 1.0)
