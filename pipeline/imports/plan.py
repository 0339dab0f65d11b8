"""Between the passes: which record becomes which attempt, as runs, questions and trials."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.base.console import note
from pipeline.base.errors import UserError
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
    keys: list[tuple[Ints, ...]] = field(default_factory=list)
    run: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # -1: left out
    question: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    trial: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    datasets: list[str] = field(default_factory=list)  # only these; none: all
    models: list[str] = field(default_factory=list)
    seen: tuple[set[str], set[str]] = field(default_factory=lambda: (set(), set()))  # of both
    _runs: dict[tuple[str, str, str, str], int] = field(default_factory=dict)
    _questions: dict[tuple[str, int | str], int] = field(default_factory=dict)
    _ids: set[tuple[str, str]] = field(default_factory=set)  # of questions

    def run_of(self, task: str, model: str, key: str = "", level: str = "") -> int:
        """The number of a run, a new one for what was not seen before; -1: it is not wanted.

        Raises:
            UserError: more of them than anybody has.
        """
        known = (task, model, key, level)
        if known not in self._runs:
            if len(self._runs) >= MOST_RUNS:
                raise UserError(
                    f"over {MOST_RUNS} models: is {shown(model or key)} the name of one?"
                )
            self._runs[known] = self._new_run(task, model or key, key, level)
        return self._runs[known]

    def _new_run(self, task: str, called: str, key: str, level: str) -> int:
        dataset, name = names.dataset_name(task), names.model_name(called, key, level)
        self.seen[0].add(dataset)
        self.seen[1].add(name)
        if (self.datasets and dataset not in self.datasets) or (
            self.models and name not in self.models
        ):
            return -1
        taken = {run.model for run in self.runs if run.dataset == dataset}
        while name in taken:  # two authors, one name; or two tasks of one data set
            name = names.safe_name(f"{name} {task} {called} {key} {level}")
        self.runs.append(RunPlan(dataset, name, called))
        return len(self.runs) - 1

    def question_of(self, dataset: str, number: int | str) -> int:
        """The number of a question within its data set."""
        found = self._questions.get((dataset, number))
        if found is None:
            rows = self.questions.setdefault(dataset, [])
            found = self._questions[dataset, number] = len(rows)
            name = names.question_id(dataset, number)
            while (dataset, name) in self._ids:  # number 7 and a question called aime25-07
                name = names.safe_name(f"{name} {number!r}")
            self._ids.add((dataset, name))
            rows.append(Question(name, number))
        return found

    def learn(
        self, run: int, question: int, gold: str | None, prompt: str | None, troubles: Troubles
    ) -> Question:
        """Gold answer and prompt of a question, from the first record that has them."""
        known = self.questions[self.runs[run].dataset][question]
        if prompt and run not in known.prompts:
            known.prompts[run] = prompt
        if gold is not None and known.gold is None:
            known.gold = gold
        elif gold is not None and known.gold != gold:
            place = f"{known.id}: {shown(gold)[:40]}"
            troubles.add("other gold answers, the first counts", place)
        return known

    def add(self, run: Any, question: Any, seed: Any, answer: Any, trial: Any = None) -> None:
        """Note the next records.

        Args:
            run: their run, -1 for a damaged row.
            question: of the data set, -1 for a damaged row.
            seed: or NO_SEED.
            answer: its hash.
            trial: as the records count them, -1 where they do not say.
        """
        trial = np.full(len(run), -1) if trial is None else trial
        columns = (run, question, seed, answer, trial)
        self.keys.append(tuple(np.asarray(column, np.int64) for column in columns))

    def settle(self, troubles: Troubles, counted: bool = False) -> None:
        """Give every record its trial; call it once, when all are noted.

        Args:
            troubles: where duplicates, and records that lack a trial which others have, are named.
            counted: the trials are numbers that somebody gave, from 0 or 1, and no positions.
        """
        none = (np.empty(0, np.int64),) * 5
        parts = zip(*(self.keys or [none]), strict=True)
        run, question, seed, answer, told = (np.concatenate(part) for part in parts)
        self.keys = []
        if counted and (told >= 0).any() and told[told >= 0].min() == 1:
            note("import: trials are counted from 1 there, from 0 here: 1 becomes 0")
            told[told >= 0] -= 1
        trial = np.full(run.size, -1, np.int64)
        order = np.argsort(run, kind="stable")
        ends = np.searchsorted(run[order], np.arange(len(self.runs) + 1))
        for number, plan in enumerate(self.runs):
            rows = order[ends[number] : ends[number + 1]]
            if (told[rows] >= 0).any():
                ids = self.questions[plan.dataset]
                lacking = rows[told[rows] < 0]
                _count(
                    troubles,
                    "damaged rows skipped",
                    [f"{plan.model}, {ids[question[r]].id} (no trial)" for r in lacking[:3]],
                    lacking.size,
                )
                rows = rows[told[rows] >= 0]
            if not rows.size:
                continue
            trial[rows] = _trials(plan, question[rows], seed[rows], told[rows])
            again = _repeated(question[rows], trial[rows])
            _name_repeats(plan, self.questions, rows, question, seed, answer, again, troubles)
            trial[rows[again >= 0]] = -1
            plan.trials = int(trial[rows].max()) + 1
        self.run, self.question, self.trial = np.where(trial < 0, -1, run), question, trial


def _trials(plan: RunPlan, question: Ints, seed: Ints, told: Ints) -> Ints:
    """The trial of every record of one run.

    Records may say it; else seeds of the paper's protocol do. Other seeds count in their order
    where the questions share them; where they do not, and where there are none, records count in
    theirs.
    """
    if (told >= 0).all():
        return told
    if ((seed >= FIRST_SEED) & (seed <= LAST_SEED)).all():
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
        places = []
        for row in rows[found[:3]]:
            name = questions[plan.dataset][question[row]].id
            places.append(
                f"{plan.model}, {name}" + f", seed {seed[row]}" * int(seed[row] != NO_SEED)
            )
        _count(troubles, kind, places, found.size)


def _count(troubles: Troubles, kind: str, places: list[str], number: int) -> None:
    """Count `number` more of one kind, of which the first places are known."""
    for place in places:
        troubles.add(kind, place)
    if number > len(places):
        troubles.add(kind, "", number - len(places))
