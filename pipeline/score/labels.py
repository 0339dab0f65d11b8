"""Human labels of a run's attempts, scores corrected by them, and the judge's errors.

`labels/NAME.jsonl` has the labels of one person. `labels/drawn.npz` is the sample that `label`
drew, with the probability of each attempt. Without it a row's own `chance` counts; without that,
attempts are taken as drawn uniformly at random.

The judge is whatever decides the run's outcomes; the verifier, where its verdicts differ from
them, is a second one. Corrected scores estimate avg@N under human labels.
"""

import itertools
import re
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc

from bayes_at_n import scoring
from bayes_at_n.pipeline.base import atomic, untrusted
from bayes_at_n.pipeline.base.console import joined, note, percent, plural
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.store import outcomes, tables
from bayes_at_n.pipeline.store.outcomes import PENDING, UNDECIDED, Outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Ints
from bayes_at_n.scoring import Labeled
from bayes_at_n.scoring.numerics.inputs import Floats, values
from bayes_at_n.verifiers.judge.quality import krippendorff

Parts = dict[str, Any]
Samples = tuple["People", dict[str, Labeled]]  # labels, and by judge its scores joined with them
_LATER = ("verifier", "labels alone")  # rows behind those of the outcomes' judge
GROUPS = ("shorter", "longer")  # half of the attempts
_ERRORS = "missed: correct attempts judged wrong; accepted: wrong ones judged correct"
_USED = (
    "models are compared by corrected scores if all have labels (model= leaves out the others);"
    " other metrics, categories, token limits and rubrics are the judge's"
)


class Drawn(NamedTuple):
    """Attempts drawn for labeling, of n attempts in R draws, with inclusion probabilities.

    Within a draw the order is random, so that whoever stops early has labeled a random part of it.
    """

    keys: Ints  # (n,) `tables.encode`
    chances: Floats  # (R, n) in each draw, had the attempt not been drawn before
    order: Ints  # (m,) keys of the drawn attempts
    draws: Ints  # (m,) the draw of each, 0..R-1


class People(NamedTuple):
    """Labels of m attempts."""

    at: Ints  # (m,) indices in the keys that were asked for
    values: Floats  # (m,) 1 correct, 0 not; of several people the mean
    chances: Floats | None  # (m,) inclusion probabilities; None: uniform
    by: dict[str, dict[int, float]]  # each person's labels, by key of the attempt


def files(run: Run) -> list[Path]:
    """Return the files of labels in a run's folder, one per person, in order of names."""
    return sorted((run.path / "labels").glob("*.jsonl"))


def keep(run: Run) -> None:
    """Copy this run's labels in `labels=FILE` into its folder, under the file's name.

    Rows have `question_id`, `trial` and `correct`: true, false, a number from 0 to 1, or null, and
    of several runs `run`, the name of the folder. Raises UserError: no such file, or no labels.
    """
    if run.cfg.labels.file is None:
        return
    path = Path(run.cfg.labels.file).expanduser()
    if not (kept := [*rows(path, run).values()]):
        raise UserError(f"{path}: no row of this run has `correct` set to true or false")
    (run.path / "labels").mkdir(exist_ok=True)
    name = re.sub("[^A-Za-z0-9_-]", "_", path.stem)
    atomic.write_jsonl(run.path / "labels" / f"{name}.jsonl", kept)


def drawn(run: Run) -> Drawn | None:
    """Return the sample that `label` drew; None without one. Raises UserError: it is damaged."""
    path = run.path / "labels" / "drawn.npz"
    if not path.is_file():
        return None
    try:
        with np.load(path) as arrays:
            return Drawn(*(arrays[name] for name in Drawn._fields))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: {one_line(error)}; delete it to draw again") from error


def read(run: Run, keys: Ints) -> People | None:
    """Read all labels of the attempts `keys` (`tables.encode`, unique); None without any."""
    by = {path.stem: rows(path, run) for path in files(run)}
    known = np.array(sorted(set[int]().union(*by.values())), np.int64)
    sample, places = drawn(run), tables.rows_of(known, keys)
    usable = (places >= 0) & np.isin(known, known if sample is None else sample.order)
    if not usable.all():
        lost = plural(int((~usable).sum()), "label")
        note(f"{run.path}: left out: {lost} of attempts that were not drawn, or have no outcome")
    if not usable.any():
        return None
    done, known, places = known, known[usable], places[usable]
    said = [[of[key] for of in by.values() if key in of] for key in known.tolist()]
    values = np.array([np.mean([row["correct"] for row in of]) for of in said])
    of_rows = np.array([of[0]["chance"] or 0.0 for of in said])
    chances: Floats | None = of_rows if of_rows.all() else None
    if sample is not None:  # of each draw a random part is labeled
        part = np.bincount(sample.draws, np.isin(sample.order, done)) / np.bincount(sample.draws)
        of_draws = sample.chances[:, tables.rows_of(known, sample.keys)]
        chances = 1 - np.prod(1 - part[:, None] * of_draws, axis=0)
    of_people = {name: {k: float(r["correct"]) for k, r in of.items()} for name, of in by.items()}
    return People(places, values, chances, of_people)


