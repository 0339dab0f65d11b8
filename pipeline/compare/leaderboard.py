"""The leaderboard: every model's scores, ranks, answers and cost.

A model's score and its interval are of its own questions and prior. What compares models, order,
ranks and probabilities, is made from avg@N and the paper's sigma, which no prior pulls: for equal
numbers of trials that is exactly what Bayes@N under the uniform prior gives (docs/scoring.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent, plural
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.compare.claims import corrected, shares, together
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import CHANCE, Column, Table, of_columns
from bayes_at_n.pipeline.score import answers, likelihood
from bayes_at_n.pipeline.score.headline import (
    OVER_QUESTIONS,
    correlation_warning,
    named,
    sample_size,
    stopped_lines,
)
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, PENDING, UNDECIDED
from bayes_at_n.scoring import Inflation
from bayes_at_n.scoring.metrics.table import Metric, Summary, parse, parse_all
from bayes_at_n.scoring.numerics.inputs import UNIT, Floats, Ints
from bayes_at_n.scoring.numerics.results import sample_sigma
from bayes_at_n.scoring.ranking import Rule

Columns = dict[Column, npt.ArrayLike]  # each with the values of the models, (L,)
HEADLINE = ("score", "sigma", "low", "high")  # columns of a leaderboard
_AVG = {"avg": "avg", "avg_sigma": "σ of avg", "avg_low": "avg low", "avg_high": "avg high"}
_PRICE = Column("price", "price", None, "{:,.2f}", wide=True)  # where some run has one


class ModelScores(NamedTuple):
    """What all other figures are made from: arrays of shape (L,), models as in the cohort."""

    headline: Summary  # the score of each model alone, under its `prior`
    prior: npt.NDArray[np.str_]  # as `scoring.score_prior` has it
    avg: Summary  # what models are compared by: with the paper's sigma, or corrected by labels
    of_trials: Floats  # sigma of avg without the error of judges
    inflation: Inflation  # of the variance of trials
    order: npt.NDArray[np.intp]  # positions in the order of avg, best first


def scores(cohort: Cohort, cfg: AnalysisConfig) -> ModelScores:
    """Score every model, and average it, with intervals, once for a cohort."""
    level, prior = key = cfg.scoring.confidence, cfg.scoring.prior
    if key not in cohort.scored:
        matrix = cohort.matrix()
        if (cohort.outcomes == PENDING).all(axis=2).any():
            why = "a model has no graded trial of some question; leave it out or finish its run"
            raise UserError(f"{cohort.dataset}: {why}")
        headline, priors = scoring.score_and_prior(matrix, None, level, prior)
        if by_likelihood(cohort):
            headline = likelihood.accuracy(matrix[..., 0], level, cohort.clusters)
            priors = np.full(len(matrix), "options")
        avg = scoring.avg_ci(matrix, confidence=level, bounds=UNIT)
        of_trials = avg.sigma
        if by_people := corrected(cohort, level):
            headline, avg, _ = by_people
            priors = np.full(len(matrix), "labels")
        # Equal scores in the order of their sigmas, as ranks_with_uncertainty has them.
        order = np.lexsort((avg.sigma, -avg.value))
        luck = scoring.inflation(matrix, confidence=level)
        cohort.scored[key] = ModelScores(headline, priors, avg, of_trials, luck, order)
    return cohort.scored[key]  # type: ignore[no-any-return]


def by_likelihood(cohort: Cohort) -> bool:
    """Return whether all outcomes are choices by likelihood, which another trial would repeat."""
    return {member.run.cfg.sampling.likelihood for member in cohort.members} == {"options"}


def ranks(scored: ModelScores, cfg: AnalysisConfig) -> dict[str, Ints]:
    """Rank by plain avg ("none") and under each rule, numbered by `scoring.method`.

    Returns "none", "consecutive_z" and "overlap": int64, shape (L,).
    """
    method: Any = cfg.scoring.method
    plain, spread, *_ = scored.avg
    z, rules = cfg.scoring.z, get_args(Rule)
    by_rule = {r: scoring.ranks_with_uncertainty(plain, spread, r, z, method) for r in rules}
    return {"none": scoring.ranks(plain, method=method)} | by_rule


def leaderboard(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Tabulate a row a model, best first: everything about it alone, and its ranks.

    CSV and JSON hold all columns; what a page has no room for is in :func:`metrics` and
    :func:`attempts`.
    """
    scored, matrix = scores(cohort, cfg), cohort.matrix()
    by_rule = ranks(scored, cfg)
    trials = (cohort.outcomes != PENDING).sum(axis=2)  # (L, M)
    name, _ = named(named_priors(cohort, cfg))
    heads = dict(zip(HEADLINE, (name, "σ", "low", "high"), strict=True))
    same = name.startswith("avg")
    over = np.full(len(matrix), np.nan)
    if len({*cohort.clusters}) > 1 and not by_likelihood(cohort):
        # Never surer of other questions than of these.
        over, _ = sample_sigma(shares(cohort, cfg.scoring.confidence), cohort.clusters)
        over = np.maximum(over, scored.avg.sigma)
    columns: Columns = {
        Column("model", "model", align="left"): cohort.names,
        **_together(cohort, scored, cfg),
        Column("rank", "rank by score", wide=True): by_rule["none"],
        Column("rank_consecutive_z", "rank z", wide=True): by_rule["consecutive_z"],
        Column("rank_overlap", "rank o", wide=True): by_rule["overlap"],
        Column("attempts", "attempts", wide=True): trials.sum(axis=1),
        **_summary(heads, scored.headline, cfg),
        Column("prior", "prior", wide=True, align="left"): scored.prior,
        Column("trials", "N", "$N$", wide=bool(trials.min() == trials.max())): trials.max(axis=1),
        **_summary(_AVG, scored.avg, cfg, wide=["avg"] * same + [*_AVG][1:]),
        Column("stderr_questions", "s.e. over questions", None, "{:.3f}", short="s.e. q"): over,
        **inflation_columns(scored.inflation),
        **_others(cohort, cfg),
        **_answers(cohort),
        **_usage(cohort),
    }
    best_first = {column: np.asarray(values)[scored.order] for column, values in columns.items()}
    return of_columns(title("leaderboard", cohort), best_first, _notes(cohort, cfg, scored))


