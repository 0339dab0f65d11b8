"""compare: the runs of one or several datasets side by side, in tables and in compare.json."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bayes_at_n.pipeline.base.console import mode, note, paragraph, percent, plural, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.compare import (
    caps,
    categories,
    changes,
    differences,
    leaderboard,
    pairwise,
)
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare import rubrics as cohort_rubrics
from bayes_at_n.pipeline.compare import several as several_of
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.conclusion import conclude, is_open, next_attempts
from bayes_at_n.pipeline.compare.rankings import by_method
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.score import by_category, labels, likelihood
from bayes_at_n.pipeline.score.headline import named, stopped_lines
from bayes_at_n.pipeline.store import selection
from bayes_at_n.scoring.metrics import DEFAULT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DRAWN = 60  # models that a picture has room for
_POOLED = "_pooled"  # no folder of a dataset: what begins with "_" holds no runs


def compare(cfg: AnalysisConfig) -> None:
    """Compare runs: print tables, and write them with `compare.json` into a folder.

    Two folders with runs of the same models are compared pair by pair (`changes`). The folder of
    results is of these runs. Raises UserError: nothing that can
    be compared. OSError: a file cannot be written.
    """
    if pairs := changes.paired(cfg):
        return changes.compare(cfg, pairs)
    cohorts = cohorts_of.load(cfg, gold=True)
    settings = {"scoring": asdict(cfg.scoring), "thresholds": asdict(cfg.thresholds)}
    record: dict[str, Any] = {"settings": settings, "datasets": [], "pooled": None}
    tables, several = dict[str, Table](), len(cohorts) > 1
    of_cohorts = [_tables(cohort, cfg) for cohort in cohorts]
    for cohort, of_cohort in zip(cohorts, of_cohorts, strict=True):
        folder = f"{cohort.dataset}/" if several else ""
        tables |= {f"{folder}{stem}": table for stem, table in of_cohort.items()}
        record["datasets"].append(_record(cohort, cfg, of_cohort))
    if graded := [cohort for cohort in cohorts if cohort.names] if several else []:
        try:
            stack = cohorts_of.pooled(graded)
        except UserError as error:
            warn(str(error))
        else:
            of_stack = _tables(stack, cfg)
            tables |= {f"{_POOLED}/{stem}": table for stem, table in of_stack.items()}
            record["pooled"] = _record(stack, cfg, of_stack)
        tables["scores"] = several_of.scores(graded, cfg)
        record["scores"] = [dict(row) for row in tables["scores"].rows]
    _show(tables, record, cfg)
    figures: dict[str, Figure] = {}
    for cohort, of_cohort in zip(cohorts, of_cohorts, strict=True):
        folder = f"{cohort.dataset}/" if several else ""
        drawn = figures_of(cohort, cfg, of_cohort)
        figures |= {f"{folder}{stem}": figure for stem, figure in drawn.items()}
    out = selection.results_folder(cfg, "compare", cohorts_of.first_runs(cohorts))
    written = selection.write_results(out, "compare", record, tables, figures)
    display.print_json(record)
    note(
        f"saved {plural(len(tables), 'table')} and {plural(len(figures), 'figure')} in"
        f" {written[-1].parent} (-v prints them in full); to browse every attempt: {PROGRAM} report"
        " with the same settings"
    )


def _show(tables: dict[str, Table], record: dict[str, Any], cfg: AnalysisConfig) -> None:
    """Print tables, in full with -v, and sentences."""
    several = len(record["datasets"]) > 1
    if mode("verbose"):
        display.show(*(table for stem, table in tables.items() if not stem.endswith("pairs")))
    else:
        requested = ("ranking_methods", "caps", "people", "likelihood")  # by their own settings
        chosen = [t for stem, t in tables.items() if stem.rpartition("/")[2] in requested]
        if "categories" in tables:
            chosen.append(by_category.cut(tables["categories"]))
        if "scores" in tables or "leaderboard" in tables:
            chosen.insert(0, tables["scores"] if several else brief(tables, cfg))
        display.show(*chosen)
    whole = record["pooled"] if several else record["datasets"][0]
    if whole and "verdict" in whole:
        paragraph(whole["verdict"]["sentence"])
        if (more := whole["next_attempts"]) and is_open(whole["verdict"]):
            paragraph(more["sentence"])


def brief(tables: dict[str, Table], cfg: AnalysisConfig) -> Table:
    """Cut the leaderboard to a terminal: score, interval, chance to be the best, length."""
    board = tables["leaderboard"]
    score, sigma, low, high = leaderboard.HEADLINE
    trials = {row["trials"] for row in board.rows}
    priors = {row["model"]: row["prior"] for row in board.rows}
    head, prior = named(priors, trials.pop() if len(trials) == 1 else "N")
    rows = [{**row, "interval": (row[low], row[high])} for row in board.rows]
    chosen = leaderboard.others(cfg) if cfg.scoring.metrics != [*DEFAULT] else []
    columns = [
        Column("model", "model", align="left"),
        Column("ranks", "rank"),
        Column(score, head, sigma=sigma),
        Column(sigma, "σ", sigma=sigma, minor=3),
        Column("interval", f"{percent(cfg.scoring.confidence)} interval", sigma=sigma),
        *[Column("avg", "avg", sigma="avg_sigma", minor=2)] * (not head.startswith("avg")),
        Column("best", "P(best)", format=display.CHANCE, group="pooled"),
        *(Column(m.key, m.title(), sigma=f"{m.key}_sigma") for m in chosen),
        Column("tokens_per_attempt", "each", format="{:,.0f}", group="tokens", minor=1),
        Column("price", "price", format="{:,.2f}"),
    ]
    known = [c for c in columns if any(row.get(c.key) is not None for row in rows)]
    notes = [line for line in board.notes if line.startswith("differs: ")]
    notes += tables["metrics"].notes[1:] if chosen else ()
    return Table(f"{board.title}: {head}{prior}", known, rows, notes)


def figures_of(
    cohort: Cohort, cfg: AnalysisConfig, tables: dict[str, Table]
) -> dict[str, "Figure"]:
    """Draw the leaderboard as a forest plot, and curves by cap."""
    from bayes_at_n.pipeline.plots import caps as curves  # matplotlib takes half a second
    from bayes_at_n.pipeline.plots import leaderboard as plots

    if (board := tables.get("leaderboard")) is None:
        return {}
    score, _, *ends = leaderboard.HEADLINE
    keys = ("model", score, *ends, "ranks", "candidate")
    columns: list[list[Any]] = [[row.get(key) for row in board.rows[:_DRAWN]] for key in keys]
    names, value, low, high, *rank = columns
    ranks = [*zip(*rank, strict=True)] if len(names) > 1 else None
    size = f"{len(cohort.question_ids)} questions, {cohort.outcomes.shape[2]} trials"
    metric, _ = named({row["model"]: row["prior"] for row in board.rows})
    best = f", the best {_DRAWN} of {len(cohort.names)} models" * (len(cohort.names) > _DRAWN)
    title = f"{metric} on {cohort.dataset}, {size}{best}"
    axis = f"{metric}, {percent(cfg.scoring.confidence)} interval"
    drawn = {"forest": plots.forest(names, value, low, high, ranks, title, axis)}
    if "caps" in tables:
        drawn["caps"] = curves.by_cap(tables["caps"].rows, f"token limits on {cohort.dataset}")
    return drawn


def tables_of(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, Table]:
    """Make the tables of one dataset but for its rubrics, by the stem of their files.

    Raises UserError: a question that some model has no graded trial of.
    """
    of_options = {member.name: member.run for member in cohort.members}
    scored = likelihood.of_runs(of_options | cohort.gold)
    by_likelihood = {} if scored is None else {"likelihood": scored}
    if not cohort.names:
        return by_likelihood
    board = leaderboard.leaderboard(cohort, cfg)
    tables = {"leaderboard": board} | by_likelihood
    if (chosen := leaderboard.metrics(board, cfg)) is not None:
        tables["metrics"] = chosen
    tables["attempts"] = leaderboard.attempts(board)
    if len(cohort.names) > 1:
        tables["neighbors"] = pairwise.neighbors(cohort, cfg)
        if (of_all := pairwise.pairs(cohort, cfg)) is not None:
            tables["pairs"] = of_all
        if cfg.ranking.methods:
            tables["ranking_methods"] = by_method(cohort, cfg, tables)
    tables |= categories.tables(cohort, cfg)
    runs = ((member.name, member.run) for member in cohort.members)
    if (corrected := labels.table(runs)) is not None:
        tables["people"] = corrected
    return tables | (caps.tables(cohort, cfg) if cfg.scoring.caps else {})


def _tables(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, Table]:
    tables = tables_of(cohort, cfg)
    if any((member.run.path / "categories").is_dir() for member in cohort.members):
        try:
            tables["rubrics"] = cohort_rubrics.scores(cohort, cfg)
        except UserError as error:
            if cfg.rubric.names:
                raise
            warn(f"{cohort.dataset}: rubrics left out: {error}")
    level = cfg.scoring.confidence
    for line in stopped_lines(cohort.stopped(level), level):
        warn(f"{cohort.dataset}: {line}")
    return tables


def _record(cohort: Cohort, cfg: AnalysisConfig, tables: dict[str, Table]) -> dict[str, Any]:
    """Record all that was computed of a dataset, as docs/compare.md describes it."""
    # The other tables are columns of the leaderboard.
    keys = {"leaderboard": "models"}
    keys |= {stem: stem for stem in tables if stem not in (*keys, "metrics", "attempts")}
    if not cohort.names:
        return {"dataset": cohort.dataset} | {stem: of.rows for stem, of in tables.items()}
    return {
        "dataset": cohort.dataset,
        "question_ids": cohort.question_ids,
        "clusters": len({*cohort.clusters}),
        "trials": cohort.outcomes.shape[2],
        "differences": cohort.differences,
        "stopped": cohort.stopped(cfg.scoring.confidence),
        "protocols": {member.name: differences.protocol(member.run) for member in cohort.members},
        **{key: tables[stem].rows for stem, key in keys.items() if stem in tables},
        "verdict": {
            **(concluded := conclude(cohort, cfg))._asdict(),
            "sentence": concluded.sentence(),
        },
        "next_attempts": next_attempts(cohort, cfg),
        "notes": {stem: table.notes for stem, table in tables.items()},
    }
