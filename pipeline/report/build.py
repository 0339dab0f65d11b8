"""report: one HTML file that a reader can explore, and the attempts beside it.

`index.html` holds everything but the attempts: styles, scripts, tables, figures. It asks no network
and runs under a policy that allows the scripts written here and nothing else. What models and
foreign files wrote goes through Jinja2's escaping, or as JSON, and is shown as text.
"""

import base64
import hashlib
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pipeline.base import atomic
from pipeline.base.console import Meter, clock, note, results
from pipeline.base.errors import UserError
from pipeline.cohorts import cohort as cohorts_of
from pipeline.cohorts import leaderboard
from pipeline.cohorts.cohort import Cohort, Member
from pipeline.cohorts.compare import rankings
from pipeline.config.analysis import AnalysisConfig
from pipeline.display.table import Table
from pipeline.report import attempts, categories, data, figures, texts
from pipeline.report.attempts import Categories
from pipeline.report.names import bdi, shown, visible

FOLDER = Path(__file__).parent
SCRIPTS = ("report.js", "map.js", "reader.js", "attempt.js", "tokens.js", "start.js")
_STAMP = re.compile(r"\d{8}T\d{6}")


def report(cfg: AnalysisConfig) -> None:
    """Write the report of the data sets and models that settings name.

    Raises:
        UserError: no runs, nothing graded.
        OSError: a folder that cannot be written.
    """
    if cfg.report.trials is not None and cfg.report.trials < 1:
        raise UserError(f"report.trials={cfg.report.trials}: must be at least 1, or null for all")
    began = time.monotonic()
    path = write(cohorts_of.load(cfg), cfg)
    size = path.stat().st_size / 1e6
    note(f"report: {size:.1f} MB and side files in {clock(time.monotonic() - began)}")
    results.print(str(path))


def write(cohorts: list[Cohort], cfg: AnalysisConfig) -> Path:
    """Write the report of some cohorts; an earlier report in the folder is replaced.

    Returns:
        The path of index.html.

    Raises:
        OSError: a folder that cannot be written.
    """
    out = Path(cfg.out or Path(cfg.runs) / "_report").expanduser()
    cohorts = [shown(cohort) for cohort in cohorts]
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    side = out / "attempts" / stamp
    out.mkdir(parents=True, exist_ok=True)
    try:
        with Meter("report", sum(len(cohort.members) for cohort in cohorts)) as meter:
            parts = [_part(c, cfg, side / str(i), meter) for i, c in enumerate(cohorts)]
        atomic.write_text(out / "index.html", _page(cohorts, cfg, parts, stamp))
    except OSError:
        shutil.rmtree(side, ignore_errors=True)
        raise
    for path in (out / "attempts").glob("*"):  # side files of earlier reports
        if path.is_dir() and path.name != stamp and _STAMP.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
    return out / "index.html"


def _part(cohort: Cohort, cfg: AnalysisConfig, stem: Path, meter: Meter) -> dict[str, Any]:
    """One data set: counts, models, tables, figures, notices; side files are written on the way."""
    models: list[dict[str, Any]] = []
    lengths: list[data.Lengths] = []
    notices = _notices(cohort)
    labelled, labels = categories.labelled(cohort, cfg, notices)
    for place, name in enumerate(cohort.names):
        models.append({"name": name, "side": bool(cohort.members), "note": None})
        lengths.append((None, None))
        if cohort.members:
            member = cohort.members[place]
            at = labelled.names.index(member.name) if member in labelled.members else None
            own = stem.with_name(f"{stem.name}-{place}")
            index, models[-1]["note"] = _member(member, cfg, own, labels, at)
            lengths[-1] = data.mean_lengths(index)
            notices += [f"{name}: {line}" for line in index["notes"]]
            meter.advance(1)
    tables = data.tables(cohort, cfg, labelled if labels else None)
    return {
        "counts": data.counts(cohort) | {"models": models},
        "tables": [data.table(table) for table in tables],
        "figures": figures.figures(cohort, tables[0], lengths, labelled.names, labels),
        "notices": notices,
        "board": tables[0],
    }


def _notices(cohort: Cohort) -> list[str]:
    """What a reader must know first: what is not alike, and which runs are left out."""
    return [*cohort.differences, *(visible(line) for line in cohort.warnings)]


