"""The plan of an import: the run, question and trial of every record."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n.pipeline.base.console import note, plural
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.prepare.questions import Question as OwnQuestion
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.batches import Batch
from bayes_at_n.pipeline.records.columns import name_of
from bayes_at_n.pipeline.records.source import Skipped, printable

FIRST_SEED, LAST_SEED = 1234, 1313  # of the paper's protocol, one per trial
MOST_RUNS = 5000
MOST_RECORDS = 50_000_000  # about 2 GB of keys
MOST_CELLS = 50_000_000  # questions x trials of one run
MOST_TRIALS = 1_000_000  # as for sampling.trials
_NONE = -1  # seed or trial: the record has none; run: the record is skipped
# Columns that identify runs and questions, and that are stored with questions.
_TEXTS = ("gold", "problem", "prompt", "topic", "cluster")
NAMING = ("task", "model", "model_key", "level", "question", *_TEXTS)

Ints = npt.NDArray[np.int64]


@dataclass
class Question:
    """What the records hold about one question of a dataset."""

    id: str
    number: int | str  # its name in the records
    gold: str | None = None
    problem: str | None = None
    topic: str | None = None
    cluster: str | None = None
    prompts: dict[int, str] = field(default_factory=dict)  # per run, the first one
    own: OwnQuestion | None = None  # the matching one of questions=FILE


@dataclass
class PlannedRun:
    """A run in a source: its names, and how its trials are numbered."""

    dataset: str
    model: str  # the run folder's name, without the tag
    source_model: str  # the model's name in the source
    trials: int = 0
    by_seed: bool = False  # trial i has seed `1234 + i`
    has_outcomes: bool = False

    @property
    def folder(self) -> str:
        """Return DATASET/MODEL."""
        return f"{self.dataset}/{self.model}"


class Plan:
    """Runs and questions by position, and per record the positions of its run and question.

    `datasets`, `models`: names of those to import; empty: all.
    """

    def __init__(self, datasets: list[str], models: list[str]) -> None:
        self.chosen = {"dataset": datasets, "model": models}
        self.present: dict[str, dict[str, set[str]]] = {"dataset": {}, "model": {}}  # ours: theirs
        self.runs: list[PlannedRun] = []
        self.questions: dict[str, list[Question]] = {}  # by dataset
        self.categories: dict[str, int] = {}  # number by dataset
        self.run = self.question = self.trial = self.category = np.empty(0, np.int64)
        self._keys: list[Ints] = []  # run, question, trial, category, seed
        self._runs: dict[tuple[str, ...], int] = {}
        self._questions: dict[tuple[str, int | str | None, str | None], int] = {}
        self._ids: set[tuple[str, str]] = set()  # of questions

    def add(self, batch: Batch, skipped: Skipped) -> None:
        """Add the next records: their keys and their questions' texts.

        Raises UserError: over MOST_RUNS or MOST_RECORDS.
        """
        keys = np.full((batch.sound.size, 5), _NONE)
        for at, name in enumerate(("trial", "category", "seed"), 2):
            if name in batch.columns:
                keys[:, at] = batch.columns[name].fill_null(_NONE).to_numpy()
        naming = pa.table({name: batch.column(name) for name in NAMING} | {"at": range(len(keys))})
        equal = naming.filter(pa.array(batch.sound)).group_by([*NAMING], use_threads=False)
        rows = equal.aggregate([("at", "list")]).to_pylist()
        for row in sorted(rows, key=lambda row: row["at_list"][0]):  # as the records are ordered
            if (run := self._run_of(row)) != _NONE:
                these = row["at_list"]
                keys[these, :2] = run, self._question_of(run, row, len(these), skipped)
        for number in set(keys[:, 0].tolist()) - {_NONE}:
            run, mine = self.runs[number], keys[:, 0] == number
            run.has_outcomes |= bool(batch.has("outcome")[mine].any())
            if (most := int(keys[mine, 3].max())) != _NONE:
                self.categories[run.dataset] = max(self.categories.get(run.dataset, 2), most + 1)
        self._keys.append(keys)
        if sum(map(len, self._keys)) > MOST_RECORDS:
            raise UserError(f"over {MOST_RECORDS} records; split the source")

    def _run_of(self, row: dict[str, Any]) -> int:
        """Return the position of a row's run; _NONE for one that was not chosen."""
        key = task, model, model_key, level = tuple(row[name] or "" for name in NAMING[:4])
        if key in self._runs:
            return self._runs[key]
        called = model or model_key
        if len(self._runs) >= MOST_RUNS:
            raise UserError(f"over {MOST_RUNS} models: is {printable(called)} the name of one?")
        dataset, name = names.dataset_name(task), names.model_name(called, model_key, level)
        for what, ours, theirs in (("dataset", dataset, task), ("model", name, called)):
            self.present[what].setdefault(ours, set()).add(theirs)
            if self.chosen[what] and not {ours, theirs} & set(self.chosen[what]):
                return self._runs.setdefault(key, _NONE)
        taken = {run.model for run in self.runs if run.dataset == dataset}
        while name in taken:  # models of two owners, or two tasks of one dataset
            name = names.safe_name(f"{name} {task} {called} {model_key} {level}")
        self.runs.append(PlannedRun(dataset, name, called))
        self.questions.setdefault(dataset, [])
        return self._runs.setdefault(key, len(self.runs) - 1)

    def _question_of(self, run: int, row: dict[str, Any], number: int, skipped: Skipped) -> int:
        """Return a question's position in its dataset; store texts of the `number` rows with it."""
        called, dataset = name_of(row["question"]), self.runs[run].dataset
        questions = self.questions[dataset]
        key = dataset, called, row["problem"] if called is None else None
        known = self._questions.setdefault(key, len(questions))
        if known == len(questions):
            called = known if called is None else called
            name = names.question_id(dataset, called)
            while (dataset, name) in self._ids:  # number 7 and a question named aime25-07
                name = names.safe_name(f"{name} {called!r}")
            self._ids.add((dataset, name))
            questions.append(Question(name, called))
        question, gold = questions[known], row["gold"] and row["gold"].strip()
        if row["prompt"]:
            question.prompts.setdefault(run, row["prompt"])
        question.problem = question.problem or row["problem"]
        question.topic = question.topic or row["topic"]
        question.cluster = question.cluster or row["cluster"]
        if gold and question.gold is None:
            question.gold = gold
        elif gold and question.gold != gold:
            place = f"{question.id}: {printable(gold)[:40]}"
            skipped.add("other gold answers, the first counts", place, number)
        return known

    def check_chosen(self, source: str) -> None:
        """Raise UserError: a dataset or model that the user chose is not in the source."""
        for key, chosen in self.chosen.items():
            known = set(self.present[key]).union(*self.present[key].values())
            # Nothing is known if no record can be used, which is reported elsewhere.
            if known and (absent := [name for name in chosen if name not in known]):
                listed = ", ".join(map(printable, sorted(self.present[key])[:20]))
                raise UserError(
                    f"{key}={printable(absent[0])}: not in {source}; there are {listed}"
                )

    def assign_trials(self, skipped: Skipped, positions: bool) -> None:
        """Assign every record its trial, once all are added.

        Duplicates, and records without a trial in a run that has trials, are counted in `skipped`.
        `positions`: trials count from 0; else they may count from 1. Raises UserError: over
        MOST_CELLS or MOST_TRIALS, as when trials are numbers of something else.
        """
        keys = np.concatenate([np.empty((0, 5), np.int64), *self._keys])
        run, question, trial, self.category, seed = keys.T.copy()
        del keys, self._keys
        if not positions and (trial >= 0).any() and trial[trial >= 0].min() == 1:
            note("import: the records count trials from 1, this program from 0: 1 becomes 0")
            trial[trial >= 0] -= 1
        order = np.argsort(run, kind="stable")
        ends = np.searchsorted(run[order], np.arange(len(self.runs) + 1))
        for number, planned in enumerate(self.runs):
            rows = order[ends[number] : ends[number + 1]]
            questions = self.questions[planned.dataset]
            if (trial[rows] >= 0).any():
                for row in rows[trial[rows] < 0]:
                    place = f"{planned.model}, {questions[question[row]].id}"
                    skipped.damaged(place, "no trial")
                    run[row] = _NONE
                rows = rows[trial[rows] >= 0]
            else:
                trial[rows] = _trials(planned, question[rows], seed[rows])
            key = (question[rows] << 32) | trial[rows]
            _, first, again = np.unique(key, return_index=True, return_inverse=True)
            earlier = rows[first[again]]
            for row in rows[rows != earlier]:
                name, at = ("trial", trial) if seed[row] == _NONE else ("seed", seed)
                place = f"{planned.model}, {questions[question[row]].id}, {name} {at[row]}"
                skipped.add("duplicates left out, the first counts", place)
                run[row] = _NONE
            planned.trials = int(trial[rows].max(initial=-1)) + 1
            cells = len(questions) * planned.trials
            if cells > MOST_CELLS or planned.trials > MOST_TRIALS:
                most = questions[question[rows[trial[rows].argmax()]]].id
                raise UserError(
                    f"{planned.folder}: {plural(len(questions), 'question')} x {planned.trials}"
                    f" trials are too many; {most} has most: are its records of several questions"
                    " (question_id), or its trials numbers of something else?"
                )
        self.run, self.question, self.trial = run, question, trial

    def labels(self, run: int) -> list[pa.Array]:
        """Return question, trial and category of every record of a run that has a category."""
        rows = np.flatnonzero((self.run == run) & (self.category != _NONE))
        ids = [question.id for question in self.questions[self.runs[run].dataset]]
        questions = pa.array(ids, pa.string()).take(pa.array(self.question[rows]))
        return [questions, pa.array(self.trial[rows]), pa.array(self.category[rows])]


def _trials(run: PlannedRun, question: Ints, seed: Ints) -> Any:
    """Number the trials of a run whose records have none.

    Seeds of the paper's protocol decide. Other seeds count in their order if questions share them;
    else, and without seeds, records count in theirs.
    """
    if seed.size and ((seed >= FIRST_SEED) & (seed <= LAST_SEED)).all():
        run.by_seed = True
        return seed - FIRST_SEED
    distinct, ranks = np.unique(seed, return_inverse=True)
    if (seed != _NONE).all() and distinct.size <= np.bincount(question).max(initial=1):
        return ranks
    counters: dict[int, count[int]] = defaultdict(count)
    return [next(counters[number]) for number in question.tolist()]
