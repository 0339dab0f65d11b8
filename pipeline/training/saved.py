"""Read the finished runs of a trajectory; save and print its tables, figures and page."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bayes_at_n.pipeline.base.console import note, results
from bayes_at_n.pipeline.config.multirun import Request, TrajectoryConfig
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.store import selection
from bayes_at_n.pipeline.training import cells, tracks
from bayes_at_n.pipeline.training.cells import Rows, grouped, varies, where
from bayes_at_n.pipeline.training.protocols import AVG
from bayes_at_n.pipeline.training.tracks import Track
from bayes_at_n.pipeline.training.windows import Series

_PRINTED = ("protocols", "merge", "passk")  # after stability
_EQUAL = 1e-9  # taus of equal orders may differ by rounding
_NAMED = 4  # protocols in a line


def read(planned: Series, request: Request[TrajectoryConfig]) -> list[Track]:
    """Read the tracks of finished runs, of a suite by benchmark."""
    curves = tracks.read(planned)
    return tracks.combined(curves) if request.cfg.suite else curves


def show(tables: Mapping[str, Table], cfg: TrajectoryConfig) -> None:
    """Print the main tables and the summary."""
    from bayes_at_n.pipeline.training import forms, stability

    if "stability" not in tables:  # fewer than two steps
        return
    rows = tables["stability"].rows
    shared = forms.stability(rows, cfg, stability.COMMON)
    main = [tables[stem] for stem in _PRINTED if stem in tables]
    tabular.show(*([] if cfg.suite else [shared]), *main)  # a suite has its own tables
    results.print("\n" + "\n".join(summary(rows)))


def save(
    tracks: Sequence[Track],
    request: Request[TrajectoryConfig],
    planned: Series,
    warnings: Sequence[str] = (),
    points: Mapping[str, Table] = {},
    refresh: float = 0,
) -> dict[str, Table]:
    """Save tables, figures, `trajectory.json` and the page of tracks; return the tables.

    `points`: further tables; `refresh`: seconds after which a browser reads the page again, 0:
    never. Raises OSError: the folder cannot be written.
    """
    from bayes_at_n.pipeline.training import drawing  # matplotlib is slow

    cfg = request.cfg
    tables = {**points, **analyze(tracks, cfg)}
    rows = {stem: table.rows for stem, table in tables.items()}
    tables = {stem: table for stem, table in tables.items() if table.rows}
    lines = summary(rows["stability"])
    figures = {
        selection.file_stem(name): figure for name, figure in drawing.draw(rows, cfg).items()
    }
    record = {
        "label": planned.label,
        "command": ["python", "-m", "pipeline", *sys.argv[1:]],
        "settings": {**asdict(cfg), "run": request.models[0], "datasets": request.datasets},
        "runs": [
            {
                "run": str(evaluation.run.path),
                "dataset": evaluation.dataset,
                "training": evaluation.window.training,
                "window": evaluation.window.size,
                "step": evaluation.window.step,
                "kind": evaluation.kind,
                "sources": [str(path) for path in evaluation.window.sources],
            }
            for evaluation in planned.evaluations
        ],
        "summary": lines,
        "warnings": list(warnings),
        "tables": rows,
        "notes": {stem: list(table.notes) for stem, table in tables.items()},
    }
    title, about = f"Trajectory of {planned.label}", [*lines, *warnings]
    text = cells.page(title, about, figures, tables, ("curve", "ahead"), refresh)
    selection.write_results(
        planned.out, "trajectory", record, tables, figures, {"index.html": text}
    )
    if not refresh:
        tabular.print_json(record)
        note(f"saved {planned.out}: index.html, trajectory.json, its tables and figures")
    return tables


def analyze(tracks: Sequence[Track], cfg: TrajectoryConfig) -> dict[str, Table]:
    """Return all tables of tracks, by the stem of their files; some may have no rows."""
    from bayes_at_n.pipeline.training import forms, stability

    rows = stability.judge(tracks, cfg)
    return {
        "stability": forms.stability(rows["stability"], cfg),
        **(forms.of_suite if cfg.suite else forms.of_map)(rows["stability"]),
        "samples": forms.samples(rows["samples"], cfg),
        "ahead": forms.ahead(stability.ahead(tracks, cfg), cfg),
        "curve": forms.curve(stability.curve(tracks, cfg), cfg),
    }


def summary(rows: Rows) -> list[str]:
    """Name the protocols with the highest τ in rows of `stability`, by training run and dataset."""
    common = where(rows, steps="common")
    heads = [key for key in ("training", "dataset") if varies(common, key)]
    lines: list[str] = []
    for _, group in grouped(common, "training", "dataset").items():
        head = ", ".join(group[0][key] for key in heads)
        most = max(row["tau"] for row in group)
        best = [
            row["protocol"]
            for row in group
            if row["tau"] > most - _EQUAL and (row["metric"] == AVG or not row["twin"])
        ]
        more = f" and {len(best) - _NAMED} more" if len(best) > _NAMED else ""
        plain = where(group, window=1, metric=AVG)[0]
        other = f"; {plain['protocol']} has {plain['tau']:.3f}" * (plain["protocol"] not in best)
        lines.append(
            f"{head}{': ' * bool(head)}highest τ over the {plain['n']} steps that all windows"
            f" share: {most:.3f} ({'; '.join(best[:_NAMED])}{more}){other}"
        )
    return lines
