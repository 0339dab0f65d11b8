"""Read the finished runs of a trajectory as arrays along the steps of training, by protocol."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.console import console, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.compare.differences import protocol
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.multirun import PriceSettings
from bayes_at_n.pipeline.score.likelihood import accuracy, by_question
from bayes_at_n.pipeline.store import outcomes, selection, shards
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.pipeline.training.cells import Row
from bayes_at_n.pipeline.training.windows import BENCHMARKS, Evaluation, Series
from bayes_at_n.scoring.metrics import forecast, table
from bayes_at_n.scoring.metrics.probability import question_mean
from bayes_at_n.scoring.metrics.table import Metric, Summary
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.scoring.numerics.results import sample_sigma

ALL, COMMON = "all", "common"  # steps of a row of stability
TWIN = "-greedy"  # ends the name of a greedy run beside a sampled one
AVG, BAYES = "avg", "bayes"
PASS = "pass@"  # begins the names of Pass@k
AVERAGES = (AVG, BAYES, f"{PASS}1")
"""Metrics that order models alike if all questions have the same number of trials."""
AVERAGE = table.parse(AVG)


def _without_interval(R: Any, **_: Any) -> Summary:
    return Summary(np.asarray(AVERAGE.estimate(R)), None, None, None)


GREEDY = replace(AVERAGE, name="greedy", label="greedy", interval=_without_interval)
"""The share of correct greedy attempts, (..., M, 1); not random, so without an interval."""


def _over_questions(R: Any, confidence: float, **_: Any) -> Summary:
    if R.dtype.kind != "f":
        return accuracy(R[..., 0], confidence, None)
    found = question_mean(R[..., 0], confidence)
    return found._replace(high=np.minimum(found.high, 0.0))  # minus bits per byte


ONCE = replace(AVERAGE, label="accuracy", interval=_over_questions)  # not random, (n, M, 1)
BITS = replace(ONCE, label="-bits per byte")


def metrics(names: Iterable[str]) -> list[Metric]:
    """List avg and bayes, with which all others are compared, and then the metrics in `names`.

    >>> [metric.title(80) for metric in metrics(["pass@2", "avg", "maj@4"])]
    ['avg@80', 'Bayes@80', 'Pass@2', 'Maj@4']
    """
    return table.parse_all([AVG, BAYES, *names])


def largest_k(names: Iterable[str]) -> int:
    """Return the largest k of Pass@k among names of metrics; 1 without any.

    >>> largest_k(["avg", "pass@2", "pass@16", "maj@64"])
    16
    """
    return max((int(m.removeprefix(PASS)) for m in names if m.startswith(PASS)), default=1)


class Tokens(NamedTuple):
    """Mean tokens of an evaluation; None if some run, such as an imported one, has no record."""

    prompt: float | None
    completion: float | None  # per attempt


def tokens(runs: Sequence[Run]) -> Tokens:
    """Average the tokens of prompts and of completions over runs."""
    usages = [outcomes.usage(run) for run in runs]
    return Tokens(
        _mean([usage.prompt_mean for usage in usages]),
        _mean([usage.completion_mean for usage in usages]),
    )


def _mean(means: Sequence[float | None]) -> float | None:
    recorded = [mean for mean in means if mean is not None]
    return float(np.mean(recorded)) if recorded and len(recorded) == len(means) else None


def evaluation_cost(
    used: Tokens, questions: int, trials: float, prices: PriceSettings
) -> float | None:
    """Compute the cost of `trials` attempts by one model at every question.

    Prices are per million tokens. None if tokens are not recorded. Source: MaP, appendix C.
    """
    if used.prompt is None or used.completion is None:
        return None
    per_question = forecast.sampling_cost(used.prompt, used.completion, trials, **vars(prices))
    return float(per_question * questions / outcomes.MILLION)


def stacked(folders: Sequence[Path], like: Cohort | None = None) -> Cohort:
    """Read runs as one stack of outcomes, in the order of their folders.

    `like`: a stack that must have the same questions. Raises UserError: runs of several datasets;
    a run that cannot be read, is not graded, or has other questions than the rest.
    """
    with console.capture():  # a run that is left out raises below, and one line is enough
        stacks = cohorts.load(AnalysisConfig(folders=[str(folder) for folder in folders]))
    if len(stacks) > 1:
        raise UserError(
            f"the runs are of several datasets ({', '.join(stack.dataset for stack in stacks)});"
            " name runs of one dataset"
        )
    [stack] = stacks
    if left_out := [line for line in stack.warnings if " is left out: " in line]:
        raise UserError(left_out[0])
    first = (like or stack).members[0].run
    expected = {row["question_hash"] for row in first.questions}
    for run in (member.run for member in stack.members):
        hashes = {row["question_hash"] for row in run.questions}
        if hashes != expected:
            raise UserError(
                f"{run.path}: {len(hashes & expected)} of its {len(hashes)} questions are among the"
                f" {len(expected)} of {first.path}; evaluate all models on the same questions"
            )
    for line in stack.warnings:
        warn(line)
    return stack


def greedy_twins(sampled: Sequence[Path]) -> list[Path] | None:
    """Return the graded greedy runs beside run folders; None unless each has one."""
    folders = [path.with_name(path.name + TWIN) for path in sampled]
    if not all(map(selection.is_run, folders)):
        return None
    runs = [open_run(folder) for folder in folders]
    # Imported records may not state it: None
    temperatures = [protocol(run)["sampling.temperature"] for run in runs]
    greedy = not any(temperatures) and all(shards.files(run.grades) for run in runs)
    return folders if greedy else None


class Track(NamedTuple):
    """One training run on one dataset with one window size: n models along training."""

    training: str
    dataset: str
    window: int  # 1: single checkpoints
    steps: Ints  # (n,)
    names: list[str]  # of the models, n
    R: Any  # outcomes (n, M, N), 1 correct, 0 not
    greedy: Any  # outcomes of greedy attempts (n, M, 1); None without greedy runs
    tokens: Tokens
    greedy_tokens: Tokens
    fixed: bool = False  # answers are not random; R: outcomes (n, M, 1), or minus bits per byte

    @property
    def trials(self) -> int:
        """N."""
        return int(self.R.shape[-1])

    def select(self, steps: Sequence[int]) -> "Track":
        """Return the track at some of its steps."""
        index = np.flatnonzero(np.isin(self.steps, steps))
        return self._replace(
            steps=self.steps[index],
            names=[self.names[i] for i in index],
            R=self.R[index],
            greedy=None if self.greedy is None else self.greedy[index],
        )

    def metrics(self, names: Sequence[str]) -> list[Metric]:
        """List the metrics that the attempts allow; greedy decoding comes first."""
        if self.fixed:
            return [BITS if self.R.dtype.kind == "f" else ONCE]
        allowed = [metric for metric in metrics(names) if metric.k <= self.trials]
        return [*[GREEDY] * (self.greedy is not None), *allowed]

    def summary(self, metric: Metric, confidence: float) -> Summary:
        """Compute a metric along the steps, (n,) each, with its interval if it has one."""
        metric = self.metrics(())[0] if self.fixed else metric
        R = self.greedy if metric is GREEDY else self.R
        return metric.summary(R, confidence)

    def apart(self, R: Any, *sigmas: Any) -> tuple[Any, ...]:
        """Return two σ that make up that of the difference to R; if fixed, over questions."""
        if not self.fixed:
            return sigmas
        return sample_sigma((self.R - R)[..., 0].astype(float))[0], 0.0

    def labels(self, metric: Metric, trials: int | str | None = None) -> Row:
        """Return the cells that name a row's protocol; `trials` replaces the number of trials."""
        return {
            "training": self.training,
            "dataset": self.dataset,
            "window": self.window,
            "metric": metric.name,
            "protocol": f"Merge@{self.window}, {metric.title(trials or self.trials)}",
        }


