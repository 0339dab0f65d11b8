"""Which record becomes which attempt: runs, questions and trials, before any text is read."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.errors import UserError
from pipeline.imports import names
from pipeline.imports.troubles import Troubles, shown

FIRST_SEED, LAST_SEED = 1234, 1313  # of the paper's protocol, one a trial
NO_SEED = -1
MOST_RUNS = 5000
MOST_RECORDS = 50_000_000  # about 2 GB of keys

Ints = npt.NDArray[np.int64]


@dataclass
class Question:
    """What is known of one question of a data set."""

    id: str
    number: int | str  # as the records call it
    gold: str | None = None
    problem: str | None = None
    prompts: dict[int, str] = field(default_factory=dict)  # per run, the first that was seen


@dataclass
class RunPlan:
    """One run that a source holds: the questions that it has, and where its trials start."""

    dataset: str
    model: str  # the run folder's name, without tag
    called: str  # what the source calls the model
    trials: int = 0
    by_seed: bool = False  # trial i has seed `1234 + i`


@dataclass
class Plan:
    """Runs and questions by position, and one entry a record: its run, question and trial."""

    runs: list[RunPlan] = field(default_factory=list)
    questions: dict[str, list[Question]] = field(default_factory=dict)  # by data set
    keys: list[tuple[Ints, Ints, Ints, Ints]] = field(default_factory=list)
    run: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # -1: left out
    question: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    trial: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    datasets: list[str] = field(default_factory=list)  # only these; none: all
    models: list[str] = field(default_factory=list)
    _runs: dict[tuple[str, str, str, str], int] = field(default_factory=dict)
    _questions: dict[tuple[str, int | str], int] = field(default_factory=dict)

    def run_of(self, task: str, model: str, key: str = "", level: str = "") -> int:
        """The number of a run, a new one for what was not seen before; -1: it is not wanted.

        Raises:
            UserError: more of them than anybody has.
        """
        known = (task, model, key, level)
        if known not in self._runs:
            dataset = names.dataset_name(task)
            called = model or key
            name = names.model_name(called, key, level)
            if (self.datasets and dataset not in self.datasets) or (
                self.models and name not in self.models
            ):
                return -1
            taken = {(run.dataset, run.model) for run in self.runs}
            if (dataset, name) in taken:  # two authors, one name; or two tasks of one data set
                name = names.safe_name(f"{name} {task} {called} {level}")
            if len(self.runs) >= MOST_RUNS:
                raise UserError(f"over {MOST_RUNS} models: is {shown(called)} the name of one?")
            self._runs[known] = len(self.runs)
            self.runs.append(RunPlan(dataset, name, called))
        return self._runs[known]

    def question_of(self, dataset: str, number: int | str) -> int:
        """The number of a question within its data set."""
        found = self._questions.get((dataset, number))
        if found is None:
            rows = self.questions.setdefault(dataset, [])
            found = self._questions[dataset, number] = len(rows)
            rows.append(Question(names.question_id(dataset, number), number))
        return found

    def add(self, run: Any, question: Any, seed: Any, answer: Any) -> None:
        """Note the next records: run and question (-1: a damaged row), seed, hash of the answer."""
        columns = (np.asarray(column, np.int64) for column in (run, question, seed, answer))
        self.keys.append(tuple(columns))  # type: ignore[arg-type]

    def settle(self, troubles: Troubles, trials_given: bool = False) -> None:
        """Give every record its trial; call it once, when all are noted.

        Args:
            troubles: where duplicates are counted.
            trials_given: what was noted as seeds are trials already.
        """
        none = (np.empty(0, np.int64),) * 4
        parts = zip(*(self.keys or [none]), strict=True)
        run, question, seed, answer = (np.concatenate(part) for part in parts)
        self.keys = []
        trial = np.full(run.size, -1, np.int64)
        order = np.argsort(run, kind="stable")
        ends = np.searchsorted(run[order], np.arange(len(self.runs) + 1))
        for number, plan in enumerate(self.runs):
            rows = order[ends[number] : ends[number + 1]]
            if not rows.size:
                continue
            trial[rows] = _trials(plan, question[rows], seed[rows], trials_given)
            again = _repeated(question[rows], trial[rows])
            _name_repeats(plan, self.questions, rows, question, seed, answer, again, troubles)
            trial[rows[again >= 0]] = -1
            plan.trials = int(trial[rows].max()) + 1
        self.run, self.question, self.trial = np.where(trial < 0, -1, run), question, trial


def _trials(plan: RunPlan, question: Ints, seed: Ints, given: bool) -> Ints:
    """The trial of every record of one run.

    Seeds of the paper's protocol say it themselves. Other seeds count in their order where the
    questions share them; where they do not, and where there are none, records count in theirs.
    """
    if given and (seed >= 0).all():
        return seed
    if not given and ((seed >= FIRST_SEED) & (seed <= LAST_SEED)).all():
        plan.by_seed = True
        return seed - FIRST_SEED
    most = np.bincount(question).max()
    distinct, ranks = np.unique(seed, return_inverse=True)
    if (seed != NO_SEED).all() and distinct.size <= max(most, 1):
        return ranks.astype(np.int64)
    return _order_within(question)


def _order_within(question: Ints) -> Ints:
    """For each record how many records of its question came before it.

    >>> _order_within(np.array([3, 3, 1, 3])).tolist()
    [0, 1, 0, 2]
    """
    order = np.argsort(question, kind="stable")
    ordered = question[order]
    starts = np.searchsorted(ordered, ordered)
    found = np.empty_like(question)
    found[order] = np.arange(question.size) - starts
    return found


def _repeated(question: Ints, trial: Ints) -> Ints:
    """For each record the earlier one of the same key, or -1 where it is the first."""
    key = (question << 32) | trial
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    earlier = first[inverse]
    return np.where(earlier == np.arange(key.size), -1, earlier)


def _name_repeats(
    plan: RunPlan,
    questions: dict[str, list[Question]],
    rows: Ints,
    question: Ints,
    seed: Ints,
    answer: Ints,
    again: Ints,
    troubles: Troubles,
) -> None:
    later = np.flatnonzero(again >= 0)
    other = answer[rows[later]] != answer[rows[again[later]]]
    for kind, found in (
        ("duplicates left out", later[~other]),
        ("second answers for one question and seed left out, the first counts", later[other]),
    ):
        for row in rows[found[:3]]:
            name = questions[plan.dataset][question[row]].id
            place = f"{plan.model}, {name}" + f", seed {seed[row]}" * bool(seed[row] != NO_SEED)
            troubles.add(kind, shown(place), 1)
        if found.size > 3:
            troubles.add(kind, "", int(found.size) - 3)
