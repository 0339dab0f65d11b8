"""report: one HTML file that a reader can explore, and the attempts beside it.

`index.html` holds everything but the attempts: styles, scripts, tables, figures. It asks no network
and runs under a policy that allows the scripts written here and nothing else. What models and
foreign files wrote goes through Jinja2's escaping, or as JSON, and is shown as text.
"""

import base64
import contextlib
import hashlib
import os
import re
import secrets
import shutil
import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, clock, note, results
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.compare.comparison import rankings, tables_of
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.report import (
    attempts,
    categories,
    data,
    figures,
    overview,
    races,
    single,
    texts,
)
from bayes_at_n.pipeline.report.names import bdi, shown
from bayes_at_n.pipeline.store import files

FOLDER = Path(__file__).parent
SCRIPTS = (
    *("report.js", "map.js", "reader.js", "maths.js", "prose.js", "attempt.js", "question.js"),
    *("tokens.js", "start.js"),
)
_STAMP = re.compile(r"\d{8}T\d{6}(-[0-9a-f]{8})?")
READ_S = 3600.0  # a page that was replaced may be open in a browser, and loads attempts so long
Panel = dict[str, Any]  # a tab: title, notices, tables, figures; of one data set its counts, too


def report(cfg: AnalysisConfig, open: bool = False) -> None:
    """Write the report of the data sets and models that settings name; `open`: in the browser.

    Raises UserError: no runs, nothing graded. OSError: a folder that cannot be written.
    """
    began = time.monotonic()
    path = write(cohorts_of.load(cfg), cfg)
    size = path.stat().st_size / 1e6
    beside = "" if cfg.report.single else " and side files"
    note(f"report: {size:.1f} MB{beside} in {clock(time.monotonic() - began)}")
    results.print(str(path))
    answer({"report": str(path)})
    if open and not webbrowser.open(path.resolve().as_uri()):
        note("no browser can be started here; open the file in one")


def write(cohorts: list[Cohort], cfg: AnalysisConfig) -> Path:
    """Write the report of some cohorts; an earlier report in the folder is replaced.

    Any number of processes may do so in one folder: the page is that of the last one, and whole.
    Returns the path of index.html, or of report.html, which has no side files. Raises OSError: a
    folder that cannot be written.
    """
    runs = [cohort.members[0].run.path for cohort in cohorts if cohort.members]
    out, links = files.folder_of(cfg, "report", runs)
    cohorts = [shown(cohort) for cohort in cohorts]
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
    side = out / "attempts" / stamp
    out.mkdir(parents=True, exist_ok=True)
    members = [member.run for cohort in cohorts for member in cohort.members]
    if cfg.report.single and cfg.report.trials is None:
        cfg = replace(cfg, report=replace(cfg.report, trials=single.most_trials(members)))
    try:
        count = sum(len(cohort.members) for cohort in cohorts)
        with texts.processes() as mapped, Meter("report", count) as meter:
            panels = [_panel(c, cfg, side / str(i), mapped, meter) for i, c in enumerate(cohorts)]
        settled = [*races.panels(cohorts, panels[0]["notices"])]
        page, path = _page(cohorts, cfg, panels, stamp, settled), out / "index.html"
        if cfg.report.single:
            room = single.LIMIT - len(page.encode()) - single.SPARE
            sampled = max((cohort.outcomes.shape[2] for cohort in cohorts), default=0)
            held = single.pack(side, room, sampled)
            if held.left_out:
                note(f"report: {held.left_out}")
            page, path = _page(cohorts, cfg, panels, stamp, settled, held), out / "report.html"
            shutil.rmtree(side, ignore_errors=True)
            with contextlib.suppress(OSError):  # another report has side files there
                side.parent.rmdir()
        else:
            if any(cohort.members for cohort in cohorts):
                os.utime(side)  # it must be there, and count as young
            _sweep(out)
        atomic.write_text(path, page)
        files.publish(out, links)
    except BaseException:
        if stamp.encode() not in _there(out):
            shutil.rmtree(side, ignore_errors=True)
        raise
    return path


def _sweep(out: Path) -> None:
    """Remove side files that the page does not name and that nobody wrote or read for `READ_S`.

    What the page names is about to be replaced, and grows old from now on.
    """
    page = _there(out)
    for path in (out / "attempts").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another report removed it
            if path.is_dir() and _STAMP.fullmatch(path.name):
                if path.name.encode() in page:
                    os.utime(path)
                elif time.time() - path.stat().st_mtime > READ_S:
                    shutil.rmtree(path, ignore_errors=True)


def _there(out: Path) -> bytes:
    """The page in a folder, which names its side files; nothing where there is none."""
    index = out / "index.html"
    return index.read_bytes() if index.exists() else b""