def read(series: Series) -> list[Track]:
    """Read the tracks of a series of complete runs, by training run, dataset and window.

    A dataset that is never sampled has one trial, the greedy attempt or the likeliest option.
    Raises UserError: two runs have different questions; an attempt has no grade.
    """
    tracks: list[Track] = []
    for dataset in series.datasets:
        own = [e for e in series.evaluations if e.dataset == dataset]
        twins = [e for e in own if e.kind]
        evaluations = [e for e in own if not e.kind]
        if not evaluations:
            evaluations, twins = twins, []
        if evaluations[0].run.cfg.sampling.likelihood == "gold":
            bits = [by_question(e.run)[0]["bits_per_byte"] for e in evaluations]
            tracks += _tracks(evaluations, [], -np.stack(bits)[..., None], None)
            continue
        sampled = _stack(evaluations)
        greedy = _stack(twins, sampled) if twins else None
        matrices = [of and of.matrix().data for of in (sampled, greedy)]
        tracks += _tracks(evaluations, twins, *matrices)
    trainings = [training.name for training in series.trainings]
    return sorted(tracks, key=lambda track: trainings.index(track.training))


def _stack(evaluations: Sequence[Evaluation], like: Cohort | None = None) -> Cohort:
    """Stack the runs of one dataset. Raises UserError: an attempt has no grade."""
    stack = stacked([evaluation.run.path for evaluation in evaluations], like)
    for evaluation, matrix in zip(evaluations, stack.matrix(), strict=True):
        run, trials = evaluation.run, evaluation.run.cfg.sampling.trials
        if matrix.shape[-1] < trials or np.ma.is_masked(matrix[:, :trials]):
            raise UserError(f"{run.path}: not every attempt has a grade; run `grade` on it")
    return stack


