"""Panels of the report: one per dataset, and one for all of them.

A panel is a tab: title, notices, tables and figures, how each run was sampled and graded, and for a
dataset the counts of its map.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare import comparison, slices
from bayes_at_n.pipeline.compare import rubrics as cohort_rubrics
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.conclusion import conclude, is_open, next_attempts
from bayes_at_n.pipeline.compare.differences import protocol, sampling_known
from bayes_at_n.pipeline.compare.leaderboard import HEADLINE, by_likelihood
from bayes_at_n.pipeline.compare.rubrics import ByRubric
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.plots import scores as plots
from bayes_at_n.pipeline.score.headline import named
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.outcomes import CORRECT, PENDING
from bayes_at_n.pipeline.store.runfolder import Run, read_json
from bayes_at_n.pipeline.verify import calibrate
from bayes_at_n.scoring.numerics.inputs import Floats

LONGEST = 300  # characters of a problem on the map
FIGURES = 5  # of a dataset, at most
Panel = dict[str, Any]
Row = Mapping[str, Any]
_LONG = ("sampling.seed", "sampling.logprobs", "sampling.prompt_logprobs", "prompt.template")
_OF_SAMPLES = ("sampling.temperature", "sampling.top_p", "sampling.max_tokens")
_TITLES = {"prompt.name": "prompt", "prompt.shuffle": "options shuffled per"}
# Not in the line of what is shared.
_PER_RUN = ("model", "datasets", "sampled", "model id", "revision", "bayes-at-n")
_FIRST = ("trials per question", "seeds")  # the line has their values before their names


def dataset(
    cohort: Cohort, cfg: AnalysisConfig, drawn: Callable[[], None]
) -> tuple[Panel, ByRubric]:
    """Build the panel of a dataset, and assign the categories of its attempts.

    Calls `drawn` after each figure. Returns both; categories are of all models, -1 for none. Raises
    UserError: some model has no graded trial of some question.
    """
    notices = [*cohort.differences, *cohort.warnings]
    tables = comparison.tables_of(cohort, cfg)
    if not cohort.names:  # bits per byte alone
        return _panel(cohort.dataset, cohort.dataset, notices=notices, tables=beside(tables)), {}
    of_rubrics = _categories(cohort, cfg, notices)
    if not (cfg.scoring.caps or by_likelihood(cohort)):
        tables |= slices.cap_tables(cohort, cfg)
    if of_rubrics:
        tables["rubrics"] = cohort_rubrics.scores(cohort, cfg)
    panel = _panel(
        cohort.dataset,
        cohort.dataset,
        notices=notices,
        made=made(cohort),
        counts=counts(cohort, cfg.report.texts),
        verdict=verdict(cohort, cfg),
        scores=leaderboard(tables["leaderboard"], cfg),
        tables=beside(tables),
    )
    for one in figures(cohort, tables):
        panel["figures"].append(one)
        drawn()
    return panel, of_rubrics


def together(cohorts: Sequence[Cohort], cfg: AnalysisConfig) -> Panel:
    """Build the panel of all datasets; add a notice if no model is in all of them."""
    notices = cohorts_of.by_line({c.dataset: [*c.differences, *c.warnings] for c in cohorts})
    panel = _panel("All datasets", "=all", notices=notices, tables=[], made=made(*cohorts))
    try:
        panel["scores"] = side_by_side(comparison.by_dataset(cohorts, cfg))
        pooled = cohorts_of.pooled(cohorts)
        tables = comparison.tables_of(pooled, cfg)
        panel |= {"verdict": verdict(pooled, cfg), "figures": [*figures(pooled, tables)]}
        panel["tables"] = beside(tables)
    except UserError as error:
        notices.append(str(error))
    return panel


def _panel(title: str, name: str, **parts: Any) -> Panel:
    empty: Panel = dict.fromkeys(("verdict", "scores", "made", "counts")) | {"figures": []}
    return empty | {"title": title, "name": name} | parts


def _categories(cohort: Cohort, cfg: AnalysisConfig, notices: list[str]) -> ByRubric:
    """Assign categories under common thresholds, if anybody did; `notices` gets why not."""
    folders = (m.run.path / part for m in cohort.members for part in ("signals", "categories"))
    if not (cohort.members and (cfg.rubric.names or any(path.is_dir() for path in folders))):
        return {}
    try:
        return cohort_rubrics.categories(cohort, cfg)
    except UserError as error:
        notices.append(f"no categories: {error}")
        return {}


def counts(cohort: Cohort, texts: bool = True) -> dict[str, Any]:
    """Count correct and graded attempts of each model and question, for the page's map.

    `correct` (of points: the sum of their scores) and `graded` are L lists of M numbers;
    `problems` have their beginnings, "" without `texts`; `models` have no side files yet.
    """
    rows = (of.run.questions[row] for of in cohort.members[:1] for row in of.rows)
    return {
        "name": cohort.dataset,
        "questions": cohort.question_ids,
        "problems": [(row["problem"] or "")[: LONGEST * texts] for row in rows],
        "correct": scoring.values(cohort.matrix()).filled(0).sum(axis=2).tolist(),
        "graded": (cohort.outcomes != PENDING).sum(axis=2).tolist(),
        "models": [{"name": name, "side": False, "note": None} for name in cohort.names],
    }


def verdict(cohort: Cohort, cfg: AnalysisConfig) -> list[str]:
    """Return the conclusion in a clause, and the rest: how sure it is, and what would settle it."""
    found = conclude(cohort, cfg)
    lead, _, rest = found.sentence().replace("`", "").rstrip(".").partition("; ")
    if len(found.models) == 1:
        interval = f"{found.low:.3f} to {found.high:.3f}"
        lead = f"One model: {lead.partition(' = ')[0]} = {found.score:.3f} ({interval})"
    elif not found.settled:
        tied = "Tied" if found.margin is not None else "Undecided"
        lead = f"{tied if found.candidates[1:] else 'Not settled'}: {lead}"
    more = next_attempts(cohort, cfg) if is_open(found._asdict()) else None
    names, lines = tuple(found.models), [lead, rest, more["sentence"] if more else ""]
    begun = [line if line.startswith(names) else line[:1].upper() + line[1:] for line in lines]
    return [f"{line}." for line in begun if line]


def leaderboard(board: Table, cfg: AnalysisConfig) -> dict[str, Any]:
    """Convert the leaderboard of a dataset to the first table of its panel, drawn as a forest."""
    value, sigma, low, high = HEADLINE
    trials = {row["trials"] for row in board.rows}
    interval = Column("interval", f"{percent(cfg.scoring.confidence)} interval", sigma=sigma)
    columns = {c.key: c for c in board.columns if c.key not in (low, high)} | {"interval": interval}
    first = ("model", "ranks", value, "interval", "avg", "best")
    columns = {key: columns[key] for key in first if key in columns} | columns
    three = {k: replace(c, sigma="", format="{:.3f}") for k, c in columns.items() if c.sigma}
    columns |= three
    if len(trials) == 1:
        head = columns[value].title.replace("@N", f"@{trials.pop()}")
        columns[value] = replace(columns[value], title=head)
    rows = [{**row, "interval": (row[low], row[high])} for row in board.rows]
    bars = [(row[low], row[value], row[high]) for row in rows]
    scores = replace(board, title="scores", columns=[*columns.values()], rows=rows)
    return table(scores, bars)


def beside(tables: Mapping[str, Table]) -> list[dict[str, Any]]:
    """Convert the tables that no other part of a panel shows."""
    return [table(one) for name, one in tables.items() if name != "leaderboard"]


def side_by_side(scores: Table) -> dict[str, Any]:
    """Convert scores on several datasets to the first table: each with ± and its range of ranks."""
    halves = {column.half for column in scores.columns}
    columns = [c for c in scores.columns if c.key not in halves]
    columns = [replace(c, sigma="", format="{:.3f}") if c.half else c for c in columns]
    for i, column in enumerate(columns):
        if column.key.endswith("_ranks"):
            columns[i] = replace(column, title="rank", wide=False)
    return table(replace(scores, title="scores", columns=columns))


def table(source: Table, bars: Sequence[tuple[float, float, float]] = ()) -> dict[str, Any]:
    """Convert a table for the template: cells as (text, sort key), and whether it is sorted.

    Tables of models are sorted by avg. `bars`, of the rows, are the ends and middles of intervals,
    drawn in a column behind names and ranks.
    """
    rows = source.rows
    cells = {c: [row.get(c.key) for row in rows] for c in tabular.rounded(source) if not c.wide}
    columns = [c for c, of in cells.items() if any(value is not None for value in of)]
    texts = {
        c.key for c in columns if c.align == "left" or any(isinstance(v, str) for v in cells[c])
    }
    keys = {column.key for column in columns}
    by = next((key for key in ("avg", "score", "mean", "_mean") if key in keys), "")
    order = [float(row[by]) for row in rows if row.get(by) is not None]
    is_sorted = len(order) == len(rows) and order == sorted(order, reverse=True)

    def cell(column: Column, row: Row) -> tuple[str, str]:
        text = tabular.formatted(column, row.get(column.key))
        half = tabular.formatted(column, row.get(column.half))
        return text + f" ±{half}" * bool(half), _sort_key(row.get(column.key))

    return {
        "title": source.title.partition(":")[0].capitalize(),
        "notes": [line for line in source.notes if not line.startswith("differs: ")],  # notices
        "columns": [
            {
                "title": f"{column.group} {column.title}".strip(),
                "kind": "text" if column.key in texts else "number",
                "sorted": column.key == by and is_sorted,
                "best": tabular.best_rows(source, column),
            }
            for column in columns
        ],
        "rows": [[cell(column, row) for column in columns] for row in rows],
        "forest": forest(bars, 1 + ("ranks" in keys)) if bars else None,
    }


def forest(bars: Sequence[tuple[float, float, float]], place: int) -> dict[str, Any]:
    """Place intervals and the ticks of their axis, in percent of its width; column `place`."""
    marks = ticks(np.min(bars), np.max(bars))
    low, high = marks[0], marks[-1]

    def at(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    placed = [[at(value) for value in bar] for bar in bars]
    return {"ticks": [(f"{mark:.3g}", at(mark)) for mark in marks], "bars": placed, "at": place}


def _sort_key(value: Any) -> str:
    """Return a cell as a text that JavaScript parses; "" if it has no value."""
    value = value[0] if isinstance(value, tuple) else value
    return "" if tabular.plain(value) is None else str(value).replace("inf", "Infinity")


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers for the ticks of an axis that ends with the first and the last.

    >>> ticks(0.296, 0.522)
    [0.2, 0.3, 0.4, 0.5, 0.6]
    """
    from matplotlib.ticker import MaxNLocator

    steps = MaxNLocator(4, steps=[1, 2, 5, 10])
    return [round(float(tick), 9) for tick in steps.tick_values(low, max(high, low + 1e-3))]


