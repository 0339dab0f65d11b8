"""The leaderboard: every model's scores, ranks, answers and cost.

Ranks, probabilities and groups are made from avg and its sigma. For equal numbers of trials they
are exactly those of Bayes@N (docs/scoring.md); for unequal ones the uniform prior would pull models
with fewer trials further, and equal models would seem to differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import scoring
from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort
from pipeline.config.analysis import AnalysisConfig
from pipeline.display.table import Column, Table
from pipeline.score.stage import MISSING
from pipeline.store import rowkeys, shards, workers
from pipeline.store.columns import ATTEMPTS

Floats = npt.NDArray[np.float64]
RULES = ("consecutive_z", "overlap")


@dataclass(frozen=True)
class Scores:
    """What all other figures are made from; arrays of shape (L,), models as in the cohort."""

    mu: Floats  # Bayes@N under the uniform prior
    sigma: Floats
    low: Floats
    high: Floats
    avg: Floats
    avg_sigma: Floats  # on the average's scale
    avg_low: Floats
    avg_high: Floats
    shrinkage: Floats  # (mu - avg) / sigma
    order: npt.NDArray[np.intp]  # positions in the order of avg, best first


def scores(cohort: Cohort, cfg: AnalysisConfig) -> Scores:
    """Bayes@N and avg@N of every model with their intervals.

    Raises:
        UserError: a question that some model has no graded trial of.
    """
    matrix = cohort.matrix()
    if np.ma.getmaskarray(matrix).all(axis=2).any():  # type: ignore[no-untyped-call]
        raise UserError(
            f"{cohort.dataset}: a model has no graded trial of some question; leave one out"
        )
    level = cfg.scoring.confidence
    bayes = scoring.bayes_ci(matrix, confidence=level, bounds=(0.0, 1.0))
    avg = scoring.avg_ci(matrix, confidence=level, bounds=(0.0, 1.0))
    # Equal averages in the order of their sigmas, as ranks_with_uncertainty has them.
    order = np.lexsort((avg[1], -avg[0]))
    return Scores(*bayes, *avg, scoring.shrinkage(bayes[0], bayes[1], avg[0]), order)


def ranks(found: Scores, cfg: AnalysisConfig) -> dict[str, npt.NDArray[np.int64]]:
    """Ranks by plain score ("none") and under both rules, numbered by `scoring.method`.

    Returns:
        "none", "consecutive_z" and "overlap": int64, shape (L,).
    """
    made = {"none": scoring.ranks(found.avg, method=cfg.scoring.method)}  # type: ignore[arg-type]
    for rule in RULES:
        made[rule] = scoring.ranks_with_uncertainty(
            found.avg,
            found.avg_sigma,
            rule,  # type: ignore[arg-type]
            cfg.scoring.z,
            cfg.scoring.method,  # type: ignore[arg-type]
        )
    return made


def leaderboard(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """One row a model, best first: everything about it alone, and its ranks.

    CSV and JSON hold all columns; what a page has no room for is in :func:`attempts`.

    Raises:
        UserError: as for :func:`scores`.
    """
    found, matrix = scores(cohort, cfg), cohort.matrix()
    places = ranks(found, cfg)
    trials = (cohort.outcomes != MISSING).sum(axis=2)  # (L, M)
    several = matrix.shape[1] > 1
    stderr = scoring.question_stderr(matrix) if several else np.full(len(found.mu), np.nan)
    rows = []
    for i in found.order.tolist():
        row = {
            "model": cohort.names[i],
            "rank": int(places["none"][i]),
            **{f"rank_{rule}": int(places[rule][i]) for rule in RULES},
            "trials": int(trials[i].max()),
            "attempts": int(trials[i].sum()),
        }
        for key in ("mu", "low", "high", "avg", "avg_low", "avg_high"):
            row[key] = share(getattr(found, key)[i])
        row |= {key: float(getattr(found, key)[i]) for key in ("sigma", "avg_sigma")}
        row["shrinkage"] = float(found.shrinkage[i])
        row["stderr_questions"] = float(stderr[i]) if several else None
        for k in cfg.scoring.pass_k:
            enough = k <= trials[i].min()
            row[f"pass_at_{k}"] = share(scoring.pass_at_k(matrix[i], k)) if enough else None
        rows.append(row | _answers(cohort, i) | _usage(cohort, i))
    return Table(title("leaderboard", cohort), _columns(cfg), rows, _notes(cohort, cfg, found))


def attempts(board: Table, cfg: AnalysisConfig) -> Table:
    """The columns of a leaderboard that a page has no room for: Pass@k, shares, tokens, cost."""
    keys = {"model", "truncated", "no_answer", "undecided"}
    keys |= {"tokens_per_attempt", "tokens", "gpu_hours"}
    keys |= {f"pass_at_{k}" for k in cfg.scoring.pass_k}
    columns = [replace(column, wide=False) for column in board.columns if column.key in keys]
    notes = [
        "truncated: cut off before a final box; undecided: the grader could not say",
        "GPU-hours are wall time × GPUs of the machine at hand, not comparable across machines",
    ]
    return Table(board.title.replace("leaderboard", "attempts", 1), columns, board.rows, notes)


def pooled_usage(board: Table, boards: Sequence[Table]) -> Table:
    """A pooled leaderboard with the tokens and GPU-hours of the data sets added up."""
    rows = []
    for row in board.rows:
        parts = [part for one in boards for part in one.rows if part["model"] == row["model"]]
        told: dict[str, Any] = {}
        for key in ("tokens", "gpu_hours"):
            values = [part[key] for part in parts]
            told[key] = None if None in values else sum(values)
        if told["tokens"] is not None:
            told["tokens_per_attempt"] = told["tokens"] / sum(p["generated"] for p in parts)
        rows.append({**row, **told})
    return Table(board.title, board.columns, rows, board.notes)


def share(value: Any) -> float:
    """A probability or share as tables have it: rounding may have carried it past 0 or 1.

    >>> share(1.0000000000000002), share(-1e-17), share(0.25)
    (1.0, 0.0, 0.25)
    """
    return float(np.clip(value, 0.0, 1.0))


def title(what: str, cohort: Cohort) -> str:
    """A table's title: what it shows, of which data set, and how much of it."""
    models, questions, trials = cohort.outcomes.shape
    return (
        f"{what}: {cohort.dataset}, {models} models, {questions} questions, up to {trials} trials"
        if (cohort.outcomes == MISSING).any()
        else f"{what}: {cohort.dataset}, {models} models, {questions} questions, {trials} trials"
    )