def _tracks(
    evaluations: Sequence[Evaluation], twins: Sequence[Evaluation], sampled: Any, greedy: Any
) -> Iterator[Track]:
    """Split stacks (all, M, N) of one dataset into tracks, by training run and window size."""
    trials = evaluations[0].run.cfg.sampling.trials

    def key(i: int) -> tuple[str, int]:
        return evaluations[i].window.training, evaluations[i].window.size

    for (training, size), group in itertools.groupby(sorted(range(len(evaluations)), key=key), key):
        index = [*group]
        windows = [evaluations[i].window for i in index]
        yield Track(
            training,
            evaluations[0].dataset,
            size,
            np.array([window.step for window in windows]),
            [window.name for window in windows],
            sampled[index][..., :trials],
            None if greedy is None else greedy[index][..., :1],
            tokens([evaluations[i].run for i in index]),
            tokens([twins[i].run for i in index] if twins else []),
            trials == 1 and not evaluations[0].run.cfg.sampling.temperature,
        )


def combined(tracks: Sequence[Track]) -> list[Track]:
    """Name tracks after their benchmarks; the parts of one become one list of questions.

    The order stays that of `read`: training run, benchmark, window.
    """
    found: list[Track] = []
    by_key = {(track.training, track.window, track.dataset): track for track in tracks}
    windows = list(dict.fromkeys(track.window for track in tracks))
    trainings = dict.fromkeys(track.training for track in tracks)
    for training, (name, benchmark) in itertools.product(trainings, BENCHMARKS.items()):
        for window in windows:
            parts = [by_key.get((training, window, dataset)) for dataset in benchmark.datasets]
            first, *more = parts
            if first is None:  # a training that is watched has no such window yet
                continue
            if more:
                R = np.concatenate([part.R for part in parts if part is not None], axis=1)
                first = first._replace(R=R, tokens=Tokens(None, None))
            found.append(first._replace(dataset=name))
    return found


def by_training(tracks: Sequence[Track]) -> list[list[Track]]:
    """Group tracks, one per window size, by training run and dataset."""
    groups = itertools.groupby(tracks, lambda track: (track.training, track.dataset))
    return [[*windows] for _, windows in groups]


def common_steps(tracks: Sequence[Track]) -> list[int]:
    """List the steps that all tracks have, in the order of training."""
    shared = set.intersection(*(set(track.steps.tolist()) for track in tracks))
    return [step for step in tracks[0].steps.tolist() if step in shared]