def figures(cohort: Cohort, tables: Mapping[str, Table]) -> Iterator[dict[str, Any]]:
    """Draw all figures for which there are data, each with `title`, `svg` and `caption`.

    They are a column wide, to fit on a phone. `tables` are those of the page.
    """
    with style.narrow():
        if not by_likelihood(cohort):  # which generates nothing
            yield from _costs(cohort, tables)
        calibrated = calibrate.pooled([member.run for member in cohort.members])
        if calibrated is not None:
            drawn = plots.reliability("", calibrated)
            many = f"{calibrated['attempts']:,} graded attempts"
            yield figure(drawn, f"The verifier's P(A) against the grader, {many} of all models.")


def _costs(cohort: Cohort, tables: Mapping[str, Table]) -> Iterator[dict[str, Any]]:
    """Draw scores by tokens and by price, lengths by correctness, and smaller token limits."""
    rows = tables["leaderboard"].rows
    value, _, *ends = HEADLINE
    names, score, low, high = ([row[key] for row in rows] for key in ("model", value, *ends))
    tokens = np.array([row.get("tokens_per_attempt") for row in rows], float)
    prices = np.array([row.get("price") for row in rows], float) / [row["attempts"] for row in rows]
    for cost, what in ((tokens, "completion tokens per attempt"), (prices, "price per attempt")):
        if np.isfinite(cost).any():
            drawn = plots.score_by_cost(names, cost, score, low, high, what)
            metric, _ = named({row["model"]: row["prior"] for row in rows})
            yield figure(drawn, f"{metric} with its interval by {what}.")
    good, bad = mean_lengths(cohort)
    if np.isfinite([*good, *bad]).any():
        share = scoring.values(cohort.matrix()).mean(axis=(1, 2))
        drawn = plots.tokens_against_correctness(cohort.names, good, bad, share)
        yield figure(drawn, "Mean completion tokens of correct and other attempts.")
    if "caps" in tables:
        # In the leaderboard's order, so that a model looks the same in all figures.
        of_caps = sorted(tables["caps"].rows, key=lambda row: names.index(row["model"]))
        drawn = plots.by_cap(of_caps)
        yield figure(drawn, "Scores of the same attempts under smaller limits.")


