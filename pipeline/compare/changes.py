"""compare OLD NEW: two folders of runs of the same models, and what changed beyond chance."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import joined, mode, note, paragraph, percent, plural, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare import differences
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.leaderboard import scores
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.store import selection

_NAMED = 5  # changes that the sentence names


def paired(cfg: AnalysisConfig) -> dict[tuple[str, str], list[Path]]:
    """Match the runs in two folders by dataset and name: old and new run by (dataset, model).

    Empty unless there are two folders, neither a run itself, with such a pair. Raises UserError:
    `dataset=` or `model=` selects none of them.
    """
    paths = [Path(folder).expanduser() for folder in cfg.folders]
    if len(paths) != 2 or any(selection.is_run(path) or not path.is_dir() for path in paths):
        return {}
    old, new = ({(run.parent.name, run.name): run for run in selection.runs_in(p)} for p in paths)
    if (old.keys() & new.keys()) and (alone := sorted(old.keys() ^ new.keys())):
        warn(f"in one of the two folders only: {joined(map('/'.join, alone), _NAMED)}")
    pairs = {key: [old[key], new[key]] for key in old if key in new}
    chosen = (cfg.dataset, cfg.model)
    found = {
        key: pair
        for key, pair in pairs.items()
        if all(not names or of in names for of, names in zip(key, chosen, strict=True))
    }
    if pairs and not found:
        raise UserError(f"{joined(cfg.dataset + cfg.model)}: no such runs in both folders")
    return found


def compare(cfg: AnalysisConfig, pairs: dict[tuple[str, str], list[Path]]) -> None:
    """Print and save what changed between two runs of each model on each dataset.

    Raises UserError: no pair can be compared. OSError: a file cannot be written.
    """
    both = dict[tuple[str, str], Cohort]()
    for key, folders in pairs.items():
        try:
            found = cohorts.of_runs(key[0], dict.fromkeys(folders), True)
        except UserError as error:
            warn(f"{'/'.join(key)}: left out: {error}")
        else:
            if len(found.names) == 2:
                both[key] = found
    if not both:
        raise UserError(f"{' '.join(cfg.folders)}: no two graded runs of one model and dataset")
    table, sentence = tabulated(both, cfg)
    out = Path(cfg.out or f"{cfg.folders[1]}/_changes").expanduser()
    record: dict[str, Any] = {"folders": cfg.folders, "sentence": sentence}
    record |= {"changes": table.rows, "notes": table.notes}
    written = selection.write_results(out, "changes", record, {"changes": table})
    shown = table.rows if mode("verbose") else [row for row in table.rows if row["changed"]]
    display.show(Table(table.title, table.columns, shown, table.notes))
    paragraph(sentence)
    display.print_json(record)
    note(f"all {plural(len(table.rows), 'pair')}: {written[0]} (or -v)")


def tabulated(both: dict[tuple[str, str], Cohort], cfg: AnalysisConfig) -> tuple[Table, str]:
    """Tabulate the change of each pair of runs, and say in a sentence which are beyond chance.

    z divides a difference of averages by the paper's sigma of both runs. Where attempts of a trial
    share luck that sigma is too small, and a run shows it only roughly, so the variance of trials
    is multiplied by the mean inflation of all rows that show theirs, or a row's own where that is
    sure. Where both runs have human labels, averages are corrected.
    (With inflation 1.6, 80 equal pairs of 16 trials gave a false change in 33% of simulated nights
    without that, in 3% with it.) q-values are by Benjamini and Hochberg, rows in their order.
    """
    level, rows = cfg.scoring.confidence, list[Any]()
    for found in both.values():
        of, luck = scores(found, cfg), scoring.inflation(*found.matrix())
        own = (*of.avg.value, np.hypot(*of.avg.sigma), np.hypot(*of.of_trials))
        rows.append((*own, luck.value, luck.p, np.isfinite(luck.high)))
    old, new, sigma, of_trials, value, p, known = np.array(rows).T
    mean = max(1.0, (value * known).sum() / max(known.sum(), 1))
    inflation = np.where(p < scoring.INFLATION_LEVEL, np.maximum(value, mean), mean)
    sigma = np.sqrt(sigma**2 + (inflation - 1) * of_trials**2)
    z, reach = (new - old) / sigma, float(scipy.special.ndtri((1 + level) / 2)) * sigma
    q = scoring.q_values(2 * scipy.special.ndtr(-np.abs(z)))
    order, changed = np.argsort(q, kind="stable"), q <= 1 - level
    columns: dict[Column, Any] = {
        Column("model", "model", align="left"): np.array([model for _, model in both]),
        Column("dataset", "dataset", align="left"): np.array([name for name, _ in both]),
        Column("old", "old", None, "{:.3f}"): old,
        Column("new", "new", None, "{:.3f}"): new,
        Column("difference", "change", None, "{:+.3f}"): new - old,
        Column("low", "low", None, "{:+.3f}"): new - old - reach,
        Column("high", "high", None, "{:+.3f}"): new - old + reach,
        Column("sigma", "σ", wide=True): sigma,
        Column("inflation", "variance inflation", wide=True): inflation,
        Column("q", "q", "$q$", display.CHANCE): q,
        Column("changed", "changed", wide=True): changed,
    }
    unlike = Counter[str]()
    for found in both.values():
        old_new = zip(("old", "new"), (member.run for member in found.members), strict=True)
        unlike.update(differences.lines(dict(old_new), found.outcomes))
    by_people = sum("labels" in scores(found, cfg).prior for found in both.values())
    of_labels = f", corrected by human labels in {by_people} of these pairs" * bool(by_people)
    notes = [
        f"old, new: avg@N{of_labels}; low, high: {percent(level)} interval of each change by"
        f" itself; q: p-value adjusted for all {len(q)} pairs (Benjamini and Hochberg)",
        *(f"{plural(count, 'pair')}: {line}" for line, count in unlike.items()),
    ]
    names = [f"{model} on {name} ({'better' if up else 'worse'})"
             for (name, model), up in zip(both, new > old, strict=True)]  # fmt: skip
    rate = f"at most {percent(1 - level)} of such findings are expected to be chance"
    which = joined([names[i] for i in order if changed[i]], _NAMED)
    sentence = f"changed beyond chance: {which}; {rate}"
    if not which:
        sentence = f"nothing changed beyond chance: {plural(len(q), 'pair')}, least q {q.min():.2f}"
    ordered = {column: np.asarray(of)[order] for column, of in columns.items()}
    return of_columns("changes beyond chance", ordered, notes), sentence
