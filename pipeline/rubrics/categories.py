"""Rubrics of a run: their YAML files, the categories they gave, and what those score.

`categories/NAME.parquet` holds a row per attempt and, in its own metadata, the rubric, the
thresholds and a hash of the signals it was made from; `categories/NAME.json` is the same for
people. A rubric is scored as Bayes@N with its weights, and each category's share as Bayes@N with
weight 1 for that category and 0 for all others.
"""

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import yaml  # type: ignore[import-untyped]
from rich import box
from rich.table import Table

import scoring
from pipeline.base.console import results, warn
from pipeline.base.errors import UserError
from pipeline.config import compose
from pipeline.config.settings import RunConfig
from pipeline.rubrics import rubric as rubric_of
from pipeline.rubrics import signals_table
from pipeline.rubrics.rubric import Rubric
from pipeline.store import rowkeys, runfolder, shards
from pipeline.store.runfolder import Run

CATEGORIES = pa.schema(
    [("question_id", pa.string()), ("trial", pa.int32()), ("category", pa.int8())]
)
FOLDER = compose.CONFIGS / "rubric"
_TOLD = b"rubric"
_DRAWN = "_drawn.json"  # what each picture shows, as a hash


class _OnceLoader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML in which a key that is there twice is an error, not the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key.value, str)]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise yaml.constructor.ConstructorError(
                None, None, f"key {twice} is there twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class Mapped:
    """The categories of a run's attempts under one rubric, and how they came about."""

    table: pa.Table
    told: dict[str, Any]


def load(cfg: RunConfig) -> dict[str, Rubric]:
    """The rubrics that a configuration names, or all of configs/rubric, with its weights.

    Raises:
        UserError: no such file, or a rubric that cannot be: naming file, key and remedy.
    """
    found: dict[str, Rubric] = {}
    for name in cfg.rubric.names or [path.stem for path in sorted(FOLDER.glob("*.yaml"))]:
        path = _find(name)
        if path.stem.startswith(("_", ".")):
            raise UserError(f"rubric={name}: a rubric's file must not begin with {path.stem[0]}")
        if path.stem in found:
            raise UserError(f"rubric {name}: there are two of the name {path.stem}; rename one")
        found[path.stem] = _read(path)
    for name, weights in cfg.rubric.weights.items():
        if name not in found:
            raise UserError(
                f"rubric.weights.{name}: no such rubric here; there are {', '.join(found)}"
            )
        try:
            found[name] = rubric_of.with_weights(found[name], weights)
        except ValueError as error:
            raise UserError(f"rubric.weights.{name}: {error}") from error
    return found


def save(run: Run, name: str, mapped: Mapped) -> None:
    """Replace the categories of one rubric.

    Raises:
        OSError: the disk is full, or may not be written.
    """
    folder = run.path / "categories"
    told = {_TOLD: json.dumps(mapped.told).encode()}
    table = mapped.table.cast(CATEGORIES).replace_schema_metadata(told)
    shards.write_part(folder / f"{name}.parquet", table, signals_table.ROWS_PER_GROUP)
    runfolder.write_json(folder / f"{name}.json", mapped.told)


def forget(run: Run, name: str) -> None:
    """Drop the categories of one rubric, which can be made no more."""
    for ending in ("parquet", "json", "png", "pdf"):
        (run.path / "categories" / f"{name}.{ending}").unlink(missing_ok=True)


def rubric_scores(run: Run) -> dict[str, Any]:
    """Scores of every rubric whose categories are current; a missing trial counts as nothing.

    Returns:
        Per rubric name: title, weights, attempts, `bayes` (mu, sigma, low, high), the thresholds,
        and `categories`: index, name, count, share and its mu, sigma, low, high. Empty, and with a
        warning where something is out of date, when `categorize` should run first.

    Source: arXiv 2510.04265, equations 1 and 15, and appendix D.
    """
    files = sorted((run.path / "categories").glob("[!._]*.parquet"))
    stored = {path.stem: _stored(path) for path in files}
    # Labels that were imported rest on no signals and no thresholds of ours.
    found = {
        name: _scores(run, one) for name, one in stored.items() if one and one.told.get("imported")
    }
    ours = {name: one for name, one in stored.items() if name not in found}
    if not ours:
        return found
    try:
        signals_table.current(run)
    except UserError as error:
        warn(f"{error}, then `categorize`; rubrics are left out")
        return found
    signals, limits = signals_table.identity(run), runfolder.read_json(run.path / "thresholds.json")
    old = []
    for name, mapped in ours.items():
        told = mapped.told if mapped else {}
        # Thresholds are never mixed: the latest are those of the run.
        if mapped and (told["signals"], told["thresholds"]) == (signals, limits):
            found[name] = _scores(run, mapped)
        else:
            old.append(name)
    if old:
        warn(f"categories of {', '.join(old)} are out of date and left out; run `categorize`")
    return found


def draw(run: Run, found: dict[str, Any]) -> list[Path]:
    """Save `categories/NAME.png` and `.pdf`, category shares, where what they show has changed.

    Args:
        run: the run folder.
        found: what :func:`rubric_scores` returned.

    Returns:
        The pictures that were made.
    """
    from pipeline.display import style
    from pipeline.plots import categories  # matplotlib takes half a second

    here, made, ids = run.path / "categories", [], rowkeys.question_ids(run).to_pylist()
    before = runfolder.read_json(here / _DRAWN)
    now: dict[str, str] = {}
    for name, one in found.items():
        mapped = _stored(here / f"{name}.parquet")
        if mapped is None:
            continue
        names = [f"{part['index']} {part['name'].replace('_', ' ')}" for part in one["categories"]]
        counts = _counts(run, mapped.table, len(names))
        title = f"{run.cfg.model.name} on {run.cfg.dataset.name}: {one['title']}"
        shown = [title, names, one["weights"], counts.tolist(), ids]
        now[name] = runfolder.short_hash(json.dumps(shown))
        if before.get(name) != now[name] or not (here / f"{name}.png").exists():
            drawn = categories.category_shares(title, names, counts, one["weights"], ids)
            style.save(drawn, here / name)
            made.append(here / f"{name}.png")
    if made:
        runfolder.write_json(here / _DRAWN, now)
    return made


def print_rubrics(found: dict[str, Any], confidence: float) -> None:
    """Show scores and shares of categories with their intervals."""
    if not found:
        return
    title = f"rubrics: Bayes@N and category shares, {confidence:.0%} intervals"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rubric", overflow="fold")
    for name in ("weight", "share", "μ", "σ", "interval"):
        table.add_column(name, justify="right")

    def row(name: str, weight: str, share: str, s: dict[str, Any], form: str) -> None:
        mu, sigma, low, high = (format(s[key], form) for key in ("mu", "sigma", "low", "high"))
        table.add_row(name, weight, share, mu, sigma, f"{low} to {high}")

    for one in found.values():
        table.add_section()
        ends = f"{min(one['weights']):g} to {max(one['weights']):g}"
        row(one["title"], ends, "", one["bayes"], ".4f")
        for part in one["categories"]:
            name = f" {part['index']} {part['name'].replace('_', ' ')}"
            row(name, f"{part['weight']:g}", f"{part['share']:.1%}", part, ".1%")
    results.print(table, soft_wrap=False)
    labels = {label for one in found.values() for label in one["labels"]}
    for label in sorted(labels):
        results.print(label)


def _scores(run: Run, mapped: Mapped) -> dict[str, Any]:
    told = mapped.told
    rows = told["categories"]
    weights = [row["weight"] for row in rows]
    counts = _counts(run, mapped.table, len(rows))
    total, every = counts.sum(axis=0), max(int(counts.sum()), 1)
    identity = np.eye(len(rows))
    return {
        "title": told["name"],
        "weights": weights,
        "attempts": int(counts.sum()),
        "bayes": _bayes(run, counts, weights),
        "categories": [
            {
                "index": row["index"],
                "name": row["name"],
                "weight": row["weight"],
                "count": int(total[i]),
                "share": int(total[i]) / every,
                **_bayes(run, counts, identity[i]),
            }
            for i, row in enumerate(rows)
        ],
        "labels": told["labels"],
        "thresholds": told["thresholds"],
    }


def _counts(run: Run, table: pa.Table, categories: int) -> npt.NDArray[np.int64]:
    """How often each question got each category, of the trials that are scored: (M, C + 1)."""
    ids = rowkeys.question_ids(run)
    keys = rowkeys.encode(table, ids)
    kept, (question, _) = rowkeys.cells(keys, run.cfg.sampling.trials)
    place = question * categories + table["category"].to_numpy()[kept]
    return np.bincount(place, minlength=len(ids) * categories).reshape(len(ids), categories)


def _bayes(run: Run, counts: Any, weights: Any) -> dict[str, float]:
    ends = (float(min(weights)), float(max(weights)))
    found = scoring.bayes_ci(
        scoring.Counts(counts),
        weights,
        confidence=run.cfg.scoring.confidence,
        bounds=ends if ends[0] < ends[1] else None,
    )
    return dict(zip(("mu", "sigma", "low", "high"), map(float, found), strict=True))


def _stored(path: Path) -> Mapped | None:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read()
        told = json.loads((table.schema.metadata or {})[_TOLD])
        return Mapped(table.cast(CATEGORIES), dict(told))
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        warn(f"{path}: unreadable ({shards.first_line(error)})")
        return None


def _find(name: str) -> Path:
    if name.endswith((".yaml", ".yml")) or "/" in name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise UserError(f"rubric={name}: no such file; name a YAML file that holds a rubric")
        return path
    path = FOLDER / f"{name}.yaml"
    if not path.is_file() and (beside := Path(f"{name}.yaml")).is_file():
        return beside
    if not path.is_file():
        known = sorted(p.stem for p in FOLDER.glob("*.yaml"))
        close = difflib.get_close_matches(name, known, n=2)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
        raise UserError(f"rubric={name}: no such rubric ({hint}; your own: rubric=FILE.yaml)")
    return path


def _read(path: Path) -> Rubric:
    try:
        return rubric_of.parse(yaml.load(path.read_text(encoding="utf-8"), _OnceLoader))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        why = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not YAML ({why}); see configs/rubric for examples") from error
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