def mean_lengths(cohort: Cohort) -> Floats:
    """Return mean completion tokens of correct and other graded attempts, (2, L); NaN of none."""
    means = np.full((2, len(cohort.names)), np.nan)
    for i, member in enumerate(cohort.members):
        codes, tokens = cohort.outcomes[i], member.lengths(cohort.outcomes.shape[2]).tokens
        for row, chosen in zip(means, (codes == CORRECT, codes > CORRECT), strict=True):
            known = tokens[chosen & (tokens >= 0)]
            row[i] = known.mean() if known.size else np.nan
    return means


def figure(drawn: Any, caption: str) -> dict[str, Any]:
    """Convert a figure for the template, which prints its title as text."""
    title = " ".join(drawn.get_suptitle().split("\n"))
    drawn.suptitle("")
    return {"title": title, "svg": Markup(style.svg(drawn)), "caption": caption}


def made(*cohorts: Cohort) -> Panel | None:
    """Tabulate how each run was made; the `line` has what all share. None without run folders."""
    of_rows = dict[str, tuple[dict[str, Any], list[str]]]()
    for cohort in cohorts:
        for member in cohort.members:
            row = {"model": member.name, "datasets": None} | _settings(member.run)
            of_rows.setdefault(str(row), (row, []))[1].append(cohort.dataset)
    if not of_rows:
        return None
    several = len(cohorts) > 1
    rows = [row | {"datasets": ", ".join(of) if several else None} for row, of in of_rows.values()]
    keys = dict.fromkeys(key for row in rows for key, value in row.items() if value is not None)
    columns = [Column(key, key, align="left" if key in _PER_RUN else "right") for key in keys]
    return {"table": table(Table("How this was made", columns, rows)), "line": _line(rows)}


