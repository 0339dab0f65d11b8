"""A cohort: the runs of one dataset that can be compared, as one stack of outcomes.

What is compared must be the same questions: they are matched by their hash (problem and gold
answer), never by their number. A run that does not fit is left out and named; what is merely not
alike (trials, sampling, grading) is compared, and listed (`differences.py`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import joined, warn, warnings_once
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.compare.differences import differences, sampling_known
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.score import answers, headline, labels
from bayes_at_n.pipeline.store import outcomes, selection
from bayes_at_n.pipeline.store.outcomes import CORRECT, PENDING, WRONG, Codes, Outcomes
from bayes_at_n.pipeline.store.runfolder import Run, open_run

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Member:
    """One run of a cohort."""

    name: str  # as tables call it, unique within the cohort: the run folder's name
    run: Run
    graded: Outcomes  # of all questions of the run
    rows: list[int] = field(default_factory=list)  # M, where the cohort's questions are in these

    @cached_property
    def question_ids(self) -> list[str]:
        """The cohort's questions as this run calls them, (M,)."""
        return [self.graded.question_ids[row] for row in self.rows]

    @cached_property
    def labeled(self) -> labels.Samples | None:
        """Human labels of the attempts that are compared, by which scores are corrected."""
        return labels.samples(self.run, self.compared)

    @cached_property
    def compared(self) -> Outcomes:
        """The outcomes of the questions that are compared; of the others all is pending."""
        codes = np.full_like(self.graded.codes, PENDING)
        codes[self.rows] = self.graded.codes[self.rows]
        return self.graded._replace(codes=codes)

    @cached_property
    def usage(self) -> outcomes.Usage:
        """Tokens of the attempts that are compared, and times of the run."""
        return outcomes.usage(self.run, self.question_ids)

    def lengths(self, trials: int) -> outcomes.Lengths:
        """How long the attempts that are compared were, padded or cut to so many trials."""
        own = outcomes.lengths(self.run, self.question_ids)
        cut = padded(own.cut, trials, False)
        return own._replace(tokens=padded(own.tokens, trials, -1), cut=cut)


@dataclass(frozen=True)
class Cohort:
    """L models, M questions that all of them answered, up to N trials of each."""

    dataset: str
    question_ids: list[str]  # M, as the first member calls them
    names: list[str]  # L, what tables call the models, each once
    members: list[Member]  # L; none where outcomes came without runs
    outcomes: Codes  # (L, M, N) positions in pipeline.store.outcomes.OUTCOMES, or PENDING
    truncated: Codes  # (L, M, N): 1 cut off by its token limit, 0 not, -1 not known
    differences: list[str] = field(default_factory=list)  # a line for each thing not alike
    warnings: list[str] = field(default_factory=list)  # what was left out, or could not be read
    parts: list["Cohort"] = field(default_factory=list)  # what it is pooled from
    points: Codes | None = None  # (L, M, N) of judges, or PENDING; None: correct or not
    weights: Sequence[float] | None = None  # score of 0, 1, ... points
    gold: dict[str, Run] = field(default_factory=dict)  # by name, runs of bits per byte alone
    scored: dict[Any, Any] = field(default_factory=dict, init=False)  # what is computed once

    def select(self, positions: Sequence[int]) -> "Cohort":
        """Keep the models at these positions; there are members."""
        return replace(
            self,
            names=[self.names[i] for i in positions],
            members=[self.members[i] for i in positions],
            outcomes=self.outcomes[positions],
            truncated=self.truncated[positions],
            points=None if self.points is None else self.points[positions],
        )

    def matrix(self) -> Any:
        """1 correct, 0 not, or `scoring.Points`, masked where pending: int8, shape (L, M, N)."""
        return outcomes.scored(self.outcomes, self.points, self.weights)

    @cached_property
    def clusters(self) -> list[str]:
        """Label the questions, (M,): those that were drawn together in some run share a label."""
        if self.parts:
            return [f"{i} {label}" for i, part in enumerate(self.parts) for label in part.clusters]
        labels = [outcomes.clusters(of.run, of.question_ids) for of in self.members]
        return min(labels, key=lambda of_run: len({*of_run}), default=self.question_ids)

    @cached_property
    def votes(self) -> list[answers.Evidence]:
        """What votes of each model are counted from, (M, N) as outcomes are; nothing if pooled."""
        trials, found = self.outcomes.shape[2], list[answers.Evidence]()
        for one in (answers.evidence(member.run, member.question_ids) for member in self.members):
            arrays = {name: padded(of, trials) for name, of in one.arrays.items()}
            masked = {name: np.ma.masked_equal(of, PENDING) for name, of in arrays.items()}  # type: ignore[no-untyped-call]
            found.append(one._replace(arrays=masked))
        return found or [answers.NOTHING] * len(self.names)

    @property
    def imported(self) -> bool:
        """Whether some runs are records of others, which nobody can sample more of."""
        return any(sampling_known(member.run) is not True for member in self.runs())

    def runs(self) -> list[Member]:
        """List the members, those of the parts where it is pooled."""
        return [member for part in self.parts or [self] for member in part.members]

    def stopped(self, confidence: float) -> dict[str, dict[str, Any]]:
        """Return what may be read of members whose outcomes decided how many trials there are."""
        how = {member.name: headline.stopped(member.run) for member in self.members}
        return {
            name: headline.mean_of_rounds(of_run, matrix, confidence)
            for (name, of_run), matrix in zip(how.items(), self.matrix(), strict=False)
            if of_run
        }


