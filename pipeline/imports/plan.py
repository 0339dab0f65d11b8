"""Between the passes: which record becomes which attempt, as runs, questions and trials."""

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.base.console import note
from pipeline.base.errors import UserError
from pipeline.imports import names
from pipeline.imports.row import Row
from pipeline.imports.source import Troubles, shown

FIRST_SEED, LAST_SEED = 1234, 1313  # of the paper's protocol, one a trial
MOST_RUNS = 5000
MOST_RECORDS = 50_000_000  # about 2 GB of keys
MOST_CELLS = 50_000_000  # questions x trials of one run
_NONE = -1  # of a seed or trial: the record does not say; of a run: left out

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
    """One run that a source holds: what it is called, and how its trials are counted."""

    dataset: str
    model: str  # the run folder's name, without tag
    called: str  # what the source calls the model
    trials: int = 0
    by_seed: bool = False  # trial i has seed `1234 + i`
    has_outcomes: bool = False

    @property
    def folder(self) -> str:
        return f"{self.dataset}/{self.model}"


class Plan:
    """Runs and questions by position, and one entry a record: its run, question and trial.

    Args:
        datasets: only these; none: all.
        models: only these; none: all.
    """

    def __init__(self, datasets: list[str], models: list[str]) -> None:
        self.chosen = {"dataset": datasets, "model": models}
        self.seen: dict[str, set[str]] = {"dataset": set(), "model": set()}
        self.runs: list[RunPlan] = []
        self.questions: dict[str, list[Question]] = {}  # by data set
        self.categories: dict[str, int] = {}  # by data set, how many
        self.run = self.question = self.trial = np.empty(0, np.int64)
        self._keys = [array("q") for _ in range(5)]  # run, question, trial, seed, hash of answer
        self._runs: dict[tuple[str, ...], int] = {}
        self._questions: dict[tuple[str, int | str], int] = {}
        self._ids: set[tuple[str, str]] = set()  # of questions

    def note(self, row: Row | None, troubles: Troubles) -> None:
        """Note the next record: its keys, and what it says of its question.

        Raises:
            UserError: more runs or records than anybody has.
        """
        run = _NONE if row is None else self._run_of(row)
        if row is None or run == _NONE:
            keys = (_NONE,) * 5
        else:
            place = self._question_of(run, row, troubles)
            trial, seed = (_NONE if x is None else x for x in (row["trial"], row["seed"]))
            keys = (
                run,
                place,
                trial,
                seed,
                hash((row["outcome"], row["category"], row["answer"])) >> 1,
            )
        for column, key in zip(self._keys, keys, strict=True):
            column.append(key)
        if len(self._keys[0]) > MOST_RECORDS:
            raise UserError(f"over {MOST_RECORDS} records; split the source")

    def _run_of(self, row: Row) -> int:
        key = tuple(row[name] or "" for name in ("task", "model", "model_key", "level"))
        if key not in self._runs:
            if len(self._runs) >= MOST_RUNS:
                called = shown(key[1] or key[2])
                raise UserError(f"over {MOST_RUNS} models: is {called} the name of one?")
            self._runs[key] = self._new_run(*key)
        return self._runs[key]

    def _new_run(self, task: str, model: str, key: str, level: str) -> int:
        called = model or key
        dataset, name = names.dataset_name(task), names.model_name(called, key, level)
        for kind, one in (("dataset", dataset), ("model", name)):
            self.seen[kind].add(one)
            if self.chosen[kind] and one not in self.chosen[kind]:
                return _NONE
        taken = {run.model for run in self.runs if run.dataset == dataset}
        while name in taken:  # two authors, one name; or two tasks of one data set
            name = names.safe_name(f"{name} {task} {called} {key} {level}")
        self.runs.append(RunPlan(dataset, name, called))
        self.questions.setdefault(dataset, [])
        return len(self.runs) - 1

    def _question_of(self, run: int, row: Row, troubles: Troubles) -> int:
        """The number of a row's question within its data set; what the row says of it is kept."""
        plan = self.runs[run]
        dataset, questions = plan.dataset, self.questions[plan.dataset]
        place = self._questions.setdefault((dataset, row["question"]), len(questions))
        if place == len(questions):
            name = names.question_id(dataset, row["question"])
            while (dataset, name) in self._ids:  # number 7 and a question called aime25-07
                name = names.safe_name(f"{name} {row['question']!r}")
            self._ids.add((dataset, name))
            questions.append(Question(name, row["question"]))
        known, gold = questions[place], row["gold"] and row["gold"].strip()
        if row["prompt"]:
            known.prompts.setdefault(run, row["prompt"])
        known.problem = known.problem or row["problem"]
        if gold and known.gold is None:
            known.gold = gold
        elif gold and known.gold != gold:
            where = f"{known.id}: {shown(gold)[:40]}"
            troubles.add("other gold answers, the first counts", where)
        plan.has_outcomes |= row["outcome"] is not None
        if row["category"] is not None:
            self.categories[dataset] = max(self.categories.get(dataset, 2), row["category"] + 1)
        return place

    def settle(self, troubles: Troubles, positions: bool) -> None:
        """Give every record its trial; call it once, when all are noted.

        Args:
            troubles: where duplicates, and records that lack a trial which others have, are named.
            positions: the trials that records say count from 0; else they may count from 1.

        Raises:
            UserError: a matrix beyond all measure, such as one trial of number 10^5.
        """
        run, question, trial, seed, answer = (np.array(keys, np.int64) for keys in self._keys)
        self._keys = []
        if not positions and (trial >= 0).any() and trial[trial >= 0].min() == 1:
            note("import: trials are counted from 1 there, from 0 here: 1 becomes 0")
            trial[trial >= 0] -= 1
        order = np.argsort(run, kind="stable")
        ends = np.searchsorted(run[order], np.arange(len(self.runs) + 1))
        for number, plan in enumerate(self.runs):
            rows = order[ends[number] : ends[number + 1]]
            ids = self.questions[plan.dataset]
            if (trial[rows] >= 0).any():
                for row in rows[trial[rows] < 0]:
                    place = f"{plan.model}, {ids[question[row]].id} (no trial)"
                    troubles.add("damaged rows skipped", place)
                    run[row] = _NONE
                rows = rows[trial[rows] >= 0]
            else:
                trial[rows] = _trials(plan, question[rows], seed[rows])
            key = (question[rows] << 32) | trial[rows]
            _, first, again = np.unique(key, return_index=True, return_inverse=True)
            earlier = rows[first[again]]
            for row, before in zip(rows[rows != earlier], earlier[rows != earlier], strict=True):
                kind = "duplicates left out"
                if answer[row] != answer[before]:
                    kind = "second answers for one question and seed left out, the first counts"
                said = f", seed {seed[row]}" if seed[row] != _NONE else ""
                troubles.add(kind, f"{plan.model}, {ids[question[row]].id}{said}")
                run[row] = _NONE
            plan.trials = int(trial[rows].max(initial=-1)) + 1
            if len(ids) * plan.trials > MOST_CELLS:
                raise UserError(
                    f"{plan.folder}: {len(ids)} questions x {plan.trials} trials are too many; are"
                    " its trials numbers of something else?"
                )
        self.run, self.question, self.trial = run, question, trial


def _trials(plan: RunPlan, question: Ints, seed: Ints) -> Any:
    """The trial of every record of one run that does not say it.

    Seeds of the paper's protocol do. Other seeds count in their order where the questions share
    them; where they do not, and where there are none, records count in theirs.
    """
    if seed.size and ((seed >= FIRST_SEED) & (seed <= LAST_SEED)).all():
        plan.by_seed = True
        return seed - FIRST_SEED
    distinct, ranks = np.unique(seed, return_inverse=True)
    if (seed != _NONE).all() and distinct.size <= np.bincount(question).max(initial=1):
        return np.asarray(ranks, np.int64)
    return _order_within(question)


def _order_within(question: Ints) -> Any:
    """For each record how many records of its question came before it.

    >>> _order_within(np.array([3, 3, 1, 3])).tolist()
    [0, 1, 0, 2]
    """
    order = np.argsort(question, kind="stable")
    ordered = question[order]
    before = np.empty_like(question)
    before[order] = np.arange(question.size) - np.searchsorted(ordered, ordered)
    return before
