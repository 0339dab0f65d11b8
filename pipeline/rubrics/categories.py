"""Rubrics of a run: their YAML files, the categories they gave, and what those score.

`categories/NAME.parquet` holds a row per attempt and, in its own metadata, what it was made from.
A rubric is scored as Bayes@N with its weights, the share of a category with weight 1 for it alone.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import yaml  # type: ignore[import-untyped]

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import Column, Table, decimals, show
from bayes_at_n.pipeline.rubrics import rubric as rubric_of
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.rubrics.rubric import Rubric
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.table import Summary
from bayes_at_n.scoring.numerics.inputs import Ints

CATEGORIES = pa.schema(
    [("question_id", pa.string()), ("trial", pa.int32()), ("category", pa.int8())]
)
FOLDER = compose.CONFIGS / "rubric"
THRESHOLDS = "thresholds.json"  # in a run folder: those of its categories
_RECORD = b"rubric"


class Recorded(NamedTuple):
    """The categories of one rubric, and what they were made from."""

    table: pa.Table
    record: dict[str, Any]


def load(cfg: RunConfig) -> dict[str, Rubric]:
    """Return the rubrics that a configuration names, or all of configs/rubric, with its weights.

    Raises UserError: no such file, two of one name, or a rubric that cannot be.
    """
    rubrics = dict[str, Rubric]()
    for name in cfg.rubric.names or [path.stem for path in sorted(FOLDER.glob("*.yaml"))]:
        ours = compose.files("rubric").get(name, FOLDER / f"{name}.yaml")
        places = [ours, Path(f"{name}.yaml")]  # of a group, or beside the user
        if name.endswith((".yaml", ".yml")) or "/" in name:
            places = [Path(name).expanduser()]
        path = next(filter(Path.is_file, places), None)
        if path is None:
            raise compose.no_choice("rubric", name)
        if path.stem in rubrics:
            raise UserError(f"rubric {name}: there are two of the name {path.stem}; rename one")
        # What is not UTF-8 becomes surrogates, which YAML refuses.
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        rubrics[path.stem] = _parsed(str(path), text)
    for name, weights in cfg.rubric.weights.items():
        if name not in rubrics:
            raise UserError(f"rubric.weights.{name}: none of the rubrics {', '.join(rubrics)}")
        try:
            rubrics[name] = rubric_of.with_weights(rubrics[name], weights)
        except ValueError as error:
            raise UserError(f"rubric.weights.{name}: {error}") from error
    return rubrics


@functools.lru_cache(maxsize=64)  # all of a cohort's runs, and several pages, ask for the same
def _parsed(path: str, text: str) -> Rubric:
    try:
        return rubric_of.parse(yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UserError(f"{path}: no rubric: {one_line(error)}") from error


def save(run: Run, name: str, mapped: Recorded) -> None:
    """Replace the categories of one rubric."""
    path = run.path / "categories" / f"{name}.parquet"
    columns = CATEGORIES.with_metadata({_RECORD: json.dumps(mapped.record)})
    parquet.write_part(path, mapped.table.cast(columns), 1 << 16)


def current(run: Run) -> dict[str, Recorded]:
    """Return the categories of every rubric that are current; a warning names those out of date."""
    stored = _stored(run)
    made_from = signals.made_from(run)
    limits = runfolder.read_json(run.path / THRESHOLDS).items()
    usable = {
        name: m
        for name, m in stored.items()
        if m.record.get("imported")  # which rest on no signals and no thresholds
        or (m.record.get("made_from") == made_from and m.record["thresholds"].items() <= limits)
    }
    if old := [name for name in stored if name not in usable]:
        warn(f"categories of {', '.join(old)} are out of date and left out; run `categorize`")
    return usable


def stale(run: Run) -> dict[Path, str]:
    """Return the files of categories that are out of date."""
    files = (run.path / "categories").glob("[!._]*.parquet")
    usable = current(run)
    return {path: "signals or thresholds" for path in files if path.stem not in usable}


def imported(run: Run) -> dict[str, Recorded]:
    """The labels that came with imported records, as categories by the name of their rubric."""
    return {name: m for name, m in _stored(run).items() if m.record.get("imported")}


def _stored(run: Run) -> dict[str, Recorded]:
    """The categories of all rubrics; a file that cannot be read counts as out of date."""
    stored = dict[str, Recorded]()
    for path in sorted((run.path / "categories").glob("[!._]*.parquet")):
        stored[path.stem] = Recorded(CATEGORIES.empty_table(), {})
        try:
            with parquet.opened(path) as file:
                table = parquet.sound(file.read(), CATEGORIES)
                record = json.loads((file.schema_arrow.metadata or {})[_RECORD])
                stored[path.stem] = Recorded(table, dict(record))
        except (*parquet.DAMAGE, UserError) as error:
            warn(f"{path}: unreadable ({one_line(error)})")
    return stored


def rubric_scores(
    run: Run,
    mapped: Mapping[str, Recorded],
    priors: Mapping[str, scoring.Counts | None] | None = None,
) -> dict[str, Any]:
    """Score rubrics (what :func:`current` returns); a missing trial counts as nothing.

    `priors`: R0 by the name of the rubric. Returns by that name what `scores.json` says of it.
    Source: arXiv 2510.04265, equations 1 and 15, Algorithm 1, and appendix D.
    """
    return {name: _scores(run, of, (priors or {}).get(name)) for name, of in mapped.items()}


def _scores(run: Run, mapped: Recorded, R0: scoring.Counts | None) -> dict[str, Any]:
    record, rows = mapped.record, mapped.record["categories"]
    weights = [row["weight"] for row in rows]
    of_questions = _counts(run, mapped)
    total, attempts = of_questions.sum(axis=0).tolist(), int(of_questions.sum())

    def scored(of: Any, prior: scoring.Counts | None = None) -> dict[str, float]:
        score = bayes(of_questions, of, run.cfg.scoring.confidence, prior)
        return dict(zip(("mu", "sigma", "low", "high"), map(float, score), strict=True))

    return {
        "title": record["name"],
        "weights": weights,
        "attempts": attempts,
        "bayes": scored(weights),
        **({} if R0 is None else {"with_prior": scored(weights, R0)}),
        "categories": [
            {
                **{key: row[key] for key in ("index", "name", "weight")},
                "count": number,
                "share": number / max(attempts, 1),
                **scored(one_hot),
            }
            for row, number, one_hot in zip(rows, total, np.eye(len(rows)), strict=True)
        ],
        "labels": record["labels"],
        "thresholds": record["thresholds"],
    }


def bayes(
    counted: Ints, weights: Any, confidence: float, R0: scoring.Counts | None = None
) -> Summary:
    """Return Bayes@N of counts (..., M, C + 1), its interval within the range of the weights."""
    low, high = float(min(weights)), float(max(weights))
    bounds = (low, high) if low < high else None
    return Summary(*scoring.bayes_ci(scoring.Counts(counted), weights, R0, confidence, bounds))


def counts(codes: Any, kinds: int) -> Ints:
    """Count each category: codes (..., M, N), -1 for none, become (..., M, C + 1).

    >>> counts(np.array([[0, 2, 2, -1], [1, 1, -1, -1]]), 3).tolist()
    [[1, 0, 2], [0, 2, 0]]
    """
    return np.stack([(codes == kind).sum(axis=-1) for kind in range(kinds)], axis=-1)


def _counts(run: Run, mapped: Recorded) -> Ints:
    """Count the categories of the trials that are scored: (M, C + 1)."""
    ids, categories = rowkeys.question_ids(run), mapped.table["category"].to_numpy()
    shape = len(ids), run.cfg.sampling.trials
    codes = rowkeys.placed(mapped.table, ids, categories, shape, -1)
    return counts(codes, len(mapped.record["categories"]))


def draw(run: Run, mapped: Mapping[str, Recorded]) -> list[Path]:
    """With `plots=true`, draw `categories/NAME.png` and `.pdf` of what :func:`current` returns."""
    if not run.cfg.scoring.plots:
        return []
    from bayes_at_n.pipeline.display import style
    from bayes_at_n.pipeline.plots.bars import category_shares  # matplotlib takes half a second

    ids = rowkeys.question_ids(run).to_pylist()
    for name, categories in mapped.items():
        rows = categories.record["categories"]
        names, weights = [_label(row) for row in rows], [row["weight"] for row in rows]
        title = f"{run.cfg.model.name} on {run.cfg.dataset.name}: {categories.record['name']}"
        picture = category_shares(title, names, _counts(run, categories), weights, ids)
        style.save(picture, run.path / "categories" / name)
    return [run.path / "categories" / f"{name}.png" for name in mapped]


def basis(limits: Mapping[str, Any]) -> str:
    """Return what thresholds were computed from, and when."""
    if limits.get("frozen"):
        return f"frozen in {limits['frozen']}"
    kinds = "" if limits.get("include_invalid") else ", valid ones"
    runs = len(limits.get("runs", ()))
    whose = "this run alone" if runs == 1 else f"{runs} runs of the data set"
    return f"{whose}, {limits.get('attempts')} attempts{kinds}, of {limits['made']}"


def print_rubrics(run: Run, scores: dict[str, Any]) -> None:
    """Show what :func:`rubric_scores` returned, and whose thresholds those are."""
    rows: list[dict[str, Any]] = []
    sigmas = [part["sigma"] for rubric in scores.values() for part in rubric["categories"]]
    form = f".{max(0, decimals(sigmas) - 2)}%"
    for rubric in scores.values():
        ends = f"{min(rubric['weights']):g} to {max(rubric['weights']):g}"
        title = rubric["title"] + " *" * any(label[0] == "*" for label in rubric["labels"])
        rows.append({"rubric": title, "weight": ends, **_shown(rubric["bayes"])})
        if with_prior := rubric.get("with_prior"):
            rows.append({"rubric": "  with the prior", **_shown(with_prior)})
        for part in rubric["categories"]:
            cells = {"rubric": f"- {_label(part)}", "share": f"{part['share']:.1%}"}
            rows.append({**cells, "weight": part["weight"], **_shown(part, form)})
    columns = [
        Column("rubric", "rubric", align="left"),
        Column("weight", "weight", format="{:g}"),
        *(Column(key, key) for key in ("share", "μ", "σ", "interval")),
    ]
    labels = sorted({label for rubric in scores.values() for label in rubric["labels"]})
    title = f"rubrics: Bayes@N and category shares, {run.cfg.scoring.confidence:.0%} intervals"
    if limits := runfolder.read_json(run.path / THRESHOLDS):
        labels.append(f"thresholds: {basis(limits)}")
    if rows:
        show(Table(title, columns, rows, labels))


def _label(category: Mapping[str, Any]) -> str:
    return f"{category['index']} {category['name'].replace('_', ' ')}"


def _shown(score: Mapping[str, float], form: str = "") -> dict[str, str]:
    form = form or f".{decimals([score['sigma']])}f"
    mu, sigma, low, high = (format(score[key], form) for key in ("mu", "sigma", "low", "high"))
    return {"μ": mu, "σ": sigma, "interval": f"{low} to {high}"}