def rows(path: Path, run: Run) -> dict[int, Parts]:
    """Read the labels of this run in a file, by their keys. Raises UserError: as `keep`."""
    if not path.is_file():
        raise UserError(f"labels={path}: no such file; `{PROGRAM} label {run.path}` makes a page")
    ids = {row["question_id"]: i for i, row in enumerate(run.questions)}
    found = dict[int, Parts]()
    for position, row in untrusted.json_lines(path):
        if row.get("run", run.path.name) != run.path.name:
            continue
        own = {key: row.get(key) for key in ("question_id", "trial", "chance", "correct")}
        number, trial = ids.get(str(own["question_id"]), -1), own["trial"]
        key = number << 32 | trial if type(trial) is int and 0 <= trial < 1 << 31 else -1
        shares = [value for value in (own["chance"], own["correct"]) if value is not None]
        sound = all(isinstance(value, float | int) and 0 <= value <= 1 for value in shares)
        if key < 0 or key in found or not sound:
            needs = "question_id and trial of an attempt, each once, and `correct`: true, false"
            raise UserError(f"{path}, {position}: needs {needs}, 0 to 1 or null")
        if own["correct"] is not None:
            found[key] = own
    return found


def keys_of(graded: Outcomes) -> Ints:
    """Return the keys (`tables.encode`) of all attempts with an outcome, (n,), in order."""
    question, trial = np.nonzero(graded.codes != PENDING)
    return np.asarray(question.astype(np.int64) << 32 | trial, np.int64)


def words(run: Run, found: Outcomes, keys: Ints) -> dict[str, Floats]:
    """Return each judge's score of the attempts, (n,), 0 to 1: `outcomes`, and any `verifier`.

    An undecided outcome counts as the verifier's P(A), or 0.
    """
    verdict = tables.aligned(run, outcomes.read_verdicts(run, ["a", "label"], "warn").table, keys)
    codes = found.codes[found.codes != PENDING]
    p = pc.fill_null(verdict["a"], 0.0).to_numpy().clip(0, 1)
    scored = values(found.matrix).filled(0)[found.codes != PENDING].astype(np.float64)  # or points
    own = np.where(np.isin(codes, UNDECIDED), p, scored)
    if verdict["label"].null_count or run.cfg.point_weights:
        return {"outcomes": own}
    other = pc.equal(verdict["label"], "A").cast("float64").to_numpy()
    return {"outcomes": own} | ({"verifier": other} if (other != own).any() else {})


def halves(run: Run, keys: Ints) -> Ints:
    """Return the half of the attempts that each is in by its tokens, (n,): 0 shorter, 1 longer."""
    tokens = outcomes.lengths(run).tokens[keys >> 32, keys & 0xFFFFFFFF]
    return np.asarray(tokens > np.median(tokens), np.int64)


def doubts(run: Run, found: Outcomes, keys: Ints) -> Floats:
    """Estimate the judge's squared error on each attempt, (n,), by outcome, length and verifier."""
    said, people = words(run, found, keys), read(run, keys)
    own = said["outcomes"]
    differ = np.abs(own - said.get("verifier", own)) >= 0.5
    cell = 4 * differ + 2 * (own >= 0.5) + halves(run, keys)
    errors, many = np.where(np.arange(8) < 4, 0.05, 0.3) * 2, np.full(8, 2.0)  # a guess of ours
    if people:
        errors += np.bincount(cell[people.at], (people.values - own[people.at]) ** 2, 8)
        many += np.bincount(cell[people.at], minlength=8)
    return np.asarray((errors / many)[cell])


def samples(run: Run, found: Outcomes) -> Samples | None:
    """Join each judge's scores with people's labels; None: no labels. Raises UserError: as read."""
    keys = keys_of(found)
    if (people := read(run, keys)) is None:
        return None
    trials, question = (found.codes != PENDING).sum(axis=1), keys >> 32
    weights = 1 / (trials[question] * (trials > 0).sum())  # of each attempt in avg; sum 1
    own = people.values, people.at, weights, people.chances, question
    return people, {k: scoring.labeled(of, *own) for k, of in words(run, found, keys).items()}