def load(
    cfg: AnalysisConfig, known: Mapping[str, Mapping[Path, Any]] = {}, gold: bool = False
) -> list[Cohort]:
    """Load the cohorts that settings name, one a dataset, in the order named.

    `known`: by dataset and folder tables for `outcomes.read`, of runs that were read already.
    `gold`: with runs of bits per byte; a cohort of these alone has no models. Where something sound
    is left it is returned, and the rest named in a warning.
    """
    cohorts: list[Cohort] = []
    faults = []
    with warnings_once() as of_all:
        named = {} if known else selection.named(cfg)
        for dataset, folders in (known or {of: dict.fromkeys(named[of]) for of in named}).items():
            try:
                with warnings_once() as of_one:
                    cohort = of_runs(dataset, folders, bool(cfg.model or cfg.folders), gold)
                cohorts.append(replace(cohort, warnings=of_one))
            except UserError as error:
                faults.append(error)
        if not cohorts:
            raise faults[0]
        for fault in faults:
            warn(f"{fault}; left out")
    return [replace(cohort, warnings=[*of_all, *cohort.warnings]) for cohort in cohorts]


def from_arrays(
    dataset: str, models: Sequence[str], question_ids: Sequence[str], outcomes01: npt.ArrayLike
) -> Cohort:
    """Make a cohort from a matrix of outcomes, without run folders.

    Outcomes are 1 correct, 0 not, -1 pending, of shape (L, M, N) for L models and M question ids.

    >>> cohort = from_arrays("coins", ["a", "b"], ["q1"], [[[1, 0]], [[1, -1]]])
    >>> cohort.matrix().tolist(), cohort.names
    ([[[1, 0]], [[1, None]]], ['a', 'b'])
    """
    codes = np.array([WRONG, CORRECT, PENDING], np.int8)[np.asarray(outcomes01, np.int8)]
    unknown = np.full(codes.shape, -1, np.int8)
    return Cohort(dataset, list(question_ids), list(models), [], codes, unknown)


def pooled(cohorts: Sequence[Cohort]) -> Cohort:
    """Stack all questions of several datasets, for the models that all of them hold.

    Models are matched by name; questions are called DATASET/ID. There are no members, since a model
    has a run for each dataset. Raises UserError: no model is in all of them.

    >>> a = from_arrays("a", ["x", "y"], ["1"], [[[1, 0]], [[1, 1]]])
    >>> b = from_arrays("b", ["y", "z"], ["1"], [[[0]], [[1]]])
    >>> both = pooled([a, b])
    >>> both.names, both.question_ids, both.matrix().tolist()
    (['y'], ['a/1', 'b/1'], [[[1, 1], [0, None]]])
    """
    names = [name for name in cohorts[0].names if all(name in c.names for c in cohorts)]
    if not names:
        of = ",".join(cohort.dataset for cohort in cohorts)
        raise UserError(
            f"pooled: no model has runs on all of these datasets; `run model=MODEL dataset={of}`"
            " adds what is missing"
        )
    if len({str(cohort.weights) for cohort in cohorts}) > 1:
        raise UserError("pooled: datasets with different points cannot be pooled")
    trials = max(cohort.outcomes.shape[2] for cohort in cohorts)
    rows = [[cohort.names.index(name) for name in names] for cohort in cohorts]

    def stacked(name: str) -> Codes:
        arrays = [getattr(of, name)[at] for of, at in zip(cohorts, rows, strict=True)]
        return np.concatenate([padded(array, trials) for array in arrays], axis=1)

    return Cohort(
        "pooled",
        [f"{cohort.dataset}/{qid}" for cohort in cohorts for qid in cohort.question_ids],
        names,
        [],
        stacked("outcomes"),
        stacked("truncated"),
        by_line({c.dataset: c.differences for c in cohorts}),
        parts=list(cohorts),
        points=None if cohorts[0].points is None else stacked("points"),
        weights=cohorts[0].weights,
    )