def ranges(avg: npt.ArrayLike, sigma: npt.ArrayLike, level: float) -> list[str]:
    """Write the ranks that each model may have, for all at once, as text: "1–3", or "4"; (L,)."""
    low, high = scoring.rank_ranges(avg, sigma, level)
    return [str(a) if a == b else f"{a}–{b}" for a, b in zip(low, high, strict=True)]


def _together(cohort: Cohort, scored: ModelScores, cfg: AnalysisConfig) -> Columns:
    """Compare all models at once: ranges of ranks, and who may be the best; nothing of one."""
    if len(cohort.names) == 1:
        return {}
    whole = together(cohort, scored.avg, cfg.scoring.confidence)
    return {
        Column("ranks", "rank"): ranges(*scored.avg[:2], cfg.scoring.confidence),
        Column("rank_low", "rank from", wide=True): whole.low,
        Column("rank_high", "rank to", wide=True): whole.high,
        Column("candidate", "may be the best", wide=True): whole.candidates,
        Column("best", "P(best)", None, CHANCE, group="pooled"): whole.best,
        Column("best_other", "P(best) on others", None, CHANCE, group="pooled", wide=True): (
            whole.best_other
        ),
    }


def metrics(board: Table, cfg: AnalysisConfig) -> Table | None:
    """Select the columns of the metrics beside the headline and avg, if there are any."""
    notes = ["low, high: estimate ∓ z σ; σ over repetitions of as many trials as the model has"]
    blank = {m: [row[m.key] is None for row in board.rows] for m in others(cfg)}
    if short := [m.title() for m, rows in blank.items() if any(rows) and not all(rows)]:
        why = "a question has too few graded trials, or a run lacks the answers that votes need"
        notes.append(f"{', '.join(short)}: blank where {why}")
    if left_out := [m.title() for m, rows in blank.items() if all(rows)]:
        why = "no model has enough trials, or the answers that votes need"
        notes.append(f"left out because {why}: {', '.join(left_out)}")
    alone = len(blank) == 1  # Pass@1 is avg
    kept = [m for m, rows in blank.items() if not all(rows) and (m.name != "pass@1" or alone)]
    keys = [f"{m.key}{end}" for m in kept for end in ("", "_low", "_high")]
    table = _part(board, "metrics", keys, notes)
    return (table if kept else replace(table, rows=[])) if blank else None


def attempts(board: Table) -> Table:
    """Select the columns about answers and cost, for which a page has no room."""
    notes = [
        "truncated: cut off by its token limit; undecided: the grader could not decide",
        "GPU-hours: wall time × GPUs; not comparable across machines",
    ]
    if _PRICE in board.columns:
        notes.append("price: of these attempts, at each run's engine.price_in and engine.price_out")
    keys = ["truncated", "correct_of_finished", "no_answer", "undecided"]
    keys += ["tokens_per_attempt", "tokens", "gpu_hours"]
    return _part(board, "answers and cost", [*keys, _PRICE.key], notes)


