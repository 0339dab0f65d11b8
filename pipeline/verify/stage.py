"""verify: compute a verifier's label probabilities for every attempt, raw and calibrated.

Each distinct text is judged once, by a prefill; verdicts are derived from its log-probs.
"""

import json
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import lease, program
from bayes_at_n.pipeline.base.console import Meter, note, note_alone, warn
from bayes_at_n.pipeline.base.errors import Interrupted, UserError
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.prepare import estimate, models, sizing
from bayes_at_n.pipeline.score import labels
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Inputs, Part, parts
from bayes_at_n.pipeline.verify import calibrate, generated, prompts
from bayes_at_n.pipeline.verify.calibrate import label_columns, of_labels
from bayes_at_n.pipeline.verify.judge import KEPT, Labels, judge, missing
from bayes_at_n.pipeline.workers.stopping import Check, StopFlag, unmoved
from bayes_at_n.pipeline.workers.supervise import Task, supervise
from bayes_at_n.verifiers.judge import calibration, quality

_VERSION = 1  # raise it if prompts are rendered or encoded differently


def verify(run: Run) -> None:
    """Judge every text that was not judged yet, and calibrate."""
    labels.keep(run)
    if run.cfg.verifier.id is None:
        note_alone("verify: nothing is judged (verifier=none)")
    else:
        _verify(run)
    name = run.cfg.verifier.name
    measures = runfolder.read_json(run.path / "verdicts" / "_calibration.json")
    print_json({"run": run.path, "verifier": name, "calibration": measures})


def _verify(original: Run) -> None:
    run, engine = original, original.cfg.engine.name
    sampled = runfolder.read_manifest(run).get("identity", {}).get("engine.name", engine)
    if sampled != engine:
        remedy = f"for the verifier set verifier.engine.name={engine}"
        raise UserError(f"engine.name={engine}: {run.path} was sampled with {sampled}; {remedy}")
    runfolder.check_same(run, provenance.identity(run.cfg))
    if not run.questions or not parts(run.attempts):
        raise UserError(f"{run.path}: no attempts to verify yet; run `{program.PROGRAM} generate`")
    used = outcomes.verdicts_made_of(run).get("request", {}).get("prompt")
    run = Run(prompts.with_fallback(run.cfg, used))
    v, template = run.cfg.verifier, prompts.read_template(run.cfg.verifier)
    lock = lease.held(run.path / "verify.lease", "verifying", wait=True)
    with lock, unmoved(run.path, "attempts were verified") as intact:
        # Everything that decides verdicts, except texts of attempts, their log-probs and votes.
        made_by = identity(run.cfg, template)
        of_grades = run.cfg.dataset.judge == "unmatched" or v.calibration == "graded"
        made_from = outcomes.verdict_inputs(run, of_grades or prompts.uses_answer(template))
        made_from |= {"verifier": made_by, "template": made_by["template"]}
        if v.kind == "generate":
            return generated.verify(original, run, template, made_from)
        if v.fit_temperature or v.calibration == "graded":  # these depend on all attempts
            made_from["attempts"] = [part.mark for part in parts(run.attempts)]
        if v.fit_temperature:
            made_from["fit"] = [path.read_text("utf-8") for path in labels.files(run)]
        if pending := outcomes.VERDICTS_TABLE.pending(run, made_from):
            if changed := next(filter(None, pending.values()), ""):
                note(f"verify: earlier verdicts were made from other inputs ({changed})")
            attempts = _judged(run, made_by, template, intact)
            runfolder.save_verifier(original)
            _derive(run, attempts, made_from, pending)
        else:
            note_alone("verify: nothing pending, all attempts have a verdict")
        calibrate.report(run)


def dry_run(run: Run, verb: str, on_cluster: bool) -> None:
    """Call `estimate.dry_run`; for `run` also print what a judge that writes will cost."""
    expected = estimate.dry_run(run, on_cluster)
    judges = verb == "run" and "verify" in run.cfg.stages
    if judges and run.cfg.verifier.kind == "generate":
        template = prompts.read_template(run.cfg.verifier)
        judge = generated.judge_of(run, identity(run.cfg, template))
        generated.dry_run(run, judge, template, expected, on_cluster)


def identity(cfg: RunConfig, template: str) -> dict[str, Any]:
    """Return everything that decides log-probs, without loading the model."""
    judge = verifier_as_model(cfg)
    v, args, local = cfg.verifier, judge.engine.args, program.find_local(str(cfg.verifier.id))
    chat = local / "chat_template.jinja" if local else None
    chat_text = chat.read_text("utf-8") if chat and chat.is_file() else ""
    return {
        "prompts": _VERSION,
        "engine": judge.engine.name,  # engines differ in rounding
        "weights": models.fingerprint(judge.model) if local else f"{v.id}@{v.revision}",
        "chat_template": provenance.short_hash(chat_text) if chat_text else "",
        "chat_template_kwargs": dict(v.chat_template_kwargs),
        "template": provenance.short_hash(template),
        "labels": [v.labels.correct, v.labels.incorrect, v.labels.invalid],
        "dtype": v.dtype,
        "context": v.context,
        **v.form(),
        **({"engine_args": args} if args else {}),  # may be quantization, say
    }


def folder(run: Run, made_by: dict[str, Any]) -> Path:
    """Return the folder of the log-probs of a verifier with this `identity`."""
    return run.path / "label_logprobs" / provenance.short_hash(json.dumps(made_by, sort_keys=True))


