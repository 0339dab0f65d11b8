"""equivalence: whether two ways of sampling a model are the same, by tokens and by accuracy."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import note, plural, results
from bayes_at_n.pipeline.compare import differences, pair, replay
from bayes_at_n.pipeline.compare.pair import Pair
from bayes_at_n.pipeline.compare.replay import Replay
from bayes_at_n.pipeline.config.analysis import EquivalenceConfig
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.store import runfolder, selection
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.numerics.results import Summary
from bayes_at_n.scoring.ranking.equivalence import (
    Equivalence,
    equivalence,
    kl_terms,
    paired_trials,
    per_token,
)

# Of a model what may be another one although runs are of the same; the rest is in `differences`.
_MODEL = ("id", "revision", "dtype", "adapter", "context", "engine_args", "system")
# Of an engine what settings say anyway; variables hold names that are new in every process.
_NAMED = ("model", "dtype", "variables")


def run(cfg: EquivalenceConfig) -> None:
    """Compare two runs: print tables and the conclusion, and save them.

    Raises UserError: runs that cannot be compared, or attempts that cannot be replayed. OSError:
    the folder may not be written.
    """
    if cfg.replay:
        load_folder(Path(cfg.folders[1]).expanduser(), [f"trust={cfg.trust}"], "equivalence")
    both = pair.load(cfg.folders)
    decided, unit = decide(both, cfg.margin / 100)
    replayed = replay.replay(both, cfg.replay) if cfg.replay else None
    tables = {
        "scores": of_scores(both, decided, unit),
        "tokens": of_tokens(both, replayed),
    }
    unlike, words = both.cohort.differences + _engines(both), sentence(both, decided, cfg, unit)
    display.show(tables["scores"], tables["tokens"])
    for line in unlike:
        results.print(f"differs: {line}")
    results.print(f"\n{words}")
    first, second = both.cohort.members
    accuracy = {key: value for key, value in decided._asdict().items() if key != "conclusion"}
    record = {
        "settings": asdict(cfg),
        "runs": {member.name: str(member.run.path) for member in (first, second)},
        "dataset": first.run.cfg.dataset.name,
        "questions": len(both.cohort.question_ids),
        "trials": len(both.trials[0]),
        "shared_seeds": both.shared,
        "verdict": decided.conclusion,
        "words": words,
        "accuracy": {**accuracy, "verdict": decided.conclusion, "unit": unit},
        "scores": tables["scores"].rows,
        "tokens": tables["tokens"].rows,
        "engine": replayed and replayed.engine,
        "differences": unlike,
        "notes": {stem: table.notes for stem, table in tables.items()},
    }
    display.print_json(record)
    name = "-".join(map(selection.file_stem, both.cohort.names))
    folder = Path(cfg.out or first.run.path.parent / "_equivalence" / name).expanduser()
    written = selection.write_results(folder, "equivalence", record, tables, {})
    note(f"saved {written[-1]}, {', '.join(tables)} as .csv, .json, .tex, .md")


def decide(both: Pair, margin: float) -> tuple[Equivalence, str]:
    """Test the difference in accuracy, with trials as draws; with one trial, questions.

    The margin is a share, 0.01 for one point. Returns what is decided, and what was drawn: "trials"
    or "questions".
    """
    a, b = both.correct()
    if a.shape[1] > 1 or len(a) < 2:
        return equivalence(a, b, margin), "trials"
    return equivalence(a.T, b.T, margin), "questions"


def sentence(both: Pair, e: Equivalence, cfg: EquivalenceConfig, unit: str) -> str:
    """Write the conclusion in words; the margin is in points."""
    points, (n, m) = plural(cfg.margin, "point"), both.correct().shape[:0:-1]
    difference, lo, hi, outer_lo, outer_hi = (
        f"{100 * share:+.2f}" for share in (e.difference, e.lo, e.hi, e.outer_lo, e.outer_hi)
    )
    estimate = f"accuracy of {' minus '.join(both.cohort.names)} is {difference} points"
    inner = f"95% interval {lo} to {hi}"
    if e.conclusion == "equivalent":
        text = f"equivalent within {points}: {estimate}, {inner}"
        if e.outer_lo > 0 or e.outer_hi < 0:
            text += "; they are not equal, but closer than the margin"
    elif e.conclusion == "different":
        outer = f"97.5% interval {outer_lo} to {outer_hi}"
        text = f"different: {estimate}, {outer}, excluding 0 (margin {points})"
    else:
        needed = f"{e.trials:,.0f} {unit} of each run would decide it"
        text = f"undecided within {points}: {estimate}, {inner}; {needed}"
    had = f"{n} trial{'s' * (n > 1)} of {m} questions"
    if e.smallest >= 1:
        return f"{text}. {had} are too few to show any difference with 95% power."
    smallest = f"a difference of {100 * e.smallest:.2f} points with 95% power"
    return f"{text}. {had} would have shown {smallest}."


def of_scores(both: Pair, e: Equivalence, unit: str) -> Table:
    """Tabulate accuracy, length and mean log-prob of both, and differences of paired trials."""
    a, b = both.correct()
    rows: list[dict[str, Any]] = [
        _row("accuracy", a, b, Summary(e.difference, e.sigma, e.lo, e.hi))
        | {"smallest": e.smallest, "trials": e.trials}
    ]
    for name, key in (("tokens per attempt", "lengths"), ("log-prob per token", "logprobs")):
        sides = zip(both.attempts, both.trials, strict=True)
        first, second = (getattr(of, key)[:, trials] for of, trials in sides)
        if np.isfinite(first).all() and np.isfinite(second).all():
            turned = (first, second) if unit == "trials" else (first.T, second.T)
            rows.append(_row(name, first, second, paired_trials(*turned)))
    number = "{:.4g}"
    heads = [
        *columns(align="left", what="what"),
        *columns(number, a=both.cohort.names[0], b=both.cohort.names[1]),
        Column("difference", "difference", None, "{:+.2g}", short="diff."),
        *columns(number, wide=True, sigma="s.e."),
        *columns("{:+.2g}", low="low", high="high"),
        *columns(number, wide=True, smallest="95% power"),
        Column("trials", f"{unit} needed", None, "{:.0f}", wide=True),
    ]
    m, n = a.shape
    notes = [
        f"{m} questions, {n} trials of each run, paired; {both.shared} of the {n} share their seed",
        "low, high: 95% interval of the difference on these questions; trials are the draws",
        "log-prob per token: mean over attempts of each attempt's mean, before temperature",
    ]
    if unit == "questions":
        notes[1] = "low, high: 95% interval, with the questions as a sample of others like them"
    return Table(" and ".join(both.cohort.names), heads, rows, notes)


def _row(what: str, a: Floats, b: Floats, summary: Summary) -> dict[str, Any]:
    numbers = zip(("difference", "sigma", "low", "high"), summary, strict=True)
    return {"what": what, "a": a.mean(), "b": b.mean(), **dict(numbers)}


def of_tokens(both: Pair, replayed: Replay | None) -> Table:
    """Tabulate the replay, and where attempts with the same seed part."""
    rows, notes = [], ["low, high: 95% interval, attempts clustered by question"]
    if replayed is not None:
        gaps = replayed.logprobs_a - replayed.logprobs_b
        kl = kl_terms(replayed.logprobs_a, replayed.logprobs_b)
        for what, values in (("log p(A) − log p(B)", gaps), ("KL(A‖B), k3", kl)):
            sums = np.bincount(replayed.attempts, values, len(replayed.questions))
            sizes = np.bincount(replayed.attempts, minlength=len(replayed.questions))
            mean = per_token(sums, sizes, replayed.questions)
            rows.append(_mean(what, values.size, mean))
        notes += _replay_notes(both, replayed)
    questions, differ = pair.unlike_tokens(both)
    if differ.size:
        share = per_token(differ, np.ones(differ.size), questions)
        rows.append(_mean("tokens differ", differ.size, share))
        notes.append("tokens differ: share of the attempts with the same seed in both runs")
    heads = [
        *columns(align="left", what="what"),
        *columns(number="of"),
        *columns("{:.2g}", mean="mean", low="low", high="high"),
    ]
    return Table("tokens of {}, and of {}".format(*both.cohort.names), heads, rows, notes)


def _mean(what: str, number: int, mean: Summary) -> dict[str, Any]:
    return {"what": what, "number": number, "mean": mean.value, "low": mean.low, "high": mean.high}


def _replay_notes(both: Pair, replayed: Replay) -> list[str]:
    """Write what the replay estimates, which depends on how A was sampled."""
    (first, second), s = both.cohort.names, both.cohort.members[0].run.cfg.sampling
    notes = [
        f"log p: {len(replayed.questions)} attempts of {first} as stored (A) and as prompts"
        f" of the engine of {second} (B), natural, a token; k3: (r − 1) − log r, r ="
        " p(B)/p(A); both are the models' own, so temperature and cuts do not show in them",
    ]
    cuts = {"temperature": s.temperature, "top-p": s.top_p, "top-k": s.top_k}
    cuts |= {"min-p": s.min_p} if s.min_p else {}
    if narrow := [f"{k} {v:g}" for k, v in cuts.items() if v not in (None, 1)]:
        notes.append(
            f"A was sampled at {', '.join(narrow)}: the means are over such tokens, which are"
            " likelier than the model's own, and k3 is 0 only where both agree on them; a KL of the"
            " models it is at temperature 1 without a cut"
        )
    if replayed.left_out:
        notes.append(f"{replayed.left_out} tokens without a finite log-prob are left out")
    return notes


def _engines(both: Pair) -> list[str]:
    """List what is not alike in the models of both and in the engines that they first had."""
    members, lines, made = both.cohort.members, list[str](), dict[str, dict[str, Any]]()
    for key in _MODEL:
        values = {member.name: getattr(member.run.cfg.model, key) for member in members}
        lines += differences.unequal(f"model.{key}", values)
    for member in members:
        generated = runfolder.read_json(member.run.manifest).get("generated") or {}
        engine = (generated.get("engines") or [{}])[0]
        made[member.name] = {f"made by {k}": v for k, v in engine.items() if k not in _NAMED}
    for key in sorted(set.intersection(*map(set, made.values()))):  # of one kind of engine: all
        lines += differences.unequal(key, {name: of[key] for name, of in made.items()})
    return lines