def _part(board: Table, what: str, keys: Sequence[str], notes: Sequence[str]) -> Table:
    columns = [replace(c, wide=False) for c in board.columns if c.key in ("model", *keys)]
    return Table(board.title.replace("leaderboard", what, 1), columns, board.rows, notes)


def title(what: str, cohort: Cohort) -> str:
    """Write a table's title: what it shows, of which dataset, and how much of it."""
    models, _, trials = cohort.outcomes.shape
    upto = "up to " * bool((cohort.outcomes == PENDING).any())
    drawn = sample_size(len(cohort.question_ids), len({*cohort.clusters}))
    size = f"{plural(models, 'model')}, {drawn}"
    return f"{what}: {cohort.dataset}, {size}, {upto}{plural(trials, 'trial')}"


def others(cfg: AnalysisConfig) -> list[Metric]:
    """Parse the metrics of the settings but for the headline and avg, which every table has."""
    return [m for m in parse_all(cfg.scoring.metrics) if m.name not in ("bayes", "avg")]


def named_priors(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, str]:
    """Return the prior of each model's score by its name."""
    return dict(zip(cohort.names, scores(cohort, cfg).prior.tolist(), strict=True))


def _summary(
    heads: Mapping[str, str], summary: Summary, cfg: AnalysisConfig, wide: Sequence[str] = ()
) -> Columns:
    """Make columns of a score, its sigma and the ends of its interval, whose heads are by key."""
    (key, spread, *_), level = heads, f" {percent(cfg.scoring.confidence)}"
    parts = zip(heads.items(), _clipped(summary), strict=True)
    return {
        Column(
            *(of, head + level * (of not in (key, spread))),
            sigma=spread,
            short=head,
            wide=of in wide,
        ): part
        for (of, head), part in parts
    }


def _clipped(summary: Summary) -> list[Floats]:
    """Clip value and ends to 0 and 1, past which rounding may have carried a share."""
    value, sigma, low, high = summary
    return [np.clip(value, 0, 1), sigma, np.clip(low, 0, 1), np.clip(high, 0, 1)]


def _others(cohort: Cohort, cfg: AnalysisConfig) -> Columns:
    """Score every model as published and by each other metric; NaN where trials are too few."""
    level, columns = percent(cfg.scoring.confidence), Columns()
    heads = {"": "score", "_sigma": "σ", "_low": f"low {level}", "_high": f"high {level}"}
    for metric in {m.name: m for m in (parse("bayes-uniform"), *others(cfg))}.values():
        enough = (cohort.outcomes != PENDING).sum(axis=2).min(axis=1) >= metric.k
        evidence = [of.arrays for of in cohort.votes] if metric.votes else []
        if metric.votes:
            enough &= [{*metric.of} <= {*of} for of in evidence]
        summary = np.full((4, len(enough)), np.nan)
        if enough.any():
            known = [of for of, has in zip(evidence, enough, strict=False) if has]
            stacks: dict[str, Any] = {"outcomes": cohort.matrix()[enough]}
            if metric.votes:
                stacks = {name: np.ma.stack([of[name] for of in known]) for name in metric.of}
            try:
                summary[:, enough] = metric.summary(metric.given(stacks), cfg.scoring.confidence)
            except ValueError as error:  # of a user's own
                raise UserError(f"scoring.metrics: {one_line(error)}") from error
        for (end, head), part in zip(heads.items(), _clipped(Summary(*summary)), strict=True):
            key, spread, group = f"{metric.key}{end}", f"{metric.key}_sigma", metric.title()
            columns[Column(key, head, sigma=spread, group=group, wide=True)] = part
    return columns


def _notes(cohort: Cohort, cfg: AnalysisConfig, scored: ModelScores) -> list[str]:
    s = cfg.scoring
    score = "".join(named(named_priors(cohort, cfg)))
    notes = [f"{score}; low, high: {percent(s.confidence)} intervals"]
    if len(cohort.names) > 1:
        notes.append(
            f"rank: possible ranks on these {cohort.outcomes.shape[1]} questions,"
            f" {percent(s.confidence)} for all models at once; P(best): on these questions, with a"
            " prior estimated from all models"
        )
    if by_likelihood(cohort):
        notes.append(OVER_QUESTIONS)
    elif cohort.outcomes.shape[1] > 1:
        notes.append(
            "s.e. over questions: standard error of avg if the questions are a sample of a"
            " larger pool"
        )
    most = (cohort.outcomes != PENDING).any(axis=1).sum(axis=1)
    if (most != most[0]).any():
        notes.append(
            "numbers of trials differ, so models are ordered and ranked by avg, which has no prior"
        )
    avgs = [f"avg of {name}" for name in cohort.names]
    notes += correlation_warning(
        avgs, scored.inflation, scored.of_trials, s.confidence, scored.avg.sigma
    )
    if any(m.votes for m in others(cfg)):
        for name, of in zip(cohort.names, cohort.votes, strict=True):
            left_out = answers.left_out(others(cfg), of).items()
            notes += [f"{name}: {m} left out: {why}" for m, why in left_out]
    notes += stopped_lines(cohort.stopped(s.confidence), s.confidence)
    decided = [(of.name, outcomes.deciders_line(of.run, of.graded)) for of in cohort.runs()]
    notes += [f"{name}: {line}" for name, line in decided if line]
    return notes + [f"differs: {line}" for line in cohort.differences]


