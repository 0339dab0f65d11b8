"""score: outcomes become an M×N matrix, and the matrix a table with honest uncertainty."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import asked, counted, mention, note, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.rubrics import categories, signals
from bayes_at_n.pipeline.rubrics.categories import Recorded
from bayes_at_n.pipeline.score import caps, shown, stopped, votes
from bayes_at_n.pipeline.score import prior as priors
from bayes_at_n.pipeline.store import files, options, origin, outcomes, runfolder, tables, verdicts
from bayes_at_n.pipeline.store.outcomes import BOXES, CORRECT, OUTCOMES, OWED, UNDECIDED, Outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.table import Metric, Summary, parse, parse_all
from bayes_at_n.verifiers import LETTERS

VERSION = 1  # raise it whenever scores change
MADE_FROM = "made_from"  # in scores.json
_SOURCES = ("categories", categories.THRESHOLDS, "manifest.json")  # beside those of signals
Parts = dict[str, Any]


class Scored(NamedTuple):
    """What `scores.json` is to hold, and what it is made from."""

    scores: Parts
    graded: Outcomes
    mapped: Mapping[str, Recorded]
    curve: Table | None


def score(run: Run, rubrics: bool = False) -> None:
    """Score the run's graded attempts: a table, `scores.json` and `matrix.npz`.

    Raises what `scored` does. OSError: a file cannot be written.
    """
    record = made_from(run)  # what is added meanwhile makes the scores stale
    scores, graded, mapped, curve = scored(run, rubrics)
    scores[MADE_FROM] = record
    display.answer(scores)
    if curve is not None:
        _save_curve(run, curve)
    with atomic.replacing(run.path / "matrix.npz") as file:
        np.savez(
            file,
            R=outcomes.correct(graded.codes).filled(-1),
            outcomes=outcomes.words(graded.codes),
            question_ids=np.array(graded.question_ids, dtype=str),
        )
    runfolder.write_json(run.path / "scores.json", scores)
    if pictures := categories.draw(run, mapped):
        mention(f"drew {len(pictures)} pictures of category shares in {pictures[0].parent}")
    mention(f"saved {run.path / 'scores.json'} and matrix.npz")


def made_from(run: Run) -> Parts:
    """What scores are made from: the version, hashes of settings, and what each table holds."""
    cfg, sessions = run.cfg, sorted((run.path / "sessions").glob("*.json"))
    engine = {name: getattr(cfg.engine, name) for name in ("price_in", "price_out")}
    sizes = [cfg.sampling.trials, cfg.sampling.max_tokens]
    settings = [cfg.model.name, cfg.dataset.name, str(run.path), *sizes, engine]
    settings += [asdict(cfg.scoring), asdict(cfg.prior)]
    earlier = {}
    if cfg.prior.run is not None:
        folder = Path(cfg.prior.run).expanduser()
        folders = (folder, folder / run.path.name)
        earlier = {str(one): tables.marks(one, *signals.SOURCES) for one in folders}
    spent = tables.marks(run.path, *(f"sessions/{path.name}" for path in sessions))
    return {
        "version": VERSION,
        "settings": origin.hashed(settings),
        "signals": signals.made_from(run),
        "prior": origin.hashed(earlier),
        "others": origin.hashed([tables.marks(run.path, *_SOURCES), spent]),
    }


def is_current(run: Run) -> bool:
    """Whether `scores.json` is what the stage would make now."""
    scores = runfolder.read_json(run.path / "scores.json")
    return scores.get(MADE_FROM) == made_from(run) and (run.path / "matrix.npz").exists()


def stale(run: Run) -> dict[Path, str]:
    """Return `scores.json` where the stage would make another one now."""
    path = run.path / "scores.json"
    return {path: "tables or settings"} if path.exists() and not is_current(run) else {}


def scored(run: Run, rubrics: bool = False) -> Scored:
    """What `scores.json` is to hold, printed; nothing is written.

    `rubrics`: print scores of rubrics instead of metrics. Raises UserError: nothing is graded, or
    the prior run does not fit.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    graded = outcomes.read(run)
    owed = graded.codes == OWED
    if owed.all():
        verb = "grade" if (graded.ruled == OWED).all() else "verify"
        raise UserError(f"{run.path}: nothing graded yet; run `{PROGRAM} {verb}` first")
    # What cannot be told is refused before anything is shown.
    setting, curve, forecast = run.cfg.scoring, None, None
    if setting.caps or setting.forecast:
        lengths = outcomes.lengths(run)
        curve = caps.table(run, graded.codes, lengths) if setting.caps else None
        forecast = caps.forecast(run, graded.codes, lengths) if setting.forecast else None
    metrics = _measurable(run, graded)
    evidence = votes.read(run) if any(m.votes for m in metrics) else votes.NOTHING
    left_out = votes.left_out(metrics, evidence)
    for name, why in left_out.items():
        warn(f"{name}: left out: {why}")
    metrics = [m for m in metrics if m.name not in left_out]
    mapped = categories.current(run)
    scores = _scores(run, graded, metrics, mapped, evidence)
    if rubrics or asked("verbose"):
        categories.print_rubrics(run, scores.get("rubrics", {}))
    if not rubrics:
        shown.show(scores, metrics)
    shown.beware(scores)
    if evidence.arrays:
        of_run = {run.cfg.model.name: (evidence.arrays["answers"], evidence.texts)}
        swings = votes.swings(graded.question_ids, of_run)
        display.show(swings)
        scores["votes"] = [dict(row) for row in swings.rows]
    if curve is not None:
        display.show(curve)
        scores["caps"] = [dict(row) for row in curve.rows]
    if forecast is not None:
        scores["forecast"], line = forecast
        results.print(line)
    _tell_what_is_owed(run, graded)
    return Scored(scores, graded, mapped, curve)


