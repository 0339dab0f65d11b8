"""Scores of many models under smaller limits of tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.leaderboard import ranges, title
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.score import caps as of_run
from bayes_at_n.pipeline.store.outcomes import Lengths


def tables(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, Table]:
    """Tabulate `caps`, a row for each limit and model.

    Nothing without runs. Models with attempts that lack token counts are left out and named.
    """
    known, lacking, left_out = dict[str, Lengths](), list[str](), list[str]()
    for member, matrix in zip(cohort.members, cohort.matrix(), strict=False):
        lengths = member.lengths(matrix.shape[1])
        try:
            of_run.check(member.run, matrix, lengths)
            known[member.name] = lengths
        except UserError:
            lacking.append(member.name)
    if lacking and cfg.scoring.caps:
        left_out.append(
            f"left out because some attempts have no token counts: {', '.join(lacking)}"
        )
        warn(f"{cohort.dataset}: scores by max_tokens: {left_out[0]}")
    if not known:
        return {}
    requested, runs = cfg.scoring.caps or [AUTO], {m.name: m.run for m in cohort.members}
    caps = sorted({n for name in known for n in of_run.chosen(runs[name], requested, known[name])})
    rows = _rows(cohort, known, caps, cfg)
    s = cfg.scoring
    notes = [
        *of_run.what(s),
        f"rank: possible ranks, {percent(s.confidence)} for all models of a max_tokens at once",
        *left_out,
    ]
    for name in known:
        notes += of_run.notes(name, known[name], caps)
    cap, *others = (replace(c, wide=c.key == "sigma") for c in of_run.COLUMNS)
    ranks = [Column("ranks", "rank"), Column("rank", "rank by avg", wide=True)]
    columns = [cap, Column("model", "model", align="left"), *ranks, *others]
    return {"caps": Table(title("scores by max_tokens", cohort), columns, rows, notes)}


def _rows(
    cohort: Cohort, known: Mapping[str, Lengths], caps: Sequence[int], cfg: AnalysisConfig
) -> list[dict[str, Any]]:
    """Make the rows of all limits, best first."""
    s = cfg.scoring
    of_models = [
        of_run.points(cohort.matrix()[cohort.names.index(name)], lengths, caps, s)
        for name, lengths in known.items()
    ]
    rows: list[dict[str, Any]] = []
    for points in zip(*of_models, strict=True):
        blank = {"ranks": None, "rank": None}
        of_cap = [{"model": m, **blank, **row} for m, row in zip(known, points, strict=True)]
        if scored := [k for k, row in enumerate(of_cap) if "score" in row]:
            pairs = [(of_cap[k]["avg"], of_cap[k]["avg_sigma"]) for k in scored]
            avg, sigma = np.array(pairs).T
            plain = scoring.ranks(avg, s.method).tolist()  # type: ignore[arg-type]
            for k, may, rank in zip(scored, ranges(avg, sigma, s.confidence), plain, strict=True):
                of_cap[k] |= {"ranks": may, "rank": rank}
        rows += sorted(of_cap, key=lambda row: -row.get("avg", -1.0))
    return rows