def inflation_columns(luck: Inflation) -> Columns:
    """Make columns of how much more trials vary than independent attempts would; not printed."""
    keys = ("inflation", "inflation_low", "inflation_high")
    parts = zip(keys, luck, strict=False)
    return {Column(key, key.replace("_", " "), None, "{:.2f}", wide=True): of for key, of in parts}


def _answers(cohort: Cohort) -> Columns:
    """Count the shares of graded attempts that gave no answer to judge; NaN where not known."""
    kinds = {
        "truncated": cohort.truncated == 1,
        "no_answer": cohort.outcomes == NO_ANSWER,
        "undecided": np.isin(cohort.outcomes, UNDECIDED),
    }
    known = (cohort.truncated >= 0).any(axis=(1, 2))
    graded = np.where(known, (cohort.outcomes != PENDING).sum(axis=(1, 2)), np.nan)
    shares = {key: kind.sum(axis=(1, 2)) / graded for key, kind in kinds.items()}
    shares["correct_of_finished"] = finished(cohort)[1]
    heads = [Column(key, key.replace("_", " "), None, "{:.1%}", wide=True) for key in shares]
    return dict(zip(heads, shares.values(), strict=True))


def finished(cohort: Cohort) -> tuple[Floats, Floats]:
    """Return the share of attempts that were not truncated, and the share correct of those.

    Both (L,), every question with the same weight; NaN where it is not known what was truncated,
    and the second where nothing finished. Where truncated attempts are never correct, as our grader
    has it, avg is their product.

    >>> from bayes_at_n.pipeline.compare.cohort import from_arrays
    >>> cohort = from_arrays("d", ["a"], ["q"], [[[1, 1, 0, 0]]])
    >>> [x.tolist() for x in finished(replace(cohort, truncated=np.array([[[0, 0, 0, 1]]])))]
    [[0.75], [0.6666666666666666]]
    """
    graded = cohort.outcomes != PENDING
    trials = np.maximum(graded.sum(axis=2), 1)
    ended = graded & (cohort.truncated != 1)
    share = (ended.sum(axis=2) / trials).mean(axis=1)
    right = ((ended & (cohort.outcomes == CORRECT)).sum(axis=2) / trials).mean(axis=1)
    known = (cohort.truncated >= 0).any(axis=(1, 2))
    of_ended = np.divide(right, share, out=np.full(len(share), np.nan), where=known & (share > 0))
    return np.where(known, share, np.nan), of_ended


def _usage(cohort: Cohort) -> Columns:
    """Sum tokens and price of the attempts that are scored, and GPU-hours of the whole run."""
    rows: list[tuple[Any, ...]] = []
    for name in cohort.names:
        usages = [member.usage for member in cohort.runs() if member.name == name]
        known = sum(usage.completions_known for usage in usages)
        tokens = _sum([u.completion_tokens if u.completions_known else None for u in usages])
        gpu_s = _sum([usage.spent.gpu_s for usage in usages])
        each, hours = tokens and tokens / known, None if gpu_s is None else gpu_s / 3600
        rows.append((each, tokens, known, hours, _sum([usage.price for usage in usages])))
    of_attempt, sums, numbers, gpu_hours, prices = zip(*rows, strict=True)
    tokens_head = Column(
        "tokens_per_attempt", "tokens/attempt", None, "{:,.0f}", short="per attempt", wide=True
    )
    columns: dict[Column, Any] = {
        tokens_head: of_attempt,
        Column("tokens", "tokens", None, "{:,.0f}", wide=True): sums,
        Column("generated", "attempts with token counts", wide=True): numbers,
        Column("gpu_hours", "GPU-hours", None, "{:.2f}", wide=True): gpu_hours,
    }
    return columns | ({_PRICE: prices} if set(prices) != {None} else {})


def _sum(parts: Sequence[float | None]) -> float | None:
    """Add the parts; None where one is not known, or there is none."""
    return None if None in parts or not parts else sum(parts)  # type: ignore[arg-type]