def _member(
    member: Member, cfg: AnalysisConfig, stem: Path, labels: Categories, place: int | None
) -> tuple[dict[str, Any], str | None]:
    """Write the side files of one run, whose names begin as `stem` says.

    Returns:
        Its index, and why there are no texts.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    ids, run, note = member.question_ids, member.run, None
    keys, index = attempts.index(run, ids, cfg.report.texts)
    gold = {row["question_id"]: row["gold"] for row in run.questions}
    index["gold"] = [gold[qid] for qid in ids]
    index["file"] = [-1] * keys.known.size
    index["rubrics"] = attempts.categories(keys, labels, place)
    if not cfg.report.texts:
        note = "The report was made without texts (report.texts=false)."
    elif not any(run.attempts.glob("*")):
        note = "This run holds outcomes only: no texts were imported."
    else:
        answer = index["answer"]
        answers = [answer["values"][code] if code >= 0 else None for code in answer["codes"]]
        attempts.write(stem, "-p", texts.prompts(run, ids))
        index["file"] = texts.responses(run, keys, answers, stem, cfg.report.trials)
    attempts.write(stem, "", index)
    return index, note


def _page(
    cohorts: list[Cohort], cfg: AnalysisConfig, parts: list[dict[str, Any]], stamp: str
) -> str:
    panels = [
        {
            "index": number,
            "name": cohort.dataset,
            "title": cohort.dataset,
            "dataset": number,
            "notices": part["notices"],
            "tables": part["tables"],
            "figures": part["figures"],
        }
        for number, (cohort, part) in enumerate(zip(cohorts, parts, strict=True))
    ]
    if len(cohorts) > 1:
        panels.insert(0, _pooled(cohorts, cfg, [part["board"] for part in parts], len(panels)))
    names = [cohort.dataset for cohort in cohorts]
    listed = Markup(", ").join(bdi(name) for name in names)
    readable = any(model["side"] for part in parts for model in part["counts"]["models"])
    page = {
        "stamp": stamp,
        "readable": readable,
        "panels": [panel["dataset"] for panel in panels],
        "datasets": [part["counts"] for part in parts],
    }
    css = (FOLDER / "report.css").read_text(encoding="utf-8")
    code = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    js = f'"use strict";\n(() => {{\n{code}\n}})();\n'
    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["bdi"] = bdi
    text = environment.get_template("template.html").render(
        title=cfg.report.title or f"Reasoning models on {', '.join(names)}",
        headline=cfg.report.title or Markup("Reasoning models on ") + listed,
        summary=data.summary(cohorts),
        footer=time.strftime("Made %Y-%m-%d %H:%M by bayes-at-n."),
        panels=panels,
        readable=readable,
        policy=_policy(css, js),
        css=Markup(css),
        js=Markup(js),
        data=Markup(_embedded(page)),
    )
    return text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates become "?"


def _pooled(
    cohorts: list[Cohort], cfg: AnalysisConfig, boards: list[Table], index: int
) -> dict[str, Any]:
    """The panel of all data sets together; a notice where no model is in all of them."""
    notices = [f"{one.dataset}: {line}" for one in cohorts for line in _notices(one)]
    tables, drawn = [], []
    try:
        together = cohorts_of.pooled(cohorts)
        board = leaderboard.pooled_usage(leaderboard.leaderboard(together, cfg), boards)
        ranked = rankings(cohorts, cfg, together)
        shown = [board, leaderboard.metrics(board, cfg), ranked, leaderboard.attempts(board)]
        tables = [data.table(one) for one in shown if one is not None]
        drawn = figures.figures(together, board, [], [], {})
    except UserError as error:
        notices.append(str(error))
    return {
        "index": index,
        "name": "=all",
        "title": "All data sets",
        "dataset": None,
        "notices": notices,
        "tables": tables,
        "figures": drawn,
    }


def _policy(css: str, js: str) -> str:
    """What the page may do: run its own script and those beside it, use its own styles.

    `style` attributes are allowed for matplotlib's SVG; `file:` is for browsers to which a file on
    disk is not of the page's own origin. Nothing may be fetched, sent or framed.
    """

    def digest(text: str) -> str:
        return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()

    return (
        f"default-src 'none'; script-src-elem 'sha256-{digest(js)}' 'self' file:;"
        f" style-src-elem 'sha256-{digest(css)}'; style-src-attr 'unsafe-inline';"
        " base-uri 'none'; form-action 'none'"
    )


def _embedded(value: Any) -> str:
    r"""JSON that can stand in a script element.

    >>> print(_embedded("</script>"))
    "\u003c/script\u003e"
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
