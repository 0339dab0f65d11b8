"""Read the finished runs of a trajectory as arrays along the steps of training."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.score.likelihood import by_question
from bayes_at_n.pipeline.training import protocols, suite
from bayes_at_n.pipeline.training.cells import Row
from bayes_at_n.pipeline.training.protocols import BITS, GREEDY, ONCE, Tokens, stacked, tokens
from bayes_at_n.pipeline.training.windows import Evaluation, Series
from bayes_at_n.scoring.metrics.table import Metric, Summary
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.scoring.numerics.results import sample_sigma


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
        allowed = [metric for metric in protocols.metrics(names) if metric.k <= self.trials]
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
    for evaluation, outcomes in zip(evaluations, stack.matrix(), strict=True):
        run, trials = evaluation.run, evaluation.run.cfg.sampling.trials
        if outcomes.shape[-1] < trials or np.ma.is_masked(outcomes[:, :trials]):
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
    for training, (name, benchmark) in itertools.product(trainings, suite.BENCHMARKS.items()):
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
