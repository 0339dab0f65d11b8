"""Many models under smaller limits of tokens: their curves, and where their order changes."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.leaderboard import title
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.score import caps as of_run
from bayes_at_n.pipeline.store.outcomes import Lengths, capped, correct
from bayes_at_n.scoring.metrics.table import parse
from bayes_at_n.scoring.numerics.inputs import Floats

_SWAPS = (
    Column("ahead_below", "ahead below", align="left"),
    Column("ahead_above", "ahead above", align="left"),
    Column("from", "from", format="{:,}"),
    Column("to", "to", format="{:,}"),
    Column("z_from", "z there", format="{:.2f}", short="z"),
    Column("z_to", "z at the end", format="{:.2f}", short="z then"),
    Column("told_apart", "told apart"),
)


def tables(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, Table]:
    """`caps`, a row for each limit and model, and of several models `swaps`; nothing without runs.

    Models whose attempts do not all say their tokens are left out and named.
    """
    known: dict[str, Lengths] = {}
    lacking = []
    for member, codes in zip(cohort.members, cohort.outcomes, strict=False):
        lengths = member.lengths(codes.shape[1])
        try:
            of_run.check(member.run, codes, lengths)
            known[member.name] = lengths
        except UserError:
            lacking.append(member.name)
    said = []
    if lacking and cfg.scoring.caps:
        said.append(
            f"left out, for not all of their attempts say their tokens: {', '.join(lacking)}"
        )
        warn(f"{cohort.dataset}: scores by max_tokens: {said[0]}")
    if not known:
        return {}
    runs = {member.name: member.run for member in cohort.members}
    asked = cfg.scoring.caps or [AUTO]
    limits = {cap for name in known for cap in of_run.chosen(runs[name], asked, known[name])}
    caps = sorted(limits)
    rows, z = _rows(cohort, known, caps, cfg)
    level = f"{cfg.scoring.confidence:.0%}"
    notes = [f"score, rank: {parse(cfg.scoring.headline).title()}; low, high: {level} intervals;"
             f" {cfg.scoring.rule.replace('_', ' ')}, z = {cfg.scoring.z:g}, within a max_tokens",
             of_run.WHAT]  # fmt: skip
    for name in known:
        said += of_run.notes(name, known[name], caps)
    cap, *others = (replace(c, wide=c.key == "sigma") for c in of_run.COLUMNS)
    columns = [cap, Column("model", "model", align="left"), Column("rank", "rank"), *others]
    found = {"caps": Table(title("scores by max_tokens", cohort), columns, rows, notes + said)}
    if len(known) > 1:
        found["swaps"] = _swaps(cohort, [*known], caps, z, cfg)
    return found


def _rows(
    cohort: Cohort, known: Mapping[str, Lengths], caps: Sequence[int], cfg: AnalysisConfig
) -> tuple[list[dict[str, Any]], Floats]:
    """The rows of all limits, best first, and z of all pairs by limit, NaN where not known."""
    codes = {name: cohort.outcomes[cohort.names.index(name)] for name in known}
    level, s = cfg.scoring.confidence, cfg.scoring
    of_models = {name: of_run.points(codes[name], known[name], caps, s) for name in known}
    z = np.full((len(caps), len(known), len(known)), np.nan)
    rows: list[dict[str, Any]] = []
    for i, cap in enumerate(caps):
        told = [k for k, name in enumerate(known) if cap <= known[name].known]
        of_cap = [{"model": name, "rank": None} | of_models[name][i] for name in known]
        if told:
            names = [[*known][k] for k in told]
            stack = np.stack([capped(codes[n], known[n].tokens, cap) for n in names])
            first = parse(s.headline).summary(correct(stack), level)
            method: Any = s.method
            rule: Any = s.rule
            places = scoring.ranks_with_uncertainty(first.value, first.sigma, rule, s.z, method)
            for k, place in zip(told, places.tolist(), strict=True):
                of_cap[k]["rank"] = place
            z[i][np.ix_(told, told)] = scoring.pairwise_z(first.value, first.sigma)
        rows += sorted(of_cap, key=lambda row: -row.get("score", -1.0))
    return rows, z


def _swaps(
    cohort: Cohort, names: Sequence[str], caps: Sequence[int], z: Floats, cfg: AnalysisConfig
) -> Table:
    """Each pair of models whose order changes with the limit: where, and how surely."""
    rows = []
    for a, b in itertools.combinations(range(len(names)), 2):
        if (found := swap(z[:, a, b], cfg.scoring.z)) is None:
            continue
        i, j, told = found
        below, above = (names[a], names[b]) if z[i, a, b] > 0 else (names[b], names[a])
        ends = {"from": caps[i], "to": caps[j], "z_from": z[i, a, b], "z_to": z[j, a, b]}
        ends |= {key: abs(float(ends[key])) for key in ("z_from", "z_to")}
        rows.append({"ahead_below": below, "ahead_above": above, **ends, "told_apart": told})
    rows.sort(key=lambda row: (not row["told_apart"], -min(row["z_from"], row["z_to"])))
    notes = [
        "the order of the two changes between these max_tokens; told apart: at both of them z is at"
        f" least {cfg.scoring.z:g}, else the change is within what trials leave open",
    ]
    return Table(title("orders that max_tokens changes", cohort), _SWAPS, rows, notes)


def swap(z: Floats, threshold: float) -> tuple[int, int, bool] | None:
    """Between which two limits the order of two models changes last; None: it does not.

    `z` of shape (C,) is above 0 where the first is ahead, NaN where not known. A change with |z| at
    or above the threshold on both sides counts before any other, and gives True.

    >>> swap(np.array([-3.0, -1.0, 0.5, 2.5]), 1.645), swap(np.array([0.0, -1.0, 0.5]), 1.645)
    ((0, 3, True), (1, 2, False))
    """
    for least in (threshold, 0.0):
        at = np.flatnonzero((np.abs(z) >= least) & (z != 0))
        turns = np.flatnonzero(np.diff(np.sign(z[at])))
        if turns.size:
            return int(at[turns[-1]]), int(at[turns[-1] + 1]), least > 0
    return None