def _panel(
    cohort: Cohort, cfg: AnalysisConfig, stem: Path, mapped: texts.Mapped, meter: Meter
) -> Panel:
    """The tab of one data set; side files, whose names begin as `stem` says, are written."""
    notices = [*cohort.differences, *cohort.warnings]
    labelled, labels = categories.labelled(cohort, cfg, notices)
    models = [{"name": name, "side": bool(cohort.members), "note": None} for name in cohort.names]
    lengths: list[data.Lengths] = [(None, None)] * len(models)
    indexes = []
    for i, (model, member) in enumerate(zip(models, cohort.members, strict=False)):
        place = labelled.names.index(member.name) if member in labelled.members else None
        own = stem.with_name(f"{stem.name}-{i}")
        index, model["note"], notes = _member(member, cfg, own, place, mapped)
        model["reasoning_end"] = member.run.cfg.model.reasoning_end
        lengths[i] = data.mean_lengths(index.table)
        notices += [f"{member.name}: {line}" for line in notes]
        indexes.append(index)
        meter.advance(1)
    counts = data.counts(cohort, cfg.report.texts) | {"models": models}
    if indexes:
        gold = {row["question_id"]: row["gold"] for row in cohort.members[0].run.questions}
        golds = [gold[qid] for qid in cohort.members[0].question_ids]
        counts |= attempts.write_index(stem, indexes, labels, golds)
    tables = data.tables(cohort, cfg, labelled if labels else None)
    return {
        "title": cohort.dataset,
        "name": cohort.dataset,
        "notices": notices,
        "counts": counts,
        "first": overview.first(cohort, cfg, tables),
        "rubrics": overview.rubrics(labelled.names, labels, tables["leaderboard"]),
        "tables": [data.table(table) for table in tables.values()],
        "figures": [*figures.figures(cohort, tables, lengths, cfg.scoring.headline)],
    }


def _member(
    member: Member, cfg: AnalysisConfig, stem: Path, place: int | None, mapped: texts.Mapped
) -> tuple[attempts.Indexed, str | None, list[str]]:
    """Write the texts of one run.

    Returns its numbers, why there are no texts, and notes for the page.
    """
    stem.parent.mkdir(parents=True, exist_ok=True)
    ids, run, reason = member.question_ids, member.run, None
    keys, index, notes = attempts.index(run, ids, cfg.report.texts)
    files: Any = -1
    if not cfg.report.texts:
        reason = "The report was made without texts (report.texts=false)."
    elif not any(run.attempts.glob("*")):
        reason = "This run holds outcomes only: no texts were imported."
    else:
        texts.write_prompts(run, ids, stem)
        files = texts.write_responses(run, ids, keys, stem, cfg.report.trials, mapped)
        atomic.write_text(stem.with_name("katex.js"), _library(), sync=False)
    return attempts.Indexed(keys, index, files, place), reason, notes


def _library() -> str:
    """What draws mathematics, as a side file."""
    return (FOLDER / "katex.min.js").read_text(encoding="utf-8") + '\nbayesReport("katex",true);\n'


def _page(
    cohorts: list[Cohort],
    cfg: AnalysisConfig,
    panels: list[Panel],
    stamp: str,
    settled: list[Panel],
    held: single.Packed | None = None,
) -> str:
    counts = [panel["counts"] for panel in panels]
    if len(cohorts) > 1:
        together = _pooled(cohorts, cfg)
        panels = [together, *panels] if together["first"] else [*panels, together]
    names = [cohort.dataset for cohort in cohorts]
    headline = Markup("Reasoning models on ") + Markup(", ").join(map(bdi, names))
    readable = any(model["side"] for count in counts for model in count["models"])
    css = (FOLDER / "report.css").read_text(encoding="utf-8")
    code = "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in SCRIPTS)
    js = f'"use strict";\n(() => {{\n{code}\n}})();\n'
    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined
    )
    environment.filters["bdi"] = bdi
    text = environment.get_template("template.html").render(
        title=cfg.report.title or f"Reasoning models on {', '.join(names)}",
        headline=cfg.report.title or headline,
        summary=data.summary(cohorts),
        footer=time.strftime("Made %Y-%m-%d %H:%M by bayes-at-n."),
        panels=[*panels, *settled],
        readable=readable,
        policy=_policy(css, js, *([_library()] if held else [])),
        held=held,
        css=Markup(css),
        js=Markup(js),
        data={
            "stamp": stamp,
            "readable": readable,
            "rows": attempts.ROWS,
            "datasets": counts,
            "single": held and held.left_out,
        },
    )
    return text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates become "?"


def _pooled(cohorts: list[Cohort], cfg: AnalysisConfig) -> Panel:
    """The tab of all data sets together; a notice where no model is in all of them."""
    notices = [f"{c.dataset}: {line}" for c in cohorts for line in (*c.differences, *c.warnings)]
    panel: Panel = {"title": "All data sets", "name": "=all", "notices": notices, "counts": None}
    panel |= {"first": None, "rubrics": {}}
    try:
        together = cohorts_of.pooled(cohorts)
        tables = tables_of(together, cfg)
        ranked = rankings(cohorts, cfg, together)
        panel["first"] = overview.first(together, cfg, tables)
        panel["tables"] = [data.table(table) for table in (*tables.values(), ranked)]
        panel["figures"] = [*figures.figures(together, tables, [], cfg.scoring.headline)]
    except UserError as error:
        notices.append(str(error))
        panel |= {"tables": [], "figures": []}
    return panel


def _policy(css: str, *js: str) -> str:
    """What the page may do: run its own scripts and those beside it, use its own styles.

    `style` attributes are allowed for matplotlib's SVG; `file:` is for browsers to which a file on
    disk is not of the page's own origin. Nothing may be fetched, sent or framed.
    """
    styles, *scripts = (
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (css, *js)
    )
    return (
        f"default-src 'none'; script-src-elem {' '.join(scripts)} 'self' file:;"
        f" style-src-elem {styles}; style-src-attr 'unsafe-inline';"
        " base-uri 'none'; form-action 'none'"
    )