def first_runs(cohorts: Sequence[Cohort]) -> list[Path]:
    """Return the folder of a run of each cohort that has runs."""
    runs = [[*(of.run for of in one.members), *one.gold.values()] for one in cohorts]
    return [of[0].path for of in runs if of]


def by_line(lines: Mapping[str, Iterable[str]]) -> list[str]:
    """Join the lines of several datasets, each line once, behind the names of its datasets.

    >>> by_line({"a": ["trials: x 4"], "b": ["trials: x 4", "dtype: y"]})
    ['a, b: trials: x 4', 'b: dtype: y']
    """
    datasets = dict[str, list[str]]()
    for name, of_dataset in lines.items():
        for line in of_dataset:
            datasets.setdefault(line, []).append(name)
    return [f"{', '.join(names)}: {line}" for line, names in datasets.items()]


def complete(cohort: Cohort, least: int = 2) -> tuple[Bits, list[str]]:
    """Keep the trials that no model lacks for any question: outcomes without gaps.

    Returns outcomes 0 and 1, uint8, shape (L, M, n), and a note where trials were left out. Raises
    UserError: fewer than two models, or fewer than `least` such trials.
    """
    if len(cohort.names) < 2:
        raise UserError(f"{cohort.dataset}: has one model; a ranking needs two or more")
    matrix = scoring.right(cohort.matrix())
    whole = ~np.ma.getmaskarray(matrix).any(axis=(0, 1))  # type: ignore[no-untyped-call]
    count = int(whole.sum())
    kept = f"{count} of {whole.size} trials are complete for all questions and models"
    if count < least:
        remedy = "generate and grade the rest, or name fewer models"
        raise UserError(f"{cohort.dataset}: {kept}; this needs {least} or more: {remedy}")
    gaps = [f"{cohort.dataset}: {kept}; the others are left out"] * (count < whole.size)
    return np.asarray(matrix.data)[..., whole].astype(np.uint8), gaps


def _leave_out(left: Mapping[str, str], strict: bool) -> None:
    """Warn of runs that are left out, by name, and why: those for one reason together."""
    by_reason = dict[str, list[str]]()
    for name, why in left.items():
        if strict:
            raise UserError(f"{name}: {why}")
        by_reason.setdefault(why.replace(name, "RUN"), []).append(name)
    for why, [name, *others] in by_reason.items():
        names = f"{joined([name, *others], 5)} are" if others else f"{name} is"
        warn(f"{names} left out: {why if others else left[name]}")