def _tell_what_is_owed(run: Run, graded: Outcomes) -> None:
    """Say who decided the outcomes, and which are lacking."""
    if decided := outcomes.who(run, graded):
        results.print(decided)
    before = runfolder.read_json(run.path / "scores.json")
    if before and before.get("judge", {}).get("by") != verdicts.settings(run):
        note("score: another grader or verifier decided the outcomes of the scores before these")
    if lacking := int((graded.codes == OWED).sum()):
        of = f"{lacking} of {graded.codes.size} attempts"
        warn(f"{of} are still owed, ungraded or unjudged; none is counted as wrong")
    if cut := runfolder.continuing(run):
        warn(f"{len(cut)} truncated attempts count as cut off until `run` has continued them")


def _save_curve(run: Run, table: Table) -> None:
    """Keep the curve of caps in five forms, with a picture where one is wanted."""
    pictures = {}
    if run.cfg.scoring.plots:
        from bayes_at_n.pipeline.plots import caps as plots  # matplotlib takes half a second

        pictures["curve"] = plots.by_cap(table.rows, table.title)
    written = files.write(run.path / "caps", "caps", {}, {"curve": table}, pictures)
    note(f"saved {written[0].parent}")


def _measurable(run: Run, graded: Outcomes) -> list[Metric]:
    """The metrics that were asked for and that every question has the trials for."""
    trials = (graded.codes != OWED).sum(axis=1)
    first = run.cfg.scoring.headline  # and the other beside it, so that none misleads
    asked = dict.fromkeys([first, "bayes", "avg", *run.cfg.scoring.metrics])
    metrics = parse_all([*asked])
    short = [metric for metric in metrics if metric.k > trials.min()]
    if short:
        names = ", ".join(metric.title() for metric in short)
        least = counted(int(trials.min()), "graded attempt")
        warn(f"{names}: left out: a question has only {least}")
    return [metric for metric in metrics if metric not in short]


