"""A cohort: the runs of one data set that can be compared, as one stack of outcomes.

What is compared must be the same questions: they are matched by their hash (problem and gold
answer), never by their number. A run that does not fit is left out and named; what is merely not
alike (trials, sampling, grading) is compared and said, in `differences`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.console import collected, warn
from pipeline.base.errors import UserError
from pipeline.cohorts import differences
from pipeline.cohorts.differences import Loaded
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.compose import load_folder
from pipeline.score.stage import MISSING, OUTCOMES, as_matrix
from pipeline.store import find, rowkeys, shards
from pipeline.store.columns import GRADES
from pipeline.store.runfolder import Run

_WORDS = np.array([*OUTCOMES, MISSING])  # a code of -1 is the last one


@dataclass(frozen=True)
class Member:
    """One run of a cohort."""

    name: str  # as tables call it, unique within the cohort: the run folder's name
    run: Run
    protocol: dict[str, Any]  # the settings of sampling, prompt and engine
    question_ids: list[str]  # M, the cohort's questions as this run calls them


@dataclass(frozen=True)
class Cohort:
    """L models, M questions that all of them answered, up to N trials of each."""

    dataset: str
    question_ids: list[str]  # M, as the first member calls them
    members: list[Member]  # L; none where outcomes came without runs
    outcomes: npt.NDArray[np.str_]  # (L, M, N) words of pipeline.score.stage.OUTCOMES, or "owed"
    differences: list[str]  # one line for each thing that is not alike
    warnings: list[str] = field(default_factory=list)  # what was left out, or could not be read
    models: list[str] = field(default_factory=list)  # names where there are no members
    # (L, M, N) int8: 1 cut off before a final box, 0 not, -1 not known.
    truncated: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))

    @property
    def names(self) -> list[str]:
        """What tables call the models, L of them, each once."""
        return [member.name for member in self.members] or list(self.models)

    def matrix(self) -> Any:
        """1 correct, 0 not, masked where owed: int8, shape (L, M, N)."""
        return as_matrix(self.outcomes)


def load(cfg: AnalysisConfig) -> list[Cohort]:
    """The cohorts that settings name, one a data set, in the order named.

    Args:
        cfg: `dataset` names folders of `runs` (none: all of them, unless `folders` names run
            folders outright), `model` run folders in each.

    Raises:
        UserError: no such folder, no run in it, no graded attempt, no question that the runs
            share. Where something sound is left it is returned, and the rest named in a warning.
    """
    cohorts: list[Cohort] = []
    faults = []
    with collected() as of_all:
        for dataset, folders in find.named(cfg).items():
            try:
                with collected() as of_one:
                    cohort = _cohort(dataset, folders, bool(cfg.model or cfg.folders))
                cohorts.append(replace(cohort, warnings=of_one))
            except UserError as error:
                faults.append(error)
        if not cohorts:
            raise faults[0]
        for fault in faults:
            warn(f"{fault}; left out")
    return [replace(cohort, warnings=[*of_all, *cohort.warnings]) for cohort in cohorts]


def from_arrays(
    dataset: str,
    models: Sequence[str],
    question_ids: Sequence[str],
    outcomes01: npt.ArrayLike,
) -> Cohort:
    """A cohort from a matrix of outcomes, without run folders.

    Args:
        dataset: its name.
        models: L names, each once.
        question_ids: M ids.
        outcomes01: 1 correct, 0 not, -1 owed; shape (L, M, N).

    Raises:
        ValueError: shapes that do not fit, a name twice, another number.

    >>> made = from_arrays("coins", ["a", "b"], ["q1"], [[[1, 0]], [[1, -1]]])
    >>> made.matrix().tolist(), made.names
    ([[[1, 0]], [[1, None]]], ['a', 'b'])
    """
    codes = np.asarray(outcomes01)
    if codes.shape[:-1] != (len(models), len(question_ids)) or codes.ndim != 3:
        raise ValueError(
            f"outcomes have shape {codes.shape}; there are {len(models)} models and"
            f" {len(question_ids)} questions"
        )
    if len(set(models)) < len(models):
        raise ValueError("models: a name occurs twice")
    if not np.isin(codes, (-1, 0, 1)).all():
        raise ValueError("outcomes must be 1, 0 or -1")
    words = np.array(["wrong", "correct", MISSING])[codes.astype(np.int8)]
    unknown = np.full(codes.shape, -1, np.int8)
    ids, names = list(question_ids), list(models)
    return Cohort(dataset, ids, [], words, [], models=names, truncated=unknown)


def pooled(cohorts: Sequence[Cohort]) -> Cohort:
    """All questions of several data sets as one stack, for the models that all of them hold.

    Models are matched by name; questions are called DATASET/ID. There are no members, since a
    model has a run for each data set.

    Raises:
        UserError: no model is in all of them.

    >>> a = from_arrays("a", ["x", "y"], ["1"], [[[1, 0]], [[1, 1]]])
    >>> b = from_arrays("b", ["y", "z"], ["1"], [[[0]], [[1]]])
    >>> both = pooled([a, b])
    >>> both.names, both.question_ids, both.matrix().tolist()
    (['y'], ['a/1', 'b/1'], [[[1, 1], [0, None]]])
    """
    names = [name for name in cohorts[0].names if all(name in c.names for c in cohorts)]
    if not names:
        raise UserError("pooled: no model is in all of the data sets; nothing to pool")
    trials = max(cohort.outcomes.shape[2] for cohort in cohorts)

    def stacked(arrays: Iterable[Any], empty: Any) -> Any:
        parts = []
        for cohort, array in zip(cohorts, arrays, strict=True):
            rows = array[[cohort.names.index(name) for name in names]]
            width = ((0, 0), (0, 0), (0, trials - array.shape[2]))
            parts.append(np.pad(rows, width, constant_values=empty))
        return np.concatenate(parts, axis=1)

    return Cohort(
        "pooled",
        [f"{cohort.dataset}/{qid}" for cohort in cohorts for qid in cohort.question_ids],
        [],
        stacked((cohort.outcomes for cohort in cohorts), MISSING),
        [f"{c.dataset}: {line}" for c in cohorts for line in c.differences],
        models=names,
        truncated=stacked((cohort.truncated for cohort in cohorts), -1),
    )


def _cohort(dataset: str, folders: Sequence[Path], named: bool) -> Cohort:
    loaded = []
    for name, folder in zip(find.names(folders), folders, strict=True):
        try:
            loaded.append(_read(name, folder))
        except UserError as error:
            warn(f"{name} is left out: {error}")
    if not loaded:
        raise UserError(f"{dataset}: no graded run; run `python -m pipeline run` or `grade` first")
    loaded, shared = _matched(dataset, loaded, named)
    kept = []
    for one in loaded:
        part = one.outcomes[[one.at[key] for key in shared]]
        empty = int((part < 0).all(axis=1).sum())
        if empty:
            warn(
                f"{one.name} is left out: {empty} of {len(shared)} questions have no graded"
                f" attempt; run `generate` and `grade` on {one.run.path}"
            )
        else:
            kept.append(one)
    if not kept:
        raise UserError(f"{dataset}: no run has a graded attempt of every question; finish one")
    # Trials that nobody has yet (a run of a million that has just begun) take no memory.
    trials = max(int(np.flatnonzero((one.outcomes >= 0).any(axis=0))[-1]) + 1 for one in kept)
    codes = np.full((len(kept), len(shared), trials), -1, np.int8)
    truncated = np.full(codes.shape, -1, np.int8)
    for i, one in enumerate(kept):
        rows, width = [one.at[key] for key in shared], min(trials, one.outcomes.shape[1])
        codes[i, :, :width] = one.outcomes[rows, :width]
        truncated[i, :, :width] = one.truncated[rows, :width]
    members = []
    for one in kept:
        ids = [one.run.questions[one.at[key]]["question_id"] for key in shared]
        members.append(Member(one.name, one.run, differences.protocol(one.run), ids))
    return Cohort(
        dataset,
        members[0].question_ids,
        members,
        _WORDS[codes],
        differences.found(kept, len(shared), codes),
        truncated=truncated,
    )


def _read(name: str, folder: Path) -> Loaded:
    run = Run(load_folder(folder, []))
    at: dict[str, int] = {}
    times: Counter[str] = Counter()
    for i, row in enumerate(run.questions):
        mark = row["question_hash"]
        if not mark or row["question_id"] is None:
            raise UserError(f"{run.path}: question {i + 1} has no id or no hash; prepare it again")
        times[mark] += 1
        at[f"{mark} {times[mark]}" if times[mark] > 1 else mark] = i
    shape = (len(at), run.cfg.sampling.trials)
    codes, truncated = np.full(shape, -1, np.int8), np.full(shape, -1, np.int8)
    ids, damage = rowkeys.question_ids(run), shards.Damage()
    columns = ["question_id", "trial", "outcome", "box"]
    for batch in shards.batches(run.grades, GRADES, columns, damage):
        keys = rowkeys.encode(batch, ids)
        good, cell = rowkeys.cells(keys, shape[1])
        codes[cell] = _codes(batch["outcome"], OUTCOMES)[good]
        truncated[cell] = _codes(pc.equal(batch["box"], "truncated"), (False, True))[good]
    if damage.lines:
        warn(f"{name}: grades: {damage}; run `grade` on {run.path} to make them again")
    if (codes < 0).all():
        raise UserError(f"{run.path}: nothing graded yet; run `python -m pipeline grade` first")
    return Loaded(name, run, at, codes, truncated)


def _codes(words: pa.Array, known: Iterable[Any]) -> npt.NDArray[np.int8]:
    found = pc.index_in(words, value_set=pa.array(list(known)))
    codes: npt.NDArray[np.int8] = pc.fill_null(found, -1).to_numpy().astype(np.int8)
    return codes


def _matched(dataset: str, loaded: list[Loaded], named: bool) -> tuple[list[Loaded], list[str]]:
    """The runs that can be compared, and the hashes of the questions that they share.

    The questions are those of most runs (of the larger set, if two are as frequent). A run that
    lacks some of them is left out, unless runs were named: then what all share is compared.
    """
    sets = Counter(frozenset(one.at) for one in loaded)
    common = frozenset.intersection(*sets)
    basis = common if named else max(sets, key=lambda held: (sets[held], len(held)))
    alone = all(basis.isdisjoint(held) for held in sets if held != basis) and sets[basis] == 1
    if not basis or (alone and len(loaded) > 1):
        names = ", ".join(one.name for one in loaded)
        raise UserError(f"{dataset}: {names} share no question; name runs of the same data set")
    kept = [one for one in loaded if basis <= set(one.at)]
    for one in loaded:
        if not basis <= set(one.at):
            shared = len(basis & set(one.at))
            warn(
                f"{one.name} is left out: of the {len(basis)} questions of the others it holds"
                f" {shared} with the same text and gold answer"
                + ("; name runs with model=A,B to compare them on what they share" * bool(shared))
            )
    return kept, [key for key in kept[0].at if key in basis]
