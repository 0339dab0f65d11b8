"""The leaderboard: every model's scores, ranks, answers and cost.

Order, ranks, probabilities and groups are made from the score of `scoring.headline` and its sigma.
For equal numbers of trials avg and Bayes@N give exactly the same (docs/scoring.md); for unequal
ones the uniform prior of Bayes@N pulls models with fewer trials further, and equal models seem to
differ.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import counted
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import priors
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.score import votes
from bayes_at_n.pipeline.score.shown import apart, intervals, ordered, shared_luck, stopped_lines
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, OWED, UNDECIDED
from bayes_at_n.scoring import Inflation
from bayes_at_n.scoring.metrics.table import Metric, Summary, parse, parse_all
from bayes_at_n.scoring.numerics.inputs import Floats, Ints
from bayes_at_n.scoring.ranking import Rule

_HEADS = {"avg": ("avg", "σ of avg", "avg low", "avg high"), "bayes": ("μ", "σ", "low", "high")}
HEADLINE = {  # columns of a leaderboard: a score, its sigma and the ends of its interval
    "avg": ("avg", "avg_sigma", "avg_low", "avg_high"),
    "bayes": ("mu", "sigma", "low", "high"),
}
_FOUR = "{:.4f}"
_PRICE = Column("price", "price", None, "{:,.2f}", wide=True)  # where some run has one


class ModelScores(NamedTuple):
    """What all other figures are made from: arrays of shape (L,), models as in the cohort."""

    bayes: Summary  # under the uniform prior
    avg: Summary  # with the interval that covers
    headline: Summary  # the one of the two that `scoring.headline` names
    shrinkage: Floats  # (bayes - avg) / sigma of bayes
    inflation: Inflation  # of the variance of trials
    order: npt.NDArray[np.intp]  # positions in the order of the headline, best first


def scores(cohort: Cohort, cfg: AnalysisConfig) -> ModelScores:
    """Bayes@N and avg@N of every model with their intervals, computed once of a cohort.

    Raises UserError: a question that some model has no graded trial of.
    """
    asked = cfg.scoring.confidence, cfg.scoring.headline
    if asked not in cohort.scored:
        cohort.scored[asked] = _scores(cohort, *asked)
    found: ModelScores = cohort.scored[asked]
    return found


def _scores(cohort: Cohort, level: float, headline: str) -> ModelScores:
    matrix = cohort.matrix()
    if (cohort.outcomes == OWED).all(axis=2).any():
        raise UserError(
            f"{cohort.dataset}: a model has no graded trial of some question; leave one out"
        )
    bayes, avg = (parse(name).summary(matrix, level) for name in ("bayes", "avg"))
    first = {"bayes": bayes, "avg": avg}[headline]
    # Equal scores in the order of their sigmas, as ranks_with_uncertainty has them.
    order = np.lexsort((first.sigma, -first.value))
    moved = scoring.shrinkage(bayes.value, bayes.sigma, avg.value)
    found = scoring.inflation(matrix, confidence=level)
    return ModelScores(bayes, avg, first, moved, found, order)


def ranks(scored: ModelScores, cfg: AnalysisConfig) -> dict[str, Ints]:
    """Ranks by plain score ("none") and under each rule, numbered by `scoring.method`.

    Returns "none", "consecutive_z" and "overlap": int64, shape (L,).
    """
    method: Any = cfg.scoring.method
    plain, spread = scored.headline.value, scored.headline.sigma
    places = {"none": scoring.ranks(plain, method=method)}
    for rule in get_args(Rule):
        places[rule] = scoring.ranks_with_uncertainty(plain, spread, rule, cfg.scoring.z, method)
    return places


def leaderboard(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """One row a model, best first: everything about it alone, and its ranks.

    CSV and JSON hold all columns; what a page has no room for is in :func:`metrics` and
    :func:`attempts`. Raises UserError: as for :func:`scores`.
    """
    scored, matrix, level = scores(cohort, cfg), cohort.matrix(), f"{cfg.scoring.confidence:.0%}"
    places = ranks(scored, cfg)
    trials = (cohort.outcomes != OWED).sum(axis=2)  # (L, M)
    both = {name: _headline(name, getattr(scored, name), level) for name in HEADLINE}
    shrink = Column("shrinkage", "shrinkage", None, "{:+.2f}", short="shrink")
    both["bayes"][shrink] = scored.shrinkage
    first, second = ordered(cfg.scoring.headline)
    several = matrix.shape[1] > 1
    columns: dict[Column, npt.ArrayLike] = {
        Column("model", "model", align="left"): cohort.names,
        Column("rank", "rank"): places["none"],
        Column("rank_consecutive_z", "rank z"): places["consecutive_z"],
        Column("rank_overlap", "rank o"): places["overlap"],
        Column("attempts", "attempts", wide=True): trials.sum(axis=1),
        **both[first],
        Column("trials", "N", "$N$", wide=bool(trials.min() == trials.max())): trials.max(axis=1),
        **both[second],
        Column("stderr_questions", "s.e. over questions", None, "{:.3f}", short="s.e. q"): (
            scoring.question_stderr(matrix) if several else np.full(len(matrix), np.nan)
        ),
        **inflation_columns(scored.inflation),
        **priors.columns(cohort, cfg),
    }
    heads = {"": "score", "_sigma": "σ", "_low": f"low {level}", "_high": f"high {level}"}
    for metric in others(cfg):
        parts = _summary(_scored(metric, cohort, cfg.scoring.confidence))
        for (end, head), part in zip(heads.items(), parts, strict=True):
            key, group = f"{metric.key}{end}", metric.title()
            spread = f"{metric.key}_sigma"
            columns[Column(key, head, None, _FOUR, spread, group=group, wide=True)] = part
    columns |= _answers(cohort) | _usage(cohort)
    best_first = {column: np.asarray(values)[scored.order] for column, values in columns.items()}
    return of_columns(title("leaderboard", cohort), best_first, _notes(cohort, cfg, scored))


def _headline(name: str, found: Summary, level: str) -> dict[Column, npt.ArrayLike]:
    keys, heads = HEADLINE[name], _HEADS[name]
    titles = (*heads[:2], *(f"{head} {level}" for head in heads[2:]))
    parts = zip(keys, titles, heads, _summary(found), strict=True)
    return {
        Column(key, title, None, _FOUR, keys[1], short=head, wide=key == "avg_sigma"): part
        for key, title, head, part in parts
    }


def metrics(board: Table, cfg: AnalysisConfig) -> Table | None:
    """The columns of a leaderboard that are scores other than Bayes@N and avg; None for none."""
    notes = ["estimate ∓ z σ, σ over repetitions of the trials, of as many as a model has"]
    blank = {m: [row[m.key] is None for row in board.rows] for m in others(cfg)}
    if short := [m.title() for m, rows in blank.items() if any(rows) and not all(rows)]:
        notes.append(
            f"{', '.join(short)}: blank where a question has too few graded trials, or a run lacks"
            " what a vote takes"
        )
    if left_out := [m.title() for m, rows in blank.items() if all(rows)]:
        notes.append(
            f"left out, as no model has so many trials, or what a vote takes: {', '.join(left_out)}"
        )
    kept = [
        m.key
        for m, rows in blank.items()
        if not all(rows) and (m.name != "pass@1" or len(blank) == 1)
    ]
    keys = [f"{key}{end}" for key in kept for end in ("", "_low", "_high")]
    return _part(board, "metrics", keys, notes) if blank else None


def attempts(board: Table) -> Table:
    """The columns of a leaderboard about answers and cost, for which a page has no room."""
    notes = [
        "truncated: cut off by its token limit; undecided: the grader could not say",
        "GPU-hours are wall time × GPUs of the machine at hand, not comparable across machines",
    ]
    if _PRICE in board.columns:
        notes.append("price: tokens of the attempts at each run's engine.price_in and price_out")
    keys = ["truncated", "correct_of_finished", "no_answer", "undecided"]
    keys += ["tokens_per_attempt", "tokens", "gpu_hours"]
    return _part(board, "attempts", [*keys, _PRICE.key], notes)


def _part(board: Table, what: str, keys: Sequence[str], notes: Sequence[str]) -> Table:
    columns = [replace(c, wide=False) for c in board.columns if c.key in ("model", *keys)]
    return Table(board.title.replace("leaderboard", what, 1), columns, board.rows, notes)


def title(what: str, cohort: Cohort) -> str:
    """A table's title: what it shows, of which data set, and how much of it."""
    models, questions, trials = cohort.outcomes.shape
    upto = "up to " * bool((cohort.outcomes == OWED).any())
    size = f"{counted(models, 'model')}, {counted(questions, 'question')}"
    return f"{what}: {cohort.dataset}, {size}, {upto}{counted(trials, 'trial')}"


