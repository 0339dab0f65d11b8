"""score: outcomes become an M×N matrix, and the matrix a table with honest uncertainty.

Another run as the prior: its trials are evidence from before the first trial of this one. Questions
are matched by their hash; the other run must hold all of this one's. Source: arXiv 2510.04265,
Algorithm 1 (R0); the weight is our addition (docs/scoring.md).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import (
    mode,
    note,
    note_alone,
    percent,
    plural,
    results,
    warn,
)
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.scoring import PriorConfig
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.rubrics import categories
from bayes_at_n.pipeline.rubrics.categories import Recorded
from bayes_at_n.pipeline.score import answers, by_category, caps, headline, labels, likelihood
from bayes_at_n.pipeline.score.headline import MADE_FROM, made_from
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, selection
from bayes_at_n.pipeline.store.outcomes import (
    BOXES,
    CORRECT,
    OUTCOMES,
    PENDING,
    UNDECIDED,
    Codes,
    Outcomes,
    judge_settings,
)
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.scoring import Counts
from bayes_at_n.scoring.metrics import DEFAULT
from bayes_at_n.scoring.metrics.table import Metric, Summary, parse_all
from bayes_at_n.scoring.numerics.inputs import values

Parts = dict[str, Any]


def score(run: Run, rubrics: bool = False) -> None:
    """Score the run's graded attempts: print a table, save `scores.json` and `matrix.npz`.

    With other `sampling.trials` than the folder's nothing is saved. Raises what `scored` does.
    OSError: a file cannot be written.
    """
    labels.keep(run)
    record = made_from(run)  # what is added meanwhile makes the scores stale
    if run.cfg.sampling.likelihood == "gold":
        scores = likelihood.of_gold_texts(run) | {"cost": _cost(run), MADE_FROM: record}
        headline.show(scores, [])
        display.print_json(scores)
        return runfolder.write_json(run.path / "scores.json", scores)
    scores, graded, curve = scored(run, rubrics)
    scores[MADE_FROM] = record
    display.print_json(scores)
    if (own := load_folder(run.path, []).sampling.trials) != run.cfg.sampling.trials:
        return note_alone(f"nothing saved: {run.path} has sampling.trials={own}")
    if curve is not None:
        from bayes_at_n.pipeline.plots.scores import by_cap  # matplotlib takes half a second

        picture = by_cap(curve.rows, curve.title)
        selection.write_results(run.path / "caps", "caps", {}, {"curve": curve}, {"curve": picture})
        note(f"saved {run.path / 'caps'}")
    with atomic.replacing(run.path / "matrix.npz") as file:
        np.savez(
            file,
            R=graded.matrix.filled(-1),
            outcomes=outcomes.words(graded.codes),
            question_ids=np.array(graded.question_ids, dtype=str),
        )
    runfolder.write_json(run.path / "scores.json", scores)
    note_alone(f"saved {run.path / 'scores.json'} and matrix.npz")


def scored(run: Run, rubrics: bool = False) -> tuple[Parts, Outcomes, Table | None]:
    """Compute and print what `scores.json` is to hold; write nothing.

    `rubrics`: print their scores, not metrics. Returns also outcomes and the curve of `caps=`.
    Raises UserError: nothing is graded, or settings ask what the attempts do not tell.
    """
    runfolder.check_same(run, provenance.identity(run.cfg))
    graded = outcomes.read(run)
    if (graded.codes == PENDING).all():
        if not any(question["gold"] for question in run.questions):
            raise UserError(
                f"{run.path}: nothing graded, and no question has a gold answer; import the records"
                " again with gold=COLUMN or questions=FILE"
            )
        raise headline.without_outcomes(run, graded)
    curve, forecast = caps.read(run, graded.matrix)  # what it refuses, before anything is shown
    dated = by_category.since(run, graded.matrix)
    metrics, evidence = _metrics(run, graded)
    mapped = categories.current(run)
    scores = _scores(run, graded, metrics, mapped, evidence)
    if rubrics or mode("verbose"):
        categories.print_rubrics(run, scores.get("rubrics", {}))
    if not rubrics:
        headline.show(scores, metrics)
    headline.warn_of_intervals(scores)
    of_categories = by_category.table(run, graded.matrix, run.cfg.scoring)
    for name, table in (("categories", of_categories), ("caps", curve)):
        if table is not None:
            whole = mode("verbose") or table is not of_categories
            display.show(table if whole else by_category.cut(table))
            scores[name] = [dict(row) for row in table.rows]
    if by_people := labels.corrected(run, graded):
        scores["people"], table = by_people
        display.show(table)
    for name, of_answers in (("stated", answers.stated), ("attempted", answers.attempted)):
        if measured := of_answers(run, graded):
            scores[name], line = measured
            results.print(line)
    if dated is not None:
        scores["since"] = dated
        results.print(dated["sentence"])
    if forecast is not None:
        scores["forecast"], line = forecast
        results.print(line)
    if decided := outcomes.deciders_line(run, graded):
        results.print(decided)
    before = runfolder.read_json(run.path / "scores.json")
    if before and before.get("judge", {}).get("by") != judge_settings(run):
        note("score: the previous scores used another grader or verifier")
    if lacking := int((graded.codes == PENDING).sum()):
        of = f"{lacking} of {graded.codes.size} attempts"
        warn(f"{of} are pending, ungraded or unjudged; they are left out, not counted as wrong")
    if cut := runfolder.continuing(run):
        warn(f"{len(cut)} truncated attempts count as truncated until `run` continues them")
    return scores, graded, curve


def _metrics(run: Run, graded: Outcomes) -> tuple[list[Metric], answers.Evidence]:
    """Return the metrics that can be made, and what votes among them take; warn of the others."""
    names = ("bayes", "avg", "bayes-uniform", *run.cfg.scoring.metrics)
    metrics = parse_all(names, run.cfg.scoring.prior)
    least = int((graded.codes != PENDING).sum(axis=1).min())
    short = ", ".join(metric.title() for metric in metrics if metric.k > least)
    if short and run.cfg.scoring.metrics != [*DEFAULT]:  # else nobody asked for them
        warn(f"{short}: left out: some question has only {plural(least, 'graded attempt')}")
    metrics = [metric for metric in metrics if metric.k <= least]
    voting = any(metric.votes for metric in metrics)
    evidence = answers.evidence(run, graded.question_ids) if voting else answers.NOTHING
    left_out = answers.left_out(metrics, evidence)
    for name, why in left_out.items():
        warn(f"{name}: left out: {why}")
    return [metric for metric in metrics if metric.name not in left_out], evidence


def _scores(
    run: Run,
    graded: Outcomes,
    metrics: Sequence[Metric],
    mapped: Mapping[str, Recorded],
    evidence: answers.Evidence,
) -> Parts:
    """Compute all of `scores.json` but for votes, caps and the forecast."""
    matrix, level = graded.matrix, run.cfg.scoring.confidence
    arrays, drawn = {"outcomes": matrix, **evidence.arrays}, outcomes.clusters(run)
    head = headline.compute(matrix, run.cfg.scoring)
    fitted = {"bayes": Summary(*(head[key] for key in Summary._fields))}  # fitted once
    by_likelihood = likelihood.measured(run) if run.cfg.sampling.likelihood else {}
    if by_likelihood:
        head = likelihood.as_headline(run, by_likelihood)
    try:
        summaries = {
            metric.name: fitted.get(metric.name) or metric.summary(metric.given(arrays), level)
            for metric in metrics
        }
    except ValueError as error:  # of a user's own
        raise UserError(f"scoring.metrics: {one_line(error)}") from error
    errors = {m.name: {"error": m.error(m.given(arrays))} for m in metrics if m.error is not None}
    scores: Parts = {
        "run": str(run.path),
        "model": run.cfg.model.name,
        "dataset": run.cfg.dataset.name,
        "questions": len(graded.question_ids),
        "clusters": len({*drawn}),
        "trials": int((graded.codes != PENDING).sum(axis=1).max()),
        "attempts": int((graded.codes != PENDING).sum()),
        "confidence": level,
        "headline": head,
        **({"likelihood": by_likelihood} if by_likelihood else {}),
        **({"judge": {"by": by, **graded.deciders()}} if (by := judge_settings(run)) else {}),
        "uniform_prior": _uniform_prior(graded, summaries, level, drawn),
        "metrics": {name: of._asdict() | errors.get(name, {}) for name, of in summaries.items()},
    }
    undecided = np.isin(graded.codes, UNDECIDED)
    failed = run.cfg.dataset.answer == "code"  # a program that takes too long
    if undecided.any() and graded.points is None and not failed:
        best = outcomes.correct(np.where(undecided, CORRECT, graded.codes))
        scores["headline_if_undecided_were_correct"] = headline.compute(best, run.cfg.scoring)
    if len({*drawn}) > 1 and "avg" in summaries:
        more = scoring.next_attempts(matrix, clusters=drawn)
        fixed = run.cfg.sampling.temperature == 0 or bool(by_likelihood)
        scores["next_attempts"] = headline.next_attempts(more, fixed=fixed)
    if how := headline.stopped(run):
        scores["stopped"] = headline.mean_of_rounds(how, matrix, level)
    if run.cfg.prior.run is not None:
        ids = {mark: graded.question_ids[i] for mark, i in graded.positions().items()}
        prior = load_prior(run.cfg.prior, run, ids)
        scores["prior"] = {"run": str(prior.run.path), "trials": prior.codes.shape[1]}
        if prior.weight is not None:
            scores["prior"]["weight"] = prior.weight
        posterior = scoring.bayes_ci(matrix, None, prior.outcomes(), level, (0.0, 1.0))
        scores["with_prior"] = _named(posterior)
        if line := prior_drift(prior, matrix, level):
            warn(line)
    scores["shares"] = _shares(graded, run.cfg.boxed)
    if graded.points is not None:
        scores["points"] = _points(run, graded)
    if mapped:
        scores["rubrics"] = categories.rubric_scores(run, mapped)
    return scores | {"cost": _cost(run)}


def _uniform_prior(
    graded: Outcomes, summaries: Mapping[str, Summary], level: float, drawn: Sequence[str]
) -> Parts:
    """Compute Bayes@N and avg@N with what stands beside them, and Pass@k of every k asked for."""
    matrix = graded.matrix
    bayes = _named(summaries["bayes-uniform"])
    if (summary := summaries.get("avg")) is None:  # a question has no trial
        return {"bayes": bayes}
    avg = _named(summary, "mean")
    luck = scoring.inflation(matrix, confidence=level)
    if np.isfinite(luck.high):  # else nothing is known
        sigma = summary.sigma * max(luck.value, 1.0) ** 0.5
        avg["inflation"] = luck._asdict() | {"sigma": sigma}
    if len({*drawn}) > 1:
        avg["stderr_over_questions"] = scoring.question_stderr(matrix, clusters=drawn)
        avg["other_questions"] = scoring.pool_ci(matrix, None, level, drawn)._asdict()
    passes = {n.removeprefix("pass@"): of.value for n, of in summaries.items() if n[:5] == "pass@"}
    return {"bayes": bayes, "avg": avg, "pass_at_k": passes}


def _named(summary: Sequence[float], mean: str = "mu") -> Parts:
    return dict(zip((mean, "sigma", "low", "high"), summary, strict=True))


def _shares(graded: Outcomes, boxed: bool) -> dict[str, float]:
    """Compute the shares of outcomes, and of what explains a missing answer."""
    counts = {name: (graded.codes == code).sum() for code, name in enumerate(OUTCOMES)}
    boxes = {name: (graded.boxes == code).sum() for code, name in enumerate(BOXES)}
    unboxed = boxes["no_box"] + boxes["unclosed"]
    counts |= {"truncated": boxes["truncated"], "unboxed": unboxed * boxed}
    return {name: float(of / (graded.codes != PENDING).sum()) for name, of in counts.items()}


def _points(run: Run, graded: Outcomes) -> Parts:
    """Compute the shares of points, or of means of votes, and the mean of each question."""
    points, weights = np.ma.masked_equal(graded.points, PENDING), [*(graded.weights or ())]  # type: ignore[no-untyped-call]
    shares = np.bincount(points.compressed(), minlength=len(weights)) / points.count()
    said, of, names = run.cfg.verifier, f"points of {len(weights) - 1}", [*range(len(weights))]
    if said.ballots > 1 and said.judgement.votes == "mean":
        points, of, names = values(graded.matrix), f"means of {said.ballots} votes", weights
    means = zip(graded.question_ids, points.mean(axis=1).tolist(), strict=True)
    record = {"of": of, "names": names, "weights": weights, "shares": shares.tolist()}
    return record | {"by_question": dict(means)}


def _cost(run: Run) -> Parts:
    usage = outcomes.usage(run)
    spent = usage.spent
    return {
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens": usage.prompt_tokens,
        "sessions": spent.sessions,
        "wall_s": round(spent.wall_s, 3),
        "gpu_hours": None if spent.gpu_s is None else round(spent.gpu_s / 3600, 4),
        "tokens_per_s": round(spent.completion_tokens / spent.wall_s, 1) if spent.wall_s else None,
    } | ({} if usage.price is None else {"price": usage.price})


class Prior(NamedTuple):
    """A run whose trials are the prior of M questions of another one."""

    run: Run
    rows: list[int]  # M: where the run has each question
    codes: Codes  # (M', N') outcomes of its own questions in the trials that count
    weight: float | None  # of how many trials of a question they have; None: of N'

    def outcomes(self) -> Counts:
        """Return R0 of wrong and correct answers: counts (M, 2)."""
        right, graded = self.codes == CORRECT, self.codes != PENDING
        own = np.stack([of.sum(axis=1) for of in (graded & ~right, right)], axis=-1)
        return scoring.down_weight(Counts(own[self.rows]), self.weight or self.codes.shape[1], 2)


def prior_drift(prior: Prior, matrix: Any, confidence: float) -> str:
    """Say that a prior's attempts are unlike those of the run, (M, N); empty where they are not."""
    if not matrix.count(axis=1).all():
        return ""
    trials = (prior.codes != PENDING).sum(axis=1)[prior.rows]
    found = scoring.prior_drift(matrix, prior.outcomes(), trials, confidence)
    if found.p >= scoring.DRIFT_LEVEL:
        return ""
    return (
        f"prior={prior.run.path}: was {'better' if found.z > 0 else 'worse'} than this run (z ="
        f" {abs(found.z):.1f}; another checkpoint?); with it the {percent(confidence)} interval"
        f" holds the truth in about {found.coverage:.0%}: prior.weight=1 or none"
    )


