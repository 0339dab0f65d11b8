"""What a race is decided from: outcomes and tokens, of the runs of a plan or of complete ones."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.adaptive.plan import Contender
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.store import find, outcomes, runfolder
from bayes_at_n.pipeline.store.outcomes import Codes
from bayes_at_n.pipeline.store.runfolder import Run, opened


class Outcomes(NamedTuple):
    """K models, the M questions of all data sets, N trials."""

    names: list[str]
    codes: Codes  # (K, M, N) 1 correct, 0 not, -1 owed
    tokens: npt.NDArray[np.int64]  # (K, N) sampled for a trial of all questions; 0 where not known
    shared_seeds: bool  # some run's attempts share random numbers

    def spent(self, trials: Sequence[int]) -> list[int]:
        """Tokens of the first so many trials of each model."""
        return [int(of[:n].sum()) for of, n in zip(self.tokens, trials, strict=True)]


def of_contenders(contenders: Sequence[Contender], trials: int) -> Outcomes:
    """What the runs of a plan hold by now, up to so many trials; nothing where none is prepared.

    Raises UserError: two models have other questions.
    """
    known: dict[int, list[str]] = {}
    codes, tokens = [], []
    for contender in contenders:
        of_runs = [_of_run(run, trials) for run in contender.runs]
        for place, (run, (hashes, _, _)) in enumerate(zip(contender.runs, of_runs, strict=True)):
            if hashes and known.setdefault(place, hashes) != hashes:
                raise UserError(
                    f"{run.path}: has other questions than {contenders[0].runs[place].path}"
                )
        codes.append([part for _, part, _ in of_runs])
        tokens.append(sum(part for _, _, part in of_runs))
    sizes = [len(known.get(place, ())) for place in range(len(contenders[0].runs))]
    blank = [np.full((size, trials), -1, np.int8) for size in sizes]
    rows = [
        np.concatenate(
            [part if len(part) else empty for part, empty in zip(of, blank, strict=True)]
        )
        for of in codes
    ]
    return Outcomes([c.name for c in contenders], np.stack(rows), np.stack(tokens), False)


def _of_run(run: Run, trials: int) -> tuple[list[str], Codes, npt.NDArray[np.int64]]:
    """Hashes of questions, outcomes, and tokens by trial; nothing of a run that is not prepared."""
    if not (run.path / "questions.parquet").exists():
        return [], np.empty((0, trials), np.int8), np.zeros(trials, np.int64)
    run = with_trials(run, trials)
    graded = outcomes.read(run, quiet=True)
    return graded.hashes, outcomes.correct(graded.codes).filled(-1), _tokens(run)


def with_trials(run: Run, trials: int) -> Run:
    """The same folder, used with so many trials."""
    return Run(replace(run.cfg, sampling=replace(run.cfg.sampling, trials=trials)))


def reached(run: Run, least: int) -> int:
    """The trials that a folder is used with where it holds all of these; else so many at least.

    Raises UserError: its configuration cannot be read.
    """
    if not (run.path / "questions.parquet").exists():
        return least
    there = opened(run.path)
    trials = there.cfg.sampling.trials
    if trials <= least:
        return least
    ungraded = (outcomes.read(there, quiet=True).codes < 0).any()
    return least if ungraded and runfolder.owed(there) else trials


def _tokens(run: Run, ids: list[str] | None = None) -> npt.NDArray[np.int64]:
    by_trial: npt.NDArray[np.int64] = np.maximum(outcomes.lengths(run, ids).tokens, 0).sum(axis=0)
    return by_trial


def matched(folders: Sequence[str]) -> tuple[Cohort, list[Cohort]]:
    """Runs that folders hold, as one cohort of all questions, and by data set.

    Raises UserError: folders that hold no runs that can be compared.
    """
    runs = [str(run) for text in folders for run in find.within(Path(text).expanduser())]
    cohorts = cohort.load(AnalysisConfig(folders=runs))
    return cohorts[0] if len(cohorts) == 1 else cohort.pooled(cohorts), cohorts


def of_complete(folders: Sequence[str]) -> Outcomes:
    """Complete runs of the same questions; of several data sets, of all their questions together.

    Raises UserError: folders that hold no runs that can be compared.
    """
    whole, cohorts = matched(folders)
    for line in [line for one in cohorts for line in one.warnings]:
        note(line)
    codes = whole.matrix().filled(-1)
    full = (codes >= 0).all(axis=1).cumprod(axis=1).sum(axis=1)  # (K,) trials without a gap
    trials = int(full.min())
    if not trials:
        short = ", ".join(whole.names[k] for k in np.flatnonzero(full == 0))
        raise UserError(f"{short}: the first trial of some question is not graded; replay needs it")
    if (full > trials).any():
        warn(f"only the first {trials} trials count, which all models have of every question")
    members = [member for one in cohorts for member in one.members]
    if any(len(member.question_ids) < len(member.run.questions) for member in members):
        warn(f"only the {codes.shape[1]} questions count that all models have")
    tokens = np.zeros((len(whole.names), trials), np.int64)
    shared = False
    for one in cohorts:
        for member in one.members:
            if member.name not in whole.names:
                continue
            of_run = _tokens(member.run, member.question_ids)[:trials]
            tokens[whole.names.index(member.name), : len(of_run)] += of_run
            sampling = member.run.cfg.sampling
            shared |= sampling.seeds == "shared" and sampling.seed is not None
    return Outcomes(list(whole.names), codes[:, :, :trials], tokens, shared)
