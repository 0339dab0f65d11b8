"""The verb `report`: an interactive HTML page, with the attempts in files beside it.

`index.html` holds everything but the attempts: styles, scripts, tables, figures. It uses no network
and has a content security policy that allows only scripts of this package. Texts of models and
untrusted files are escaped by Jinja2 or passed as JSON, and shown as text.

A report in a single file, for email, contains as much of its side files as fits: numbers of all
attempts, then the texts of the first trials of every question.
"""

import base64
import bisect
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
import webbrowser
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, duration, note, plural, results
from bayes_at_n.pipeline.base.program import version
from bayes_at_n.pipeline.compare import cohort as cohorts_of
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.rubrics import ByRubric
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.report import attempts, panels
from bayes_at_n.pipeline.report.attempts import stored
from bayes_at_n.pipeline.report.panels import Panel
from bayes_at_n.pipeline.store import selection
from bayes_at_n.pipeline.store.outcomes import PENDING
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.verifiers.code import programs

LIMIT = 10_000_000  # bytes; email adds a third, and servers accept 20 or 25 million
SPARE = 500  # bytes of it for the sentence on what is left out
_ORDER = (r"katex", r"\d+-q\d+", r"\d+-\d+-p", r"\d+-\d+-\d+")  # by importance
_TEXTS = len(_ORDER) - 1
FOLDER = Path(__file__).parent
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_STAMP = re.compile(r"\d{8}T\d{6}(-[0-9a-f]{8})?")
READ_S = 3600.0  # for which a replaced page, still open in a browser, can load attempts


class Packed(NamedTuple):
    """The side files in a page."""

    files: dict[str, str]  # name -> base64 of its value, deflated
    left_out: str  # what does not fit, as a sentence; "" if everything does


def report(cfg: AnalysisConfig, open: bool = False) -> None:
    """Write the report on the datasets and models that settings name; `open`: open a browser."""
    began = time.monotonic()
    note("report: reading runs")
    path = write(cohorts_of.load(cfg, gold=True), cfg)
    size = path.stat().st_size / 1e6
    beside = "" if cfg.report.single else " and side files"
    note(f"report: {size:.1f} MB{beside} in {duration(time.monotonic() - began)}")
    results.print(str(path))
    print_json({"report": str(path)})
    if open and not webbrowser.open(path.resolve().as_uri()):
        note("no browser can be started; open the file by hand")


def write(cohorts: list[Cohort], cfg: AnalysisConfig) -> Path:
    """Write the report on some cohorts, in place of an earlier one in the folder.

    Any number of processes may do so at once: the last page written counts, and is complete.
    Returns the path of index.html, or of report.html, which has no side files.
    """
    out = selection.results_folder(cfg, "report", cohorts_of.first_runs(cohorts))
    out.mkdir(parents=True, exist_ok=True)
    return _write_single(cohorts, cfg, out) if cfg.report.single else _write(cohorts, cfg, out)


def _write(cohorts: list[Cohort], cfg: AnalysisConfig, out: Path) -> Path:
    """Write the page and its side files, which are removed if the page cannot be written."""
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
    side, path = out / "attempts" / stamp, out / "index.html"
    try:
        made = _together(cohorts, cfg, _datasets(cohorts, cfg, side, cfg.report.trials))
        page = _page(cohorts, cfg, made, stamp)
        if any(cohort.members for cohort in cohorts):
            os.utime(side)  # it must exist, and count as new
        _sweep(out)
        atomic.write_text(path, page)
    except BaseException:
        if stamp.encode() not in _current_page(out):
            shutil.rmtree(side, ignore_errors=True)
        raise
    return path


def _write_single(cohorts: list[Cohort], cfg: AnalysisConfig, out: Path) -> Path:
    """Write the page with as much of its side files as fits in it."""
    runs = [member.run for cohort in cohorts for member in cohort.members]
    trials = cfg.report.trials or most_trials(runs)
    sampled = max((cohort.outcomes.shape[2] for cohort in cohorts), default=0)
    with tempfile.TemporaryDirectory(prefix="bayes-at-n-report-") as side:
        made = _together(cohorts, cfg, _datasets(cohorts, cfg, Path(side), trials))
        room = LIMIT - len(_page(cohorts, cfg, made).encode()) - SPARE
        held = pack(Path(side), room, sampled)
    if held.left_out:
        note(f"report: {held.left_out}")
    atomic.write_text(out / "report.html", _page(cohorts, cfg, made, held=held))
    return out / "report.html"