def _settings(run: Run) -> dict[str, Any]:
    """Return the settings that a run folder records and that are not defaults; None: unknown."""
    cfg, manifest = run.cfg, read_json(run.manifest)
    created, generated = manifest.get("created_with", {}), manifest.get("generated", {})
    engines = [engine for engine in generated.get("engines", []) if isinstance(engine, Mapping)]
    name, known = cfg.engine.name, sampling_known(run) is not False
    versions = sorted({str(e.get(name) or e.get("version") or "") for e in engines} - {""})
    settings = protocol(run) | {"engine.name": None, "prompt.name": cfg.prompt.name}
    ignored = _LONG + _OF_SAMPLES * bool(cfg.sampling.likelihood)
    sampled = {
        _TITLES.get(key, key.removeprefix("sampling.")): value
        for key, value in settings.items()
        if key not in ignored and known
    }
    grader = cfg.dataset.answer if cfg.dataset.judge is None else f"judge={cfg.dataset.judge}"
    if "imported" in outcomes.grades_made_by(run):
        grader = "the imported records"
    return {
        # Only the end of a path: the page may be published.
        "model id": "/".join(Path(cfg.model.id).parts[-2:]) if cfg.model.id else None,
        "revision": cfg.model.revision and cfg.model.revision[:12],
        "trials per question": None if cfg.sampling.likelihood else cfg.sampling.trials,
        **sampled,
        "engine": " ".join([name, *versions]) if known else None,
        "dtype": cfg.model.dtype if known else None,
        "graded by": grader,
        "verifier": None if cfg.verifier.id is None else cfg.verifier.name,
        "sampled": str(created.get("time") or "")[:10] or None,
        "bayes-at-n": created.get("commit"),
    }


def _line(rows: Sequence[Mapping[str, Any]]) -> str:
    """List the settings that all runs share, and name those that differ.

    >>> same = {"trials per question": 80, "temperature": 0.6, "engine": "vllm 0.32.0"}
    >>> _line([same, same | {"temperature": 1.0}])
    '80 trials per question, engine vllm 0.32.0; different: temperature'
    >>> _line([{"trials per question": 1}])
    '1 trial per question'
    """
    keys = [key for key in dict.fromkeys(k for row in rows for k in row) if key not in _PER_RUN]
    values = {k: {str(row[k]) for row in rows if row.get(k) is not None} for k in keys}
    same = {key: min(texts) for key, texts in values.items() if len(texts) == 1}
    parts = [f"{v} {key}" if key in _FIRST else f"{key} {v}" for key, v in same.items()]
    parts = [re.sub("^1 trials", "1 trial", part) for part in parts]
    other = [key for key, texts in values.items() if len(texts) > 1]
    return ", ".join(parts) + f"; different: {', '.join(other)}" * bool(other)
