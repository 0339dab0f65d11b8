"""score: outcomes become an M×N matrix, and the matrix a table with honest uncertainty."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import (
    mode,
    note,
    note_alone,
    plural,
    results,
    warn,
)
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.rubrics import categories
from bayes_at_n.pipeline.rubrics.categories import Recorded
from bayes_at_n.pipeline.score import (
    by_category,
    caps,
    likelihood,
    people,
    shown,
    since,
    stated,
    votes,
)
from bayes_at_n.pipeline.score import prior as priors
from bayes_at_n.pipeline.score.current import MADE_FROM, made_from
from bayes_at_n.pipeline.score.headline import headline
from bayes_at_n.pipeline.store import files, labels, outcomes, runfolder
from bayes_at_n.pipeline.store.graded import judge_settings
from bayes_at_n.pipeline.store.outcomes import (
    BOXES,
    CORRECT,
    OUTCOMES,
    PENDING,
    UNDECIDED,
    Outcomes,
)
from bayes_at_n.pipeline.store.runfolder import Run
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
        shown.show(scores, [])
        display.print_json(scores)
        return runfolder.write_json(run.path / "scores.json", scores)
    scores, graded, curve = scored(run, rubrics)
    scores[MADE_FROM] = record
    display.print_json(scores)
    if (own := load_folder(run.path, []).sampling.trials) != run.cfg.sampling.trials:
        return note_alone(f"nothing saved: {run.path} has sampling.trials={own}")
    if curve is not None:
        from bayes_at_n.pipeline.plots.caps import by_cap  # matplotlib takes half a second

        picture = by_cap(curve.rows, curve.title)
        files.write(run.path / "caps", "caps", {}, {"curve": curve}, {"curve": picture})
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
    runfolder.check_same(run, runfolder.identity(run.cfg))
    graded = outcomes.read(run)
    if (graded.codes == PENDING).all():
        if not any(question["gold"] for question in run.questions):
            raise UserError(
                f"{run.path}: nothing graded, and no question has a gold answer; import the records"
                " again with gold=COLUMN or questions=FILE"
            )
        raise shown.without_outcomes(run, graded)
    curve, forecast = caps.read(run, graded.matrix)  # what it refuses, before anything is shown
    dated = since.compared(run, graded.matrix)
    metrics, evidence = _metrics(run, graded)
    mapped = categories.current(run)
    scores = _scores(run, graded, metrics, mapped, evidence)
    if rubrics or mode("verbose"):
        categories.print_rubrics(run, scores.get("rubrics", {}))
    if not rubrics:
        shown.show(scores, metrics)
    shown.warn_of_intervals(scores)
    of_categories = by_category.table(run, graded.matrix, run.cfg.scoring)
    for name, table in (("categories", of_categories), ("caps", curve)):
        if table is not None:
            whole = mode("verbose") or table is not of_categories
            display.show(table if whole else by_category.cut(table))
            scores[name] = [dict(row) for row in table.rows]
    if by_people := people.corrected(run, graded):
        scores["people"], table = by_people
        display.show(table)
    for name, of_answers in (("stated", stated.confidence), ("attempted", stated.attempted)):
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


def _metrics(run: Run, graded: Outcomes) -> tuple[list[Metric], votes.Evidence]:
    """Return the metrics that can be made, and what votes among them take; warn of the others."""
    names = ("bayes", "avg", "bayes-uniform", *run.cfg.scoring.metrics)
    metrics = parse_all(names, run.cfg.scoring.prior)
    least = int((graded.codes != PENDING).sum(axis=1).min())
    short = ", ".join(metric.title() for metric in metrics if metric.k > least)
    if short and run.cfg.scoring.metrics != [*DEFAULT]:  # else nobody asked for them
        warn(f"{short}: left out: some question has only {plural(least, 'graded attempt')}")
    metrics = [metric for metric in metrics if metric.k <= least]
    voting = any(metric.votes for metric in metrics)
    evidence = votes.read(run, graded.question_ids) if voting else votes.NOTHING
    left_out = votes.left_out(metrics, evidence)
    for name, why in left_out.items():
        warn(f"{name}: left out: {why}")
    return [metric for metric in metrics if metric.name not in left_out], evidence


def _scores(
    run: Run,
    graded: Outcomes,
    metrics: Sequence[Metric],
    mapped: Mapping[str, Recorded],
    evidence: votes.Evidence,
) -> Parts:
    """Compute all of `scores.json` but for votes, caps and the forecast."""
    matrix, level = graded.matrix, run.cfg.scoring.confidence
    arrays, drawn = {"outcomes": matrix, **evidence.arrays}, outcomes.clusters(run)
    head = headline(matrix, run.cfg.scoring)
    fitted = {"bayes": Summary(*(head[key] for key in Summary._fields))}  # fitted once
    by_likelihood = likelihood.measured(run) if run.cfg.sampling.likelihood else {}
    if by_likelihood:
        head = likelihood.headline(run, by_likelihood)
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
        scores["headline_if_undecided_were_correct"] = headline(best, run.cfg.scoring)
    if len({*drawn}) > 1 and "avg" in summaries:
        more = scoring.next_attempts(matrix, clusters=drawn)
        fixed = run.cfg.sampling.temperature == 0 or bool(by_likelihood)
        scores["next_attempts"] = shown.next_attempts(more, fixed=fixed)
    if how := shown.stopped(run):
        scores["stopped"] = shown.mean_of_rounds(how, matrix, level)
    if run.cfg.prior.run is not None:
        ids = {mark: graded.question_ids[i] for mark, i in graded.positions().items()}
        prior = priors.load(run.cfg.prior, run, ids)
        scores["prior"] = {"run": str(prior.run.path), "trials": prior.codes.shape[1]}
        if prior.weight is not None:
            scores["prior"]["weight"] = prior.weight
        posterior = scoring.bayes_ci(matrix, None, prior.outcomes(), level, (0.0, 1.0))
        scores["with_prior"] = _named(posterior)
        if line := priors.drifted(prior, matrix, level):
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