def _sweep(out: Path) -> None:
    """Remove side files that the page does not name and that are older than `READ_S`."""
    page = _current_page(out)
    for path in (out / "attempts").glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another report removed it
            if path.is_dir() and _STAMP.fullmatch(path.name):
                if path.name.encode() in page:
                    os.utime(path)  # it ages from now on, as the page is replaced
                elif time.time() - path.stat().st_mtime > READ_S:
                    shutil.rmtree(path, ignore_errors=True)


def _current_page(out: Path) -> bytes:
    """Read the page in a folder, which names its side files; b"" without one."""
    index = out / "index.html"
    return index.read_bytes() if index.exists() else b""


def _datasets(
    cohorts: list[Cohort], cfg: AnalysisConfig, side: Path, trials: int | None
) -> list[Panel]:
    """Build the panels of all datasets, and write their side files into the folder `side`."""
    members = [(i, m, member) for i, c in enumerate(cohorts) for m, member in enumerate(c.members)]
    if members:
        side.mkdir(parents=True, exist_ok=True)
    made, jobs = list[tuple[Panel, ByRubric]](), list[attempts.Job]()
    tables = list[list[pa.Table]]([] for _ in cohorts)
    with Meter("report", panels.FIGURES * len(cohorts) + 2 * len(members)) as meter:
        for cohort in cohorts:
            made.append(panels.dataset(cohort, cfg, lambda: meter.advance(1)))
            meter.reach(panels.FIGURES * len(made))
        for i, m, member in members:
            (panel, rubrics), run, ids = made[i], member.run, member.question_ids
            codes = [code[m] for _, code in rubrics.values()]
            rows = attempts.index(run, ids, cfg.report.texts, m, codes)
            shown = {"side": True, "note": rows.without}
            shown["reasoning_end"] = run.cfg.model.reasoning_end
            panel["counts"]["models"][m] |= shown
            tables[i].append(rows.table)
            upto = trials if rows.without is None else 0
            jobs.append(attempts.Job(run.cfg, ids, rows.keys, side / f"{i}-{m}", upto))
            meter.advance(1)
        for (i, m, _), files in zip(members, attempts.write_all(jobs), strict=True):
            tables[i][m] = tables[i][m].append_column("file", pa.array(files, pa.int32()))
            meter.advance(1)
    if any(job.trials != 0 for job in jobs):
        atomic.write_text(side / "katex.js", _library(), sync=False)
    for i, (cohort, (panel, rubrics)) in enumerate(zip(cohorts, made, strict=True)):
        for member in cohort.members[:1]:
            golds = [member.run.questions[row]["gold"] for row in member.rows]
            if member.run.cfg.dataset.answer == "code":
                golds = [programs.shown(gold) for gold in golds]
            panel["counts"] |= attempts.write_numbers(side / str(i), tables[i], rubrics, golds)
    return [panel for panel, _ in made]


def _together(cohorts: list[Cohort], cfg: AnalysisConfig, datasets: list[Panel]) -> list[Panel]:
    """Add the panel of all datasets together."""
    if len(graded := [cohort for cohort in cohorts if cohort.names]) < 2:
        return datasets
    together = panels.together(graded, cfg)
    return [together, *datasets] if together["verdict"] else [*datasets, together]


def _page(
    cohorts: list[Cohort],
    cfg: AnalysisConfig,
    shown: list[Panel],
    stamp: str = "",
    held: Packed | None = None,
) -> str:
    """Render the page; `held`: side files that it contains."""
    counts = [panel["counts"] for panel in shown if panel["counts"]]
    readable = any(model["side"] for count in counts for model in count["models"])
    css, js = asset("report.css"), scripts("prose", "page", "reader", "attempt")
    single = held and held.left_out
    return rendered(
        "template.html",
        title=cfg.report.title,
        names=[cohort.dataset for cohort in cohorts],
        summary=summary(cohorts),
        footer=f"Made {time.strftime('%Y-%m-%d %H:%M')} by bayes-at-n {version('bayes-at-n')}",
        panels=shown,
        policy=policy(css, js, *([_library()] if held else [])),
        held=held,
        css=Markup(css),
        js=Markup(js),
        data={"stamp": stamp, "readable": readable, "datasets": counts, "single": single},
    )


def summary(cohorts: list[Cohort]) -> str:
    """Count models, questions and attempts in a line.

    >>> from bayes_at_n.pipeline.compare.cohort import from_arrays
    >>> summary([from_arrays("coins", ["a", "b"], ["q1"], [[[1, 0]], [[1, -1]]])])
    '2 models, 1 question, 3 graded attempts'
    """
    models = {name for cohort in cohorts for name in (*cohort.names, *cohort.gold)}
    graded = sum(int((cohort.outcomes != PENDING).sum()) for cohort in cohorts)
    questions = sum(len(cohort.question_ids) for cohort in cohorts)
    several = {"dataset": len(cohorts)} if len(cohorts) > 1 else {}
    parts = {"model": len(models), **several, "question": questions, "graded attempt": graded}
    return ", ".join(plural(n, noun) for noun, n in parts.items())