def corrected(run: Run, found: Outcomes, own: Samples | None = None) -> tuple[Parts, Table] | None:
    """Correct avg by the labels (`own`: its `samples`); return a record and a table, or None."""
    keys, level = keys_of(found), run.cfg.scoring.confidence
    if (known := own or samples(run, found)) is None:
        return None
    (people, judges), long = known, halves(run, keys)
    clusters = np.array(outcomes.clusters(run))[keys >> 32]
    record: Parts = {"labels": people.at.size, "attempts": keys.size, "confidence": level}
    rows = list[Parts]()

    def add(who: str, value: float, low: float | None = None, high: float | None = None) -> None:
        rows.append({"who": who, "value": value, "interval": None if low is None else (low, high)})

    for name, sample in judges.items():
        powered = scoring.prediction_powered(sample, level, clusters)
        powered = powered._replace(value=min(max(powered.value, 0.0), 1.0))
        sharp = (sample.f >= 0.5).astype(np.float64)
        bayes = scoring.misclassification(sample._replace(f=sharp), level, long)
        add(name, judged := float(sample.w @ sample.f))
        rows[-1] |= _errors(people, sharp, np.ones(keys.size, bool))
        add("  corrected", powered.value, powered.low, powered.high)
        if powered.pool is not None:
            add("  on similar questions", powered.value, *powered.pool[2:])
        add("  misclassification", bayes.score.value, *bayes.score[2:])
        by_length = dict[str, Parts]()
        for half, group in enumerate(GROUPS[: 2 * long.max()]):  # none if all are as long
            ends = {k: of._asdict() for k, of in bayes._asdict().items() if k != "score"}
            by_length[group] = {k: {p: v[half] for p, v in of.items()} for k, of in ends.items()}
            rows.append({"who": f"  {group} half"} | _errors(people, sharp, long == half))
        record[name] = {
            "value": judged,
            "corrected": powered._asdict() | {"pool": powered.pool and powered.pool._asdict()},
            "misclassification": bayes.score._asdict(),
            "by_length": by_length,
        }
    alone = scoring.prediction_powered(sample, level, rate=0)
    add("labels alone", alone.value, *alone[2:4])
    record["labels_alone"] = {k: v for k, v in alone._asdict().items() if k != "pool"}
    lines = [_ERRORS + ("; from half of the full score on" if run.cfg.point_weights else "")]
    if agreed := _agreement(people):
        record["agreement"], line = agreed
        lines.append(line)
    columns = [
        Column("who", "score by", align="left"),
        Column("value", "score", format="{:.3f}"),
        Column("interval", f"{percent(level)} interval", format="{:.3f}"),
        Column("missed", "missed"),
        Column("accepted", "accepted"),
    ]
    title = f"{plural(people.at.size, 'human label')}, {plural(keys.size, 'attempt')}"
    return record, Table(title, columns, rows, lines)


def table(runs: Iterable[tuple[str, Run, Outcomes, Samples | None]]) -> Table | None:
    """Tabulate scores and judges' errors of runs, by model; None where none has labels."""
    rows, columns = list[Parts](), list[Column]()
    for name, run, found, known in runs:
        if known and (made := corrected(run, found, known)):
            for row in itertools.takewhile(lambda row: row["who"] not in _LATER, made[1].rows):
                if "missed" in row or "corrected" in row["who"]:
                    rows.append({"model": name, **row})
            columns = [Column("model", "model", align="left"), *made[1].columns]
    return Table("corrected by human labels", columns, rows, [_ERRORS, _USED]) if rows else None


def _errors(people: People, said: Floats, among: Any) -> dict[str, str]:
    """Count the judge's errors among the labeled attempts of a group, but for labels of 0.5."""
    sure, word = among[people.at] & (people.values != 0.5), said[people.at] == 1
    right = people.values > 0.5
    counts = {"missed": (sure & right, ~word), "accepted": (sure & ~right, word)}
    return {key: f"{(of & wrong).sum()} of {of.sum()}" for key, (of, wrong) in counts.items()}


def _agreement(people: People) -> tuple[Parts, str] | None:
    """Compare people on the attempts that several labeled; None without any."""
    by_key = dict[int, list[float]]()
    for of in people.by.values():
        for key, value in of.items():
            by_key.setdefault(key, []).append(value)
    if not (shared := {key: said for key, said in by_key.items() if len(said) > 1}):
        return None
    alpha = krippendorff([*shared.values()], "interval", [key >> 32 for key in shared])
    same = float(np.mean([len({*said}) == 1 for said in shared.values()]))
    names = sorted(name for name, of in people.by.items() if of.keys() & shared.keys())
    line = (
        f"{joined(names, 5)} agree on {same:.1%} of {plural(len(shared), 'attempt')},"
        f" Krippendorff's alpha {alpha.alpha:.2f} ({alpha.low:.2f} to {alpha.high:.2f})"
    )
    return {"people": names, "same": same, **alpha._asdict()}, line