def others(cfg: AnalysisConfig) -> list[Metric]:
    """The metrics that were asked for; Bayes@N and avg are in every leaderboard anyway."""
    return [m for m in parse_all(cfg.scoring.metrics) if m.name not in ("bayes", "avg")]


def _scored(metric: Metric, cohort: Cohort, confidence: float) -> Summary:
    """A metric of every model, (L,); NaN where some question has too few trials."""
    enough = (cohort.outcomes != OWED).sum(axis=2).min(axis=1) >= metric.k
    evidence: list[dict[str, Any]] = [{"outcomes": of} for of in cohort.matrix()]
    if metric.votes:
        evidence = [of.arrays for of in cohort.votes]
        enough &= [{*metric.of} <= {*of} for of in evidence]
    summary = np.full((4, len(enough)), np.nan)
    if enough.any():
        known = [of for of, has in zip(evidence, enough, strict=True) if has]
        stacks = {name: np.ma.stack([of[name] for of in known]) for name in metric.of}
        summary[:, enough] = metric.summary(metric.given(stacks), confidence)
    return Summary(*summary)


def _summary(summary: Summary) -> list[Floats]:
    """Value, sigma and ends; rounding may have carried a share past 0 or 1."""
    value, sigma, low, high = summary
    return [np.clip(value, 0, 1), sigma, np.clip(low, 0, 1), np.clip(high, 0, 1)]