def _columns(cfg: AnalysisConfig) -> list[Column]:
    level = f"{cfg.scoring.confidence:.0%}"
    four = "{:.4f}"
    return [
        Column("model", "model", align="left"),
        Column("rank", "rank"),
        Column("rank_consecutive_z", "rank z"),
        Column("rank_overlap", "rank o"),
        Column("attempts", "attempts", wide=True),
        Column("mu", "μ", r"$\mu$", four),
        Column("sigma", "σ", r"$\sigma$", four),
        Column("low", f"low {level}", None, four, short="low"),
        Column("high", f"high {level}", None, four, short="high"),
        Column("trials", "N", "$N$"),
        Column("shrinkage", "shrinkage", None, "{:+.2f}", short="shrink"),
        Column("avg", "avg", None, four),
        Column("avg_sigma", "σ of avg", r"$\sigma$ of avg", four, wide=True),
        Column("avg_low", f"avg low {level}", None, four, short="avg low"),
        Column("avg_high", f"avg high {level}", None, four, short="avg high"),
        Column("stderr_questions", "s.e. over questions", None, four, short="s.e. q"),
        *(Column(f"pass_at_{k}", f"Pass@{k}", None, four, wide=True) for k in cfg.scoring.pass_k),
        Column("truncated", "truncated", None, "{:.1%}", wide=True),
        Column("no_answer", "no answer", None, "{:.1%}", wide=True),
        Column("undecided", "undecided", None, "{:.1%}", wide=True),
        Column(
            "tokens_per_attempt", "tokens/attempt", None, "{:,.0f}", short="per attempt", wide=True
        ),
        Column("tokens", "tokens", None, "{:,.0f}", wide=True),
        Column("gpu_hours", "GPU-hours", None, "{:.2f}", wide=True),
    ]