def load_prior(cfg: PriorConfig, run: Run, marks: Mapping[str, str]) -> Prior:
    """Load the prior that settings name for a run.

    `marks`: its questions, M, as `Outcomes.positions` calls them, with their ids. Where `prior.run`
    is no run folder but holds one of the run's name, that is the prior. Raises UserError: no such
    run, or one that does not fit.
    """
    path = Path(str(cfg.run)).expanduser()
    if run.cfg.point_weights:
        raise UserError(f"prior={path}: not for points; leave it out")
    if not (path / "config.yaml").exists() and (path / run.path.name).is_dir():
        path /= run.path.name
    try:
        other = open_run(path)
        earlier = outcomes.read(other)
        rows = earlier.positions()
    except UserError as error:
        raise UserError(f"prior={path}: {error}") from error
    if other.path.resolve() == run.path.resolve():
        raise UserError(f"prior={path}: is this run itself, so its trials would count twice")
    if missing := [name for mark, name in marks.items() if mark not in rows]:
        lacks = f"{len(missing)} of this run's questions ({', '.join(missing[:3])})"
        raise UserError(f"prior={path}: lacks {lacks}; name a run of the same questions")
    trials = cfg.trials or earlier.codes.shape[1]
    complete = int((earlier.codes != PENDING).all(axis=0).cumprod().sum())
    if complete < (trials if cfg.weight is None else 1) or earlier.codes.shape[1] < trials:
        why = f"of {path} only the first {complete} trials are graded"
        raise UserError(f"prior.trials={trials}: {why}")
    return Prior(other, [rows[mark] for mark in marks], earlier.codes[:, :trials], cfg.weight)