def rendered(template: str, **values: Any) -> str:
    """Render a template of this folder; everything but `Markup` is escaped."""
    loader = FileSystemLoader(FOLDER)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.filters["visible"] = visible
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False}
    text = environment.get_template(template).render(**values)
    return visible(text).encode("utf-8", "replace").decode("utf-8")  # lone surrogates become "?"


def visible(text: str) -> str:
    r"""Escape controls of writing direction, which could reverse the text around a name.

    >>> visible("a\u202eb")
    'a⟨U+202E⟩b'
    """
    return DIRECTIONS.sub(lambda mark: f"⟨U+{ord(mark[0]):04X}⟩", text)


def policy(css: str, *js: str) -> str:
    """Return the content security policy: the page's own scripts and styles, and its side files.

    `style` attributes are allowed for matplotlib's SVG; `file:` is for browsers that treat files on
    disk as of different origins. Nothing may be fetched, sent or framed.
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


def _library() -> str:
    """Return the library that draws mathematics, as a side file."""
    return asset("katex.min.js") + '\nbayesReport("katex",true);\n'


def asset(name: str) -> str:
    """Read a file of this folder."""
    return (FOLDER / name).read_text(encoding="utf-8")


def scripts(*names: str) -> str:
    """Join scripts of this folder behind Preact, whose names are their own."""
    code = "\n".join(asset(f"{name}.js") for name in names)
    return f'{asset("preact.min.js")}\n(() => {{\n"use strict";\n{code}\n}})();\n'


def most_trials(runs: Sequence[Run]) -> int | None:
    """Return an upper estimate of how many trials per question fit; None: all of them.

    Shards are compressed, and have log-probs, too: texts from over four limits hardly fit into one.
    """
    size = stored(runs)
    trials = max((run.cfg.sampling.trials for run in runs), default=0)
    return None if size <= 4 * LIMIT else max(1, 4 * LIMIT * trials // size)


def pack(side: Path, room: int, sampled: int) -> Packed:
    """Compress the side files in a folder into at most `room` bytes, by importance."""
    files, lost, texts = dict[str, str](), list[str](), list[Path]()
    for path in sorted(side.glob("*.js"), key=_order):
        if _order(path)[0] == _TEXTS:
            texts.append(path)
        elif (taken := packed_size(path.stem, packed := _packed(_value(path)))) <= room:
            room -= taken
            files[path.stem] = packed
        else:
            lost.append(f"{path.stem}.js")
    upto = range(1, sampled + 1) if texts else range(0)
    trials = bisect.bisect_left(upto, True, key=lambda n: _texts(texts, n, room) is None)
    files |= _texts(texts, trials, room) or {}
    if trials < len(upto):
        kept = f"all but those of the first {trials}" if trials else "all"
        lost.append(f"texts of {kept} of {sampled} trials")
    limit = f"left out to keep the file below {LIMIT // 10**6} MB"
    return Packed(files, f"{limit}: {', '.join(lost)}" if lost else "")


def _order(path: Path) -> tuple[int, list[int]]:
    """Return a sort key of a side file: its importance, then its numbers."""
    kind = next(k for k, pattern in enumerate(_ORDER) if re.fullmatch(pattern, path.stem))
    return kind, [*map(int, re.findall(r"\d+", path.stem))]


def _texts(paths: Sequence[Path], trials: int, room: int) -> dict[str, str] | None:
    """Pack files with the texts of the first trials; None if they do not fit."""
    files = {}
    for path in paths:
        rows = json.loads(_value(path))["rows"]
        kept = {key: row for key, row in rows.items() if int(key.partition("/")[2]) < trials}
        files[path.stem] = _packed(json.dumps({"rows": kept}, separators=(",", ":")))
        room -= packed_size(path.stem, files[path.stem])
        if room < 0:
            return None
    return files


def _value(path: Path) -> str:
    """Read the JSON value of a side file, or the whole script of the library."""
    text = path.read_text(encoding="utf-8")
    return text if path.stem == "katex" else text.partition(",")[2].removesuffix(");\n")


def _packed(text: str) -> str:
    return base64.b64encode(zlib.compress(text.encode())).decode()


def packed_size(name: str, packed: str) -> int:
    """Return the bytes of the HTML element with a side file."""
    return len(packed) + len(name) + 60
