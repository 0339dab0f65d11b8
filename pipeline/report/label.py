"""The verb `label`: a page on which a person labels attempts, blind to model and judge.

The page is one file without network, made of the report's parts. It keeps labels in the browser;
its download `NAME.jsonl` is what `score RUN labels=NAME.jsonl` reads.
"""

import random
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import note, results
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import configured
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.report import build
from bayes_at_n.pipeline.score import headline, labels
from bayes_at_n.pipeline.store import outcomes, runfolder, selection, shards, tables
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring import drawn_sample, label_chances
from bayes_at_n.verifiers import LETTERS

SAMPLE = 60  # attempts of a run


def label(words: list[str], open: bool = False) -> None:
    """Draw attempts to label, and write a page with all of them; `open`: open it in the browser.

    `labels.sample=N` draws N more: first uniformly, later with larger probabilities where the
    labels so far show errors, or grader and verifier disagree. Several runs share a page, in random
    order.
    """
    folders, settings = compose.folders_of(words)
    paths = [run for folder in folders for run in selection.runs_in(Path(folder))]
    if not paths:
        raise UserError(f"label: name run folders, as in `{PROGRAM} label runs/aime25`")
    runs = [Run(configured([str(path), *settings], "label")) for path in paths]
    if not (rows := [row for run in runs for row in _rows(run)]):
        raise UserError(f"{paths[0]}: its attempts have no texts to label")
    random.Random(0).shuffle(rows)
    out = paths[0] / "labels" if len(paths) == 1 else paths[0].parent / "_labels"
    out.mkdir(exist_ok=True)
    atomic.write_text(out / "label.html", _page(rows))
    note(f"label: {len(rows)} attempts; then `{PROGRAM} score RUN labels=NAME.jsonl`")
    results.print(str(out / "label.html"))
    print_json({"page": out / "label.html", "attempts": len(rows)})
    if open and not webbrowser.open((out / "label.html").resolve().as_uri()):
        note("no browser can be started; open the file by hand")


def draw(run: Run) -> labels.Drawn:
    """Draw `labels.sample` more attempts, by default 60 for a run without any; return all."""
    found, before = outcomes.read(run), labels.drawn(run)
    keys = labels.keys_of(found)
    sample = labels.Drawn(keys, np.empty((0, keys.size)), keys[:0], keys[:0])
    if before:
        rows = tables.rows_of(keys, before.keys)
        sample = before._replace(keys=keys, chances=np.where(rows < 0, 0, before.chances[:, rows]))
    left = ~np.isin(keys, sample.order)
    size = min(run.cfg.labels.sample or (0 if before else SAMPLE), int(left.sum()))
    if not size:
        if before:
            return before
        raise headline.without_outcomes(run, found)
    doubts = labels.doubts(run, found, keys) if before else np.zeros(keys.size)
    now, number = label_chances(doubts, size, left), len(sample.chances)
    words = run.cfg.sampling.seed or 0, keys.size, number, *run.path.name.encode()
    rng = np.random.default_rng(words)  # runs are drawn independently of each other
    more = keys[left][drawn_sample(now[left], rng)]
    sample = labels.Drawn(
        keys,
        np.vstack([sample.chances, now]),
        np.append(sample.order, more),
        np.append(sample.draws, np.full(size, number)),
    )
    (run.path / "labels").mkdir(exist_ok=True)
    with atomic.replacing(run.path / "labels" / "drawn.npz") as file:
        np.savez_compressed(file, **sample._asdict())
    return sample


def _rows(run: Run) -> list[dict[str, Any]]:
    """Return the drawn attempts of a run: what the page shows, and the keys of its download."""
    sample = draw(run)
    whole = 1 - np.prod(1 - sample.chances, axis=0)
    chances = dict(zip(sample.keys.tolist(), whole.tolist(), strict=True))
    answers = tables.aligned(run, outcomes.ruled(run, ["answer"]), sample.order)["answer"]
    found, keys = list[dict[str, Any]](), sample.order.tolist()
    for i, text in tables.responses(run, sample.order, shards.Damage(), few=True):
        question, trial = run.questions[keys[i] >> 32], keys[i] & 0xFFFFFFFF
        shown = runfolder.as_presented(run.cfg, question, trial)
        options = zip(LETTERS, shown["choices"] or (), strict=False)
        key = {"run": run.path.name, "question_id": question["question_id"], "trial": trial}
        of_page = {
            "problem": "\n\n".join([shown["problem"], *(f"{a}. {b}" for a, b in options)]),
            "gold": shown["gold"],
            "answer": runfolder.presented_letter(shown, answers[i].as_py() or ""),
            "text": text,
            "marker": run.cfg.model.reasoning_end,
            "scores": run.cfg.point_weights and run.cfg.verifier.judgement.scores,
        }
        found.append({**key, "chance": chances[keys[i]], **of_page})
    return found


def _page(rows: list[dict[str, Any]]) -> str:
    """Render the page; its scripts are the only ones that may run."""
    parts = {"css": build.asset("report.css"), "js": build.scripts("prose", "label")}
    parts["library"] = build.asset("katex.min.js")
    policy, sound = build.policy(*parts.values()), {k: Markup(of) for k, of in parts.items()}
    return build.rendered("label.html", policy=policy, rows=rows, **sound)