def _notes(cohort: Cohort, cfg: AnalysisConfig, found: Scores) -> list[str]:
    s = cfg.scoring
    notes = [
        f"μ, σ: Bayes@N, uniform prior; low, high: {s.confidence:.0%} intervals",
        f"ranks ({s.method}) by avg: rank without uncertainty; rank z: neighbours with z under"
        f" {s.z:g} share a rank; rank o: so do neighbours whose avg ± {s.z:g} σ overlap",
    ]
    if cohort.outcomes.shape[1] > 1:
        notes.append(
            "s.e. over questions: standard error of avg, questions as a sample of a larger pool"
        )
    most = (cohort.outcomes != MISSING).any(axis=1).sum(axis=1)
    if (most != most[0]).any():
        notes.append("numbers of trials differ: ranks and orders rest on avg, which no prior pulls")
    strayed = np.abs(found.shrinkage) > scoring.SHRINKAGE_LIMIT
    if strayed.any():
        worst = int(np.argmax(np.abs(found.shrinkage)))
        notes.append(
            f"shrinkage, (μ − avg)/σ, exceeds {scoring.SHRINKAGE_LIMIT:g} for {int(strayed.sum())}"
            f" of {strayed.size} models ({cohort.names[worst]} {found.shrinkage[worst]:+.2f}):"
            " their intervals of μ cover less than they say; read avg and its interval"
        )
    return notes + [f"not alike: {line}" for line in cohort.differences]


def _answers(cohort: Cohort, i: int) -> dict[str, float | None]:
    """Shares of graded attempts that gave no answer to judge; None where that is not known."""
    cut, words = cohort.truncated[i], cohort.outcomes[i]
    if not (cut >= 0).any():
        return {"truncated": None, "no_answer": None, "undecided": None}
    graded = int((words != MISSING).sum())
    return {
        "truncated": int((cut == 1).sum()) / graded,
        "no_answer": int((words == "no_answer").sum()) / graded,
        "undecided": int(np.isin(words, ("unparsable", "timeout")).sum()) / graded,
    }


def _usage(cohort: Cohort, i: int) -> dict[str, Any]:
    """Completion tokens of the attempts that are scored, and GPU-hours of the whole run.

    Imported records may have texts and no numbers of tokens: what nobody knows is None.
    """
    unknown = {"tokens_per_attempt": None, "tokens": None, "generated": 0, "gpu_hours": None}
    if not cohort.members:
        return unknown
    member = cohort.members[i]
    ids, trials = pa.array(member.question_ids, pa.string()), member.run.cfg.sampling.trials
    tokens, generated, damage = 0, 0, shards.Damage()
    columns = ["question_id", "trial", "completion_tokens"]
    for batch in shards.batches(member.run.attempts, ATTEMPTS, columns, damage):
        counted, _ = rowkeys.cells(rowkeys.encode(batch, ids), trials)
        known = batch["completion_tokens"].filter(pa.array(counted))
        tokens += pc.sum(known).as_py() or 0
        generated += pc.count(known).as_py()
    if damage.lines:
        warn(
            f"{member.name}: attempts: {damage}; their tokens are not counted; run `generate` on"
            f" {member.run.path} to make them again"
        )
    seconds = workers.totals(member.run).gpu_s
    return {
        "tokens_per_attempt": tokens / generated if generated else None,
        "tokens": tokens if generated else None,
        "generated": generated,
        "gpu_hours": None if seconds is None else seconds / 3600,
    }
