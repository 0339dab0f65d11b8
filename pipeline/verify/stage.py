"""verify: a verifier's label probabilities for every attempt, raw and calibrated.

One prefill an attempt, no text generated. What is stored is enough to calibrate again without the
model (`calibrate.py`); what keeps a response from talking the verifier into a label is in
`prompts.py`.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import Meter, mention
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.store import judged, options, parquet, records, runfolder, workernames
from bayes_at_n.pipeline.store.columns import VERDICTS
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate, quality, store, survey
from bayes_at_n.pipeline.verify.asker import Asker
from bayes_at_n.pipeline.verify.people import people
from bayes_at_n.pipeline.verify.prompts import (
    Candidate,
    Prompts,
    asked,
    here,
    read_template,
    uses_answer,
)
from bayes_at_n.pipeline.verify.survey import Survey
from bayes_at_n.pipeline.workers import home
from bayes_at_n.verifiers.judge import guards
from bayes_at_n.verifiers.judge.labels import LABELS, Floats


def verify(run: Run) -> None:
    """Judge every attempt that has no verdict, and calibrate; then what people are asked or said.

    With verifier=none nothing is judged.

    A batch that shows a broken verifier, prompt or label (`verifiers.judge.guards`, over all
    verdicts so far) is not written; what was written before it stays. Raises UserError: without
    attempts, when the verifier or its prompt cannot be used, or its labels show that it does not
    work as a verifier. TryAgain: when its engine cannot be loaded or breaks.
    """
    if run.cfg.verifier.id is None:
        mention("verify: nothing is judged (verifier=none)")
    else:
        _verify(run)
    labels = people(run)
    parts = ("calibration", "kinds")
    found = {name: runfolder.read_json(store.folder(run) / f"_{name}.json") for name in parts}
    display.answer({"run": run.path, "verifier": run.cfg.verifier.name, **found, "labels": labels})


def _verify(run: Run) -> None:
    engine, sampled = run.cfg.engine.name, runfolder.read_manifest(run).get("identity", {})
    if sampled.get("engine.name", engine) != engine:
        raise UserError(
            f"engine.name={engine}: {run.path} was sampled with {sampled['engine.name']}; the"
            f" verifier's engine is verifier.engine.name={engine}"
        )
    runfolder.check_same(run, runfolder.identity(run.cfg))
    given, run = run, Run(here(run.cfg, (store.remembered(run, "asked") or {}).get("prompt")))
    template = read_template(run.cfg.verifier)
    if not run.questions or not run.attempts.exists():
        raise UserError(f"{run.path}: no attempts to verify yet; run `{PROGRAM} generate`")
    with (
        lease.held(run.path / "verify.lease", "verifying", wait=True),
        home.staying(run.path, "attempts were verified") as intact,
    ):
        judge = verifier_as_model(run.cfg)
        settings = store.identity(run.cfg, judge, template)
        if records.settings(store.record(run)) not in ({}, settings):  # refused while all is there
            Prompts(run.cfg.verifier, models.tokenizer(judge.model), models.context(judge.model))
        store.begin(run, settings)
        store.remember(run, asked=judged.asked_as(run))
        runfolder.save_judge(given)
        _judge(run, judge, survey.survey(run, uses_answer(template)), intact)
        calibrate.check_turned(run)
        if run.cfg.dataset.judge != "unmatched":  # its sample says nothing of all attempts
            quality.calibrated(run)
        quality.agree(run)


def _judge(run: Run, judge: RunConfig, work: Survey, intact: home.Check) -> None:
    """Whatever the model has to be asked, and the calibration that is asked for."""
    baselines = calibrate.read_baselines(run)
    ids = work.ids.take(pa.array(np.unique(work.questions))).to_pylist()
    probes = calibrate.probes(run, ids)
    missing = {key: probe for key, probe in probes.items() if key not in baselines}
    if work.done.all() and not missing:
        calibrate.recalibrate(run, calibrate.temperature(run))
        mention(f"verify: nothing owed, all {work.keys.size} attempts have a verdict")
        return
    sizes = [sum(len(text.encode()) for text in probe[1:]) for probe in missing.values()]
    asker = Asker(run, judge, max([work.longest, *sizes]))
    try:
        if missing:
            _add_baselines(run, asker, baselines, missing)
        calibrate.recalibrate(run, calibrate.temperature(run))
        found = calibrate.subtracted(run, baselines)
        nothing = np.full(len(LABELS), np.nan)  # no attempt needs it
        bases = np.stack([found.get(q, nothing) for q in work.ids.to_pylist()])
        _judge_owed(run, asker, work, bases, intact)
    finally:
        asker.close()
    calibrate.recalibrate(run, calibrate.temperature(run))  # by all attempts, the new ones too


def _add_baselines(
    run: Run,
    asker: Asker,
    baselines: calibrate.Baselines,
    missing: dict[calibrate.Key, Candidate],
) -> None:
    """Ask about prompts without content, and write what the verifier says."""
    size, keys = -(-len(missing) // asker.cfg.engine.replicas), list(missing)
    parts = [keys[start : start + size] for start in range(0, len(keys), size)]
    for part, answer in asker.answers((part, [missing[key] for key in part]) for part in parts):
        baselines |= dict(zip(part, answer.logprobs.tolist(), strict=True))
    calibrate.write_baselines(run, baselines)


def _judge_owed(run: Run, asker: Asker, work: Survey, bases: Floats, intact: home.Check) -> None:
    """Ask about every text that was not judged yet; a batch is written when it is answered."""
    worker, number, temperature = (
        workernames.worker_id(),
        itertools.count(),
        calibrate.temperature(run),
    )
    total, done = work.keys.size, int(work.done.sum())

    def keep() -> None:
        intact()
        rows = survey.answered(work)
        if not rows.size:
            return
        work.done[rows] = True
        check(run, work, bases)
        logprobs, base = work.logprobs[work.slots[rows]], bases[work.questions[rows]]
        table = _table(work, rows, store.columns(logprobs, base, temperature))
        parquet.write_part(store.folder(run) / f"{worker}-{next(number):05d}.parquet", table)
        meter.advance(rows.size, lambda: f"{asker.asked} prompts")

    with Meter("verify", total, done=done) as meter:
        keep()  # what is known of other attempts with the same text
        for rows, answer in asker.answers(_batches(run, work, asker.cfg.engine.replicas)):
            at = work.slots[rows]
            work.logprobs[at], work.tokens[at], work.cut[at] = answer
            keep()
    mention(
        f"verify: {total - done} attempts judged with {asker.asked} prompts, content-free ones"
        " included"
    )


def _batches(run: Run, work: Survey, replicas: int) -> Iterator[tuple[Ints, list[Candidate]]]:
    """Rows of the survey and what the verifier is to be asked about them."""
    for rows, texts in survey.owed(run, work, replicas):
        questions = [
            options.as_shown(run.cfg, run.questions[key >> 32], int(key & 0xFFFFFFFF))
            for key in work.keys[rows]
        ]
        answers = work.answers.take(pa.array(rows)).fill_null("").to_pylist()
        said = [options.letter(q, x) for q, x in zip(questions, answers, strict=True)]
        told = zip(questions, texts, said, strict=True)
        yield rows, [asked(q)._replace(response=text, answer=x) for q, text, x in told]


def _table(work: Survey, rows: Ints, numbers: dict[str, Any]) -> pa.Table:
    slots = work.slots[rows]
    columns = numbers | {
        "question_id": work.ids.take(pa.array(work.questions[rows])),
        "trial": work.keys[rows] & 0xFFFFFFFF,
        "tokens": work.tokens[slots],
        "cut": work.cut[slots],
        "judged": work.digests[slots].astype(str),
    }
    return pa.table(columns, schema=VERDICTS)


def check(run: Run, work: Survey, bases: Floats) -> None:
    """Stop when all verdicts so far, those about to be written included, show a broken verifier.

    Raises UserError: says what is broken.
    """
    v, done = run.cfg.verifier, np.flatnonzero(work.done)
    logprobs, base = work.logprobs[work.slots[done]], bases[work.questions[done]]
    limits: dict[str, Any] = {"temperature": calibrate.temperature(run), "mass_floor": v.least_mass}
    truth = work.truth[done]
    graded = truth >= 0
    problems = guards.check_verdicts(logprobs, base, **limits) or (
        guards.check_verdicts(logprobs[graded], base[graded], truth[graded] == 0, **limits)
    )
    if problems:
        raise UserError(
            f"verifier={v.name} ({v.id}) with prompt {v.prompt}: {'; '.join(problems)}. These"
            " verdicts are not kept; check verifier.prompt, verifier.labels and the chat"
            " template, or leave the verifier out with verifier=none"
        )