def _judged(run: Run, made_by: dict[str, Any], template: str, intact: Check) -> pa.Table:
    """Judge the texts that are not judged yet; return `calibrate.with_labels` of all attempts."""
    attempts, labels = prompts.texts_to_judge(run, template), Labels(folder(run, made_by))
    candidates, done = prompts.probes(run), {"", *labels.table["judged"].to_pylist()}
    probes = [prompts.digest(candidate) for candidate in candidates]
    new = {name: one for name, one in zip(probes, candidates, strict=True) if name not in done}
    pending = prompts.distinct(attempts, [*done, *new])

    def judged() -> pa.Table:
        return calibrate.with_labels(run, attempts, labels.table, probes)

    shutil.rmtree(labels.folder / prompts.WORK, ignore_errors=True)  # a killed command's
    total, before = len(new) + len(pending), judged()
    if not total or not len(attempts):
        if len(before):
            check(run, before)
        return before
    cfg = _fitted(run, labels.loaded)
    turns = (prompts.fill(template, prompts.as_candidate(row))[0] for row in run.questions)
    longest = pc.max(attempts["bytes"]).as_py() + max(len(turn.encode()) for turn in turns)
    workers = cfg.engine.replicas if cfg.cluster.address is None else cfg.cluster.workers
    sizes = [len(one.response) for one in new.values()] + pending["bytes"].to_pylist()
    starts = prompts.batches(sizes, workers)
    plan = prompts.Plan(labels.folder, made_by, [*new.items()], pending, starts, longest)

    def update() -> int:
        intact()
        if count := labels.update():
            check(run, judged())
        return count

    plan.work.mkdir(parents=True)
    try:
        if workers > 1 or cfg.cluster.address is not None:
            _supervised(run, cfg, plan, update)
        else:
            with Meter("verify", total) as meter:
                judge(plan, [cfg], StopFlag(), written=lambda: meter.advance(update()))
        update()
    finally:
        shutil.rmtree(plan.work, ignore_errors=True)
    number = len(attempts) - len(before)
    note_alone(f"verify: {number} attempts judged with {total} prompts, content-free ones included")
    return judged()


def _fitted(run: Run, loaded: str) -> RunConfig:
    """Return the settings with the verifier, which is downloaded, as the model.

    Raises UserError: the stored log-probs were made by other weights.
    """
    v, model = run.cfg.verifier, verifier_as_model(run.cfg)
    cfg, weights = model, models.fingerprint(model.model)
    if cfg.cluster.address is None:
        cfg = sizing.resolved(model, ())
    if v.trust_remote_code:
        warn(f"verifier.trust_remote_code=true: Python code that comes with {v.id} will run")
    if loaded not in ("", weights):
        text = f"is {weights} now, but log-probs in {run.path} are from {loaded}"
        raise UserError(f"verifier.id={v.id}: {text}; set verifier.revision to one of them")
    if not program.kind(cfg.engine.name).served:
        models.download(cfg.model)
    return cfg


def _supervised(run: Run, cfg: RunConfig, plan: prompts.Plan, update: Callable[[], Any]) -> None:
    """Judge a plan with several workers."""
    task = Task(
        verb="verify",
        model=f"verifier {cfg.model.name}",
        folders={plan.work: len(plan.names)},
        pending=lambda: len(missing(plan)),
        is_over=lambda: not missing(plan),
        check=update,
        interrupted=lambda left, number: Interrupted(f"stopped. {KEPT}", number),
    )
    logs = run.path / "logs" / f"{shards.worker_id()}-verify"
    supervise(task, partial(judge, plan), [cfg], logs)


def check(run: Run, attempts: pa.Table) -> None:
    """Raise UserError if the attempts so far show a broken verifier."""
    v, logprobs = run.cfg.verifier, of_labels(attempts, "logprob_")
    bases = of_labels(attempts, "base_") if "base_a" in attempts.column_names else None
    labeled, correct = attempts["truth"].is_valid().to_numpy(), pc.equal(attempts["truth"], 0)
    truth, bases_known = correct.drop_null().to_numpy(), None if bases is None else bases[labeled]
    limits: dict[str, Any] = {"temperature": v.temperature, "mass_floor": v.least_mass}
    problems = quality.check_verdicts(logprobs, bases, **limits)
    problems = problems or quality.check_verdicts(logprobs[labeled], bases_known, truth, **limits)
    if problems:
        remedy = "check verifier.prompt, verifier.labels and chat template, or verifier=none"
        raise UserError(f"verifier.id={v.id}, prompt {v.prompt}: {'; '.join(problems)}; {remedy}")


def _derive(run: Run, attempts: pa.Table, made_from: Inputs, pending: Iterable[Part]) -> None:
    """Write the verdicts of the pending parts of attempts."""
    (run.path / "verdicts" / "_calibration.json").unlink(missing_ok=True)
    v, bases = run.cfg.verifier, of_labels(attempts, "base_")
    fit = calibrate.fit(run, attempts)[0] if v.fit_temperature else None
    temperature = fit.temperature if fit else v.temperature
    logprobs = of_labels(attempts, "logprob_").astype(np.float64)
    raw, calibrated = np.exp(logprobs), calibration.calibrate(logprobs, bases, temperature)
    columns = {
        **label_columns(logprobs, "logprob_"),
        **label_columns(bases, "base_"),
        **label_columns(raw, "raw_"),
        **label_columns(calibration.direct(logprobs), "direct_"),
        **label_columns(calibrated),
        "mass": raw.sum(axis=1).astype(np.float32),
        "label": np.array(calibration.LABELS)[calibrated.argmax(axis=1)],
        "tokens": attempts["tokens"],
        "cut": attempts["cut"],
    }
    written = calibrate.write_verdicts(run, attempts, columns, made_from, pending)
    note(f"verify: {written} verdicts, T={temperature:g}, calibration={v.calibration}")