def _scores(
    run: Run,
    graded: Outcomes,
    metrics: list[Metric],
    mapped: Mapping[str, Recorded],
    evidence: votes.Evidence,
) -> Parts:
    """All that `scores.json` holds."""
    matrix, level = outcomes.correct(graded.codes), run.cfg.scoring.confidence
    arrays = {"outcomes": matrix, **evidence.arrays}
    summaries = {metric.name: metric.summary(metric.given(arrays), level) for metric in metrics}
    errors = {m.name: m.error(m.given(arrays)) for m in metrics if m.error is not None}
    scores: Parts = {
        "run": str(run.path),
        "model": run.cfg.model.name,
        "dataset": run.cfg.dataset.name,
        "questions": len(graded.question_ids),
        "trials": graded.codes.shape[1],
        "attempts": int((graded.codes != OWED).sum()),
        "confidence": level,
        "headline": run.cfg.scoring.headline,
        **({"judge": {"by": by, **graded.deciders()}} if (by := verdicts.settings(run)) else {}),
        "uniform_prior": _uniform_prior(run, graded, summaries),
        "metrics": {
            name: summary._asdict() | ({"error": errors[name]} if name in errors else {})
            for name, summary in summaries.items()
        },
    }
    if how := stopped.of(run):
        scores["stopped"] = stopped.estimate(how, matrix, level)
    prior = None
    if run.cfg.prior.run is not None:
        ids = {mark: graded.question_ids[i] for mark, i in graded.positions().items()}
        prior = priors.load(run.cfg.prior, run, ids)
        scores["prior"] = prior.record()
        posterior = scoring.bayes_ci(matrix, None, prior.outcomes(), level, (0.0, 1.0))
        scores["with_prior"] = _posterior(posterior)
    scores["shares"] = _shares(graded)
    if by_place := _by_place(run, matrix, level):
        scores["gold_places"] = by_place
    if mapped:
        R0 = {n: priors.of_rubric(prior, m.record) for n, m in mapped.items()} if prior else {}
        scores["rubrics"] = categories.rubric_scores(run, mapped, R0)
    return scores | {"cost": _cost(run)}


def _uniform_prior(run: Run, graded: Outcomes, summaries: dict[str, Summary]) -> Parts:
    """Bayes@N and avg@N whatever was asked for, what stands beside them, and every Pass@k."""
    matrix, level = outcomes.correct(graded.codes), run.cfg.scoring.confidence
    bayes = _posterior(summaries.get("bayes") or parse("bayes").summary(matrix, level))
    scores: Parts = {"bayes": bayes}
    if (avg := summaries.get("avg")) is None:  # a question has no trial
        return scores
    scores["avg"] = _posterior(avg, "mean") | {"fitted": scoring.fits(matrix)}
    found = scoring.inflation(matrix, confidence=level)
    if np.isfinite(found.high):  # else nothing is known
        sigma = avg.sigma * max(found.value, 1.0) ** 0.5
        scores["avg"]["inflation"] = found._asdict() | {"sigma": sigma}
    bayes["shrinkage"] = scoring.shrinkage(bayes["mu"], bayes["sigma"], avg.value)
    if len(matrix) > 1:
        spread = scoring.uncertainty(matrix)
        scores["avg"] |= {"stderr_over_questions": spread.clustered, "stderr_total": spread.total}
    undecided = np.isin(graded.codes, UNDECIDED)
    if undecided.any():
        best = outcomes.correct(np.where(undecided, CORRECT, graded.codes))
        scores["bayes_if_undecided_were_correct"] = _posterior(parse("bayes").summary(best, level))
    scores["pass_at_k"] = {
        name.removeprefix("pass@"): summary.value
        for name, summary in summaries.items()
        if name.startswith("pass@")
    }
    return scores


def _by_place(run: Run, matrix: Any, level: float) -> Parts:
    """The average of the (M, N) outcomes where the gold answer stood at A, at B, ...

    Empty without options. Intervals take questions as a sample; places of one are left out.
    """
    if not all(row["choices"] for row in run.questions):
        return {}
    golds = [
        [LETTERS.index(options.as_shown(run.cfg, row, t)["gold"]) for t in range(matrix.shape[1])]
        for row in run.questions
    ]
    found = {}
    for place in range(np.max(golds) + 1):
        here: Any = np.ma.masked_where(np.array(golds) != place, matrix)  # type: ignore[no-untyped-call]
        here = here[here.count(axis=1) > 0]
        if len(here) >= 2:
            mean, sigma, low, high = scoring.clustered_ci(here, confidence=level)
            parts = {"mean": mean, "sigma": sigma, "low": max(0.0, low), "high": min(1.0, high)}
            found[LETTERS[place]] = parts | {"questions": len(here), "attempts": int(here.count())}
    return found


def _posterior(summary: Sequence[float], mean: str = "mu") -> Parts:
    return dict(zip((mean, "sigma", "low", "high"), summary, strict=True))


def _shares(graded: Outcomes) -> dict[str, float]:
    total = int((graded.codes != OWED).sum())
    counts = {name: int((graded.codes == code).sum()) for code, name in enumerate(OUTCOMES)}
    boxes = {name: int((graded.boxes == code).sum()) for code, name in enumerate(BOXES)}
    counts["truncated"] = boxes["truncated"]
    counts["unboxed"] = boxes["no_box"] + boxes["unclosed"]
    return {name: number / total for name, number in counts.items()}


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
