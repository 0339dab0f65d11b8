"""The conclusion on a cohort: which model is best, and what of that is settled, or would be."""

from typing import NamedTuple

import numpy as np
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import joined, percent
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.leaderboard import scores
from bayes_at_n.pipeline.compare.pairwise import groups
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.score.headline import named
from bayes_at_n.pipeline.score.shown import stopped

_NAMED = 5  # models that a sentence names


class Conclusion(NamedTuple):
    """What L models on M questions show; names and numbers of models best first.

    All but `other_questions` is about these M questions. With one model nothing is open and nothing
    settled: `probability` is 1, and `trials` and `other_questions` are None.
    """

    models: list[str]  # L
    questions: int  # M
    metric: str  # of the first model's score, such as Bayes@80
    score: float  # of the first model, with its interval
    low: float
    high: float
    confidence: float  # of that interval
    probability: float  # that the first is the best
    settled: bool  # it is apart from all others, and the best with the confidence of `scoring.z`
    tied: list[str]  # the first, and those that cannot be told apart from it and from each other
    probability_tied: float  # that the best is one of them
    groups: list[list[str]]  # the largest that cannot be told apart; they may overlap
    trials: float | None  # of a question and model at which the first two of `tied` are expected to
    fewest: float | None  # be apart, and the range that these trials leave open; None: never, or
    most: float | None  # the first is apart already
    other_questions: float | None  # that the first would beat `nearest` on other questions of this
    nearest: str | None  # kind; the least such probability. None of one question
    stopped: bool  # outcomes decided how many trials there are; probabilities do not know it

    def sentence(self) -> str:
        """Write what a reader should know, as one sentence.

        >>> from bayes_at_n.pipeline.compare.cohort import from_arrays
        >>> from bayes_at_n.pipeline.config import analysis
        >>> coins = [[[1, 1, 1, 0]] * 9, [[1, 1, 0, 0]] * 9, [[0, 0, 0, 0]] * 9]
        >>> cohort = from_arrays("coins", ["a", "b", "c"], [*"123456789"], coins)
        >>> conclude(cohort, analysis.load(["z=2"])).sentence().split("; ")[:2]
        ['a and b cannot be told apart on these 9 questions', 'a is the best with probability .97, \
and the best is one of these 2 with probability above .99']
        """
        of = f"these {self.questions} questions" if self.questions > 1 else "this one question"
        if len(self.models) == 1:
            return (
                f"{self.models[0]} has {self.metric} = {self.score:.4f} ({self.low:.4f} to"
                f" {self.high:.4f}, {percent(self.confidence)} interval) on {of}, and nothing to"
                " be compared with."
            )
        chance, tied = _chance(self.probability), len(self.tied)
        if tied == 1:
            claim = f"{self.models[0]} is the best of {len(self.models)} with probability {chance}"
            parts = [f"{claim} on {of}", self._elsewhere()]
        else:
            apart = f"{joined(self.tied, _NAMED)} cannot be told apart on {of}"
            parts = [apart, f"{self.models[0]} is the best with probability {chance}"]
            if tied < len(self.models):
                chance = _chance(self.probability_tied)
                parts[1] += f", and the best is one of these {tied} with probability {chance}"
            parts.append(self._remedy())
        if self.stopped:
            parts.append("outcomes decided how many trials there are, which none of this knows")
        return "; ".join(parts) + "."

    def _remedy(self) -> str:
        """Write how many trials would tell the first two of `tied` apart."""
        pair = f"{self.tied[0]} from {self.tied[1]}"
        if self.trials is None or self.fewest is None:
            return f"no number of trials is known to tell {pair}"
        most = "; perhaps no number is enough" if self.most is None else f" to {_about(self.most)}"
        return (
            f"telling {pair} takes about {_about(self.trials)} trials a question"
            f" ({'at least ' * (self.most is None)}{_about(self.fewest)}{most})"
        )

    def _elsewhere(self) -> str:
        """Write how sure the order is on other questions."""
        if self.other_questions is None:
            return "one question says nothing of others"
        chance = _chance(self.other_questions)
        return f"on others of their kind it would beat {self.nearest} with probability {chance}"


def conclude(cohort: Cohort, cfg: AnalysisConfig) -> Conclusion:
    """Conclude what a cohort of one or more models shows; pass several data sets pooled.

    Made from what the tables of `compare` are made from, avg and its sigma; two models are
    separated where z is at least `scoring.z`. Raises UserError: a question without any graded
    trial.
    """
    scored, matrix = scores(cohort, cfg), cohort.matrix()
    order, (score, _, low, high) = scored.order.tolist(), scored.headline
    names = [cohort.names[i] for i in order]
    # Rounding may have carried a probability past 0 or 1.
    best = np.clip(scoring.probability_best(*scored.avg[:2]), 0, 1).tolist()
    chances = dict(zip(cohort.names, best, strict=True))
    together = groups(cohort, cfg)
    tied = together[0]
    level = float(scipy.special.ndtr(cfg.scoring.z))
    plan: list[float | None] = [None] * 3
    if len(tied) > 1:
        first, second = (matrix[cohort.names.index(name)] for name in tied[:2])
        needed = scoring.trials_to_separate(first, second, confidence=level)
        plan = [None if np.isinf(trials) else trials for trials in needed]
    nearest = elsewhere = None
    if len(names) > 1 and matrix.shape[1] > 1:
        others = scoring.paired_questions(matrix[order[0]], matrix[order[1:]]).probability
        nearest, elsewhere = names[1 + int(np.argmin(others))], float(np.min(others))
    return Conclusion(
        models=names,
        questions=matrix.shape[1],
        metric=named({names[0]: scored.prior[order[0]]}, matrix.shape[2])[0],
        score=float(score[order[0]]),
        low=float(low[order[0]]),
        high=float(high[order[0]]),
        confidence=cfg.scoring.confidence,
        probability=chances[names[0]],
        settled=len(tied) == 1 and chances[names[0]] >= level and len(names) > 1,
        tied=tied,
        probability_tied=min(1.0, sum(chances[name] for name in tied)),
        groups=together,
        **dict(zip(("trials", "fewest", "most"), plan, strict=True)),
        other_questions=elsewhere,
        nearest=nearest,
        stopped=any(stopped(member.run) for member in cohort.runs()),
    )


def _chance(probability: float) -> str:
    """Write a probability with two places, and never as certain.

    >>> _chance(0.666), _chance(0.9981), _chance(0.0004)
    ('.67', 'above .99', 'below .01')
    """
    if not 0.005 <= probability < 0.995:
        return "above .99" if probability > 0.5 else "below .01"
    return f"{probability:.2f}"[1:]


def _about(trials: float) -> str:
    """Write a plan to two digits.

    >>> _about(783.0), _about(4), _about(61234)
    ('780', '4', '61,000')
    """
    return f"{float(f'{trials:.2g}'):,.0f}"