def _notes(cohort: Cohort, cfg: AnalysisConfig, scored: ModelScores) -> list[str]:
    s = cfg.scoring
    name = "avg" if s.headline == "avg" else "Bayes@N"
    notes = [
        f"avg, and Bayes@N by its uniform prior (μ, σ); low, high: {s.confidence:.0%} intervals, "
        + intervals(dict(zip(cohort.names, scoring.fits(cohort.matrix()), strict=True))),
        f"ranks ({s.method}) by {name}: rank without uncertainty; rank z: neighbours with z under"
        f" {s.z:g} share a rank; rank o: so do neighbours whose {name} ± {s.z:g} σ overlap",
    ]
    if cohort.outcomes.shape[1] > 1:
        notes.append(
            "s.e. over questions: standard error of avg, questions as a sample of a larger pool"
        )
    most = (cohort.outcomes != OWED).any(axis=1).sum(axis=1)
    if (most != most[0]).any():
        pulls = "no prior pulls" if name == "avg" else "is pulled most where trials are fewest"
        notes.append(f"numbers of trials differ: ranks and orders rest on {name}, which {pulls}")
    notes += apart(dict(zip(cohort.names, scored.shrinkage, strict=True)))
    avgs = [f"avg of {name}" for name in cohort.names]
    notes += shared_luck(avgs, scored.inflation, scored.avg.sigma, s.confidence)
    if any(m.votes for m in others(cfg)):
        for name, of in zip(cohort.names, cohort.votes, strict=True):
            lines = [
                f"{m} is left out: {why}" for m, why in votes.left_out(others(cfg), of).items()
            ]
            notes += [f"{name}: {line}" for line in lines]
    notes += stopped_lines(cohort.stopped(s.confidence), s.confidence)
    notes += [f"{member.name}: {member.decided}" for member in cohort.runs() if member.decided]
    return notes + [f"not alike: {line}" for line in cohort.differences]