def of_runs(
    dataset: str, folders: Mapping[Path, Any], named: bool, gold: bool = False, strict: bool = False
) -> Cohort:
    """Read the runs that can be compared, on the questions that they share.

    `folders`: with each None, or its table for `outcomes.read`. Unless runs were `named`, one that
    lacks a question of most runs is left out. `gold`: see `load`.
    """
    runs, golds = _read(folders, gold, strict)
    if golds and not runs:
        [ids, *_] = [[row["question_id"] for row in run.questions] for run in golds.values()]
        none = np.zeros((0, len(ids), 0), np.int8)
        return Cohort(dataset, ids, [], [], none, none, gold=golds)
    if not runs:
        raise UserError(f"{dataset}: no graded run; run `{PROGRAM} run` or `grade` first")
    members, first, unlike = list[Member](), next(iter(runs.values())), dict[str, str]()
    weights, positions = first.graded.weights, {n: of.graded.positions() for n, of in runs.items()}
    for name, rows in _shared(dataset, positions, named).items():
        member = replace(runs[name], rows=rows)
        if empty := int((member.graded.codes[rows] == PENDING).all(axis=1).sum()):
            remedy = f"run `generate` and `grade` on {member.run.path}"
            if "asked" in (headline.stopped(member.run) or {}):
                remedy = "models on samples of a bank are compared by `settle bank=true until=best`"
            unlike[name] = f"{empty} of {len(rows)} questions have no graded attempt; {remedy}"
        elif member.graded.weights != weights:
            unlike[name] = f"its judge's votes, points or weights differ from those of {first.name}"
        else:
            members.append(member)
    _leave_out(unlike, strict)
    if not members:
        raise UserError(f"{dataset}: no run has a graded attempt of every question; finish one")
    # Trials that nobody has yet (a run of a million that has just begun) take no memory.
    begun = [np.flatnonzero((of.graded.codes != PENDING).any(axis=0)) for of in members]
    trials = max(int(of[-1]) + 1 for of in begun)

    def stacked(name: str) -> Any:
        parts = [getattr(of.graded, name)[of.rows] for of in members]
        return np.stack([padded(of, trials) for of in parts])

    return Cohort(
        dataset,
        members[0].question_ids,
        [member.name for member in members],
        members,
        codes := stacked("codes"),
        stacked("truncated"),
        differences({member.name: member.run for member in members}, codes),
        points=None if weights is None else stacked("points"),
        weights=weights,
        gold=golds,
    )


def _read(
    folders: Mapping[Path, Any], gold: bool, strict: bool
) -> tuple[dict[str, Member], dict[str, Run]]:
    """Read runs with outcomes, by name, and if asked for those of gold texts; leave out others."""
    runs, golds, broken = dict[str, Member](), dict[str, Run](), dict[str, str]()
    for name, (folder, table) in zip(selection.names([*folders]), folders.items(), strict=True):
        try:
            run = open_run(folder)
            graded = outcomes.read(run, table=table)
            graded.positions()  # each question has a hash
            if (graded.codes != PENDING).any():
                runs[name] = Member(name, run, graded)
            elif run.cfg.sampling.likelihood != "gold":
                raise headline.without_outcomes(run, graded)
            elif gold:
                golds[name] = run
            else:
                raise UserError(f"{run.path}: has bits per byte and no outcomes; see `score`")
        except (UserError, OSError) as error:
            broken[name] = str(error)
    _leave_out(broken, strict)
    return runs, golds


def padded(codes: Any, trials: int, fill: int = PENDING) -> Any:
    """Cut or fill the last axis to so many trials; PENDING of `truncated` is not known."""
    missing = max(0, trials - codes.shape[-1])
    width = [(0, 0)] * (codes.ndim - 1) + [(0, missing)]
    return np.pad(codes[..., :trials], width, constant_values=fill)


def _shared(
    dataset: str, positions: Mapping[str, Mapping[str, int]], named: bool
) -> dict[str, list[int]]:
    """Find the shared questions of each run that can be compared, by its name: their rows.

    The questions are those of most runs (of the larger set, if two are as frequent). A run that
    lacks some of them is left out, unless runs were named: then what all share is compared.
    """
    sets = Counter(frozenset(of_run) for of_run in positions.values())
    common = frozenset.intersection(*sets)
    basis = common if named else max(sets, key=lambda questions: (sets[questions], len(questions)))
    alone = sets[basis] == 1 and all(basis.isdisjoint(other) for other in sets if other != basis)
    if not basis or (alone and len(positions) > 1):
        names = ", ".join(positions)
        raise UserError(f"{dataset}: {names} share no question; name runs of the same dataset")
    comparable = {name: of_run for name, of_run in positions.items() if basis <= of_run.keys()}
    for name, of_run in positions.items():
        if name not in comparable:
            shared = len(basis & of_run.keys())
            more = "; name runs with model=A,B to compare them on what they share" * bool(shared)
            warn(
                f"{name} is left out: it has {shared} of the {len(basis)} questions of the other"
                f" runs (same text and gold answer){more}"
            )
    order = [question for question in next(iter(comparable.values())) if question in basis]
    return {name: [of_run[mark] for mark in order] for name, of_run in comparable.items()}