def inflation_columns(found: Inflation) -> dict[Column, npt.ArrayLike]:
    """How much more trials vary than independent attempts would, with its interval; not shown."""
    keys = ("inflation", "inflation_low", "inflation_high")
    parts = zip(keys, found, strict=False)
    return {Column(key, key.replace("_", " "), None, "{:.2f}", wide=True): of for key, of in parts}


def _answers(cohort: Cohort) -> dict[Column, npt.ArrayLike]:
    """Shares of graded attempts that gave no answer to judge; NaN where that is not known."""
    kinds = {
        "truncated": cohort.truncated == 1,
        "no_answer": cohort.outcomes == NO_ANSWER,
        "undecided": np.isin(cohort.outcomes, UNDECIDED),
    }
    known = (cohort.truncated >= 0).any(axis=(1, 2))
    graded = (cohort.outcomes != OWED).sum(axis=(1, 2))
    shares: dict[Column, npt.ArrayLike] = {
        Column(key, key.replace("_", " "), None, "{:.1%}", wide=True): np.where(
            known, kind.sum(axis=(1, 2)) / graded, np.nan
        )
        for key, kind in kinds.items()
    }
    head = Column("correct_of_finished", "correct of finished", None, "{:.1%}", wide=True)
    return shares | {head: finished(cohort)[1]}


def finished(cohort: Cohort) -> tuple[Floats, Floats]:
    """The share of attempts that were not truncated, and of those the share that is correct.

    Both (L,), every question with the same weight; NaN where it is not known what was truncated,
    and the second where nothing finished. Where truncated attempts are never correct, as our grader
    has it, avg is their product.

    >>> from bayes_at_n.pipeline.compare.cohort import from_arrays
    >>> cohort = from_arrays("d", ["a"], ["q"], [[[1, 1, 0, 0]]])
    >>> [x.tolist() for x in finished(replace(cohort, truncated=np.array([[[0, 0, 0, 1]]])))]
    [[0.75], [0.6666666666666666]]
    """
    graded = cohort.outcomes != OWED
    trials = np.maximum(graded.sum(axis=2), 1)
    ended = graded & (cohort.truncated != 1)
    share = (ended.sum(axis=2) / trials).mean(axis=1)
    right = ((ended & (cohort.outcomes == CORRECT)).sum(axis=2) / trials).mean(axis=1)
    known = (cohort.truncated >= 0).any(axis=(1, 2))
    of_ended = np.divide(right, share, out=np.full(len(share), np.nan), where=known & (share > 0))
    return np.where(known, share, np.nan), of_ended


def _usage(cohort: Cohort) -> dict[Column, npt.ArrayLike]:
    """Tokens and price of the attempts that are scored, and GPU-hours of the whole run."""
    head = "tokens/attempt"
    columns = (
        Column("tokens_per_attempt", head, None, "{:,.0f}", short="per attempt", wide=True),
        Column("tokens", "tokens", None, "{:,.0f}", wide=True),
        Column("generated", "attempts that say their tokens", wide=True),
        Column("gpu_hours", "GPU-hours", None, "{:.2f}", wide=True),
        _PRICE,
    )
    cells: list[tuple[Any, ...]] = []
    for name in cohort.names:
        usages = [member.usage for member in cohort.runs() if member.name == name]
        known = sum(usage.completions_known for usage in usages)
        tokens = _sum([u.completion_tokens if u.completions_known else None for u in usages])
        gpu_s = _sum([usage.spent.gpu_s for usage in usages])
        hours = None if gpu_s is None else gpu_s / 3600
        price = _sum([usage.price for usage in usages])
        cells.append((None if tokens is None else tokens / known, tokens, known, hours, price))
    found: dict[Column, Any] = dict(zip(columns, zip(*cells, strict=True), strict=True))
    if set(found[_PRICE]) == {None}:
        del found[_PRICE]
    return found


def _sum(parts: Sequence[float | None]) -> float | None:
    """None where a part is not known, or there is none."""
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None
