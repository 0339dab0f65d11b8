"""verify: a verifier's label probabilities for every attempt, raw and calibrated.

One prefill a distinct text, no text generated; verdicts are derived from its log-probs.
"""

import itertools
from collections.abc import Container
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import Meter, mention, note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.store import rowkeys, runfolder, tables, workernames
from bayes_at_n.pipeline.store.columns import VERDICTS
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.verdicts import VERDICTS_TABLE, inputs, made_of
from bayes_at_n.pipeline.verify import calibrate, quality, texts
from bayes_at_n.pipeline.verify.asker import Asker
from bayes_at_n.pipeline.verify.calibrate import Views
from bayes_at_n.pipeline.verify.people import people
from bayes_at_n.pipeline.verify.prompts import here, read_template, uses_answer
from bayes_at_n.pipeline.workers import home
from bayes_at_n.verifiers.judge import calibration, guards
from bayes_at_n.verifiers.judge.labels import LABELS, Floats


def verify(run: Run) -> None:
    """Judge every text that was not judged yet, calibrate; then what people are asked or said.

    A batch that shows a broken verifier (`check`) is not written; what was written before it stays.
    Raises UserError: there are no attempts, or the verifier or its prompt cannot be used. TryAgain:
    its engine cannot be loaded or breaks.
    """
    if run.cfg.verifier.id is None:
        mention("verify: nothing is judged (verifier=none)")
    else:
        _verify(run)
    labels = people(run)
    parts = ("calibration", "kinds")
    found = {name: runfolder.read_json(run.path / "verdicts" / f"_{name}.json") for name in parts}
    display.answer({"run": run.path, "verifier": run.cfg.verifier.name, **found, "labels": labels})


def _verify(given: Run) -> None:
    run, engine = given, given.cfg.engine.name
    sampled = runfolder.read_manifest(run).get("identity", {}).get("engine.name", engine)
    if sampled != engine:
        raise UserError(
            f"engine.name={engine}: {run.path} was sampled with {sampled}; the verifier's is"
            f" verifier.engine.name={engine}"
        )
    runfolder.check_same(run, runfolder.identity(run.cfg))
    if not run.questions or not tables.parts(run.attempts):
        raise UserError(f"{run.path}: no attempts to verify yet; run `{PROGRAM} generate`")
    run = Run(here(run.cfg, made_of(run).get("asked", {}).get("prompt")))
    template, judge = read_template(run.cfg.verifier), verifier_as_model(run.cfg)
    made_by = texts.identity(run.cfg, judge, template)
    with (
        lease.held(run.path / "verify.lease", "verifying", wait=True),
        home.staying(run.path, "attempts were verified") as intact,
    ):
        made_from = _inputs(run, template, made_by)
        if owed := VERDICTS_TABLE.owed(run, made_from, imported=True):
            if why := VERDICTS_TABLE.differing(run, owed[0], made_from):
                note(f"verify: verdicts so far were made otherwise ({why})")
            made = _known(run, judge, made_by, template, intact)
            runfolder.save_verifier(given)
            _derive(run, made, made_from, {part.stem for part in owed})
        else:
            mention("verify: nothing owed, all attempts have a verdict")
        quality.report(run)


def _inputs(run: Run, template: str, made_by: dict[str, Any]) -> dict[str, Any]:
    """Make all that decides verdicts but the texts of attempts and what is said of them."""
    v, file = run.cfg.verifier, run.cfg.labels.file
    of_grades = run.cfg.dataset.judge == "unmatched" or v.calibration == "graded"
    found = inputs(run, of_grades or uses_answer(template))
    found |= {"verifier": made_by, "template": made_by["template"]}
    if v.fit_temperature or v.calibration in ("batch", "graded"):  # each by all attempts
        found["attempts"] = [part.mark for part in tables.parts(run.attempts)]
    if v.fit_temperature:
        path = Path(file or "").expanduser()
        found["fit"] = runfolder.short_hash(path.read_text("utf-8")) if path.is_file() else ""
    return found


class Made(NamedTuple):
    """What verdicts are derived from: n attempts, and what the verifier said of their texts."""

    work: texts.Work
    known: texts.LogProbs
    slots: Ints  # (n,) of its text in `known`
    probes: dict[calibrate.Key, texts.Text]

    def views(self) -> tuple[Views, Floats]:
        """The attempts whose text was judged, and the baseline of each, (n, 3)."""
        every = self.known.said["logprobs"]
        logprobs = every[self.slots]
        views = Views(self.work.keys, logprobs, self.work.truth).at(~np.isnan(logprobs[:, 0]))
        at = self.known.rows([name for name, _ in self.probes.values()])
        said = dict(zip(self.probes, every[at], strict=True))
        return views, calibrate.subtracted(self.work.run, said, views)[views.keys >> 32]


def _known(
    run: Run, judge: RunConfig, made_by: dict[str, Any], template: str, intact: home.Check
) -> Made:
    """Ask the verifier about texts that it has not judged; return what it says of all."""
    known = texts.LogProbs(texts.folder(run, made_by))
    work, probing = texts.survey(run, known, template), texts.Waiting()
    ids = [run.questions[i]["question_id"] for i in np.unique(work.keys >> 32).tolist()]
    probes = {key: (texts.digest(x), x) for key, x in calibrate.probes(run, ids).items()}
    for text in probes.values():
        if known.rows([text[0]])[0] < 0:
            probing.put(text)
    known.expect(np.append(work.hashes, np.array([*probing.hashes], "S24")))
    made = Made(work, known, known.rows(work.hashes), probes)
    if not (n := len(work.owed.hashes | probing.hashes)):
        return made
    attempts = int(np.isnan(known.said["logprobs"][made.slots, 0]).sum())
    asker = Asker(run, judge, max(work.owed.longest, probing.longest), known.loaded)
    worker, number = workernames.worker_id(), itertools.count()
    try:
        with Meter("verify", n) as meter:
            for waiting, judged in ((probing, set[str]()), (work.owed, probing.hashes)):
                batches = waiting.batches(asker.cfg.engine.replicas, judged)
                for hashes, answer in asker.answers(batches):
                    intact()
                    known.add(hashes, answer)
                    if waiting is work.owed:
                        check(run, *made.views())
                    name = f"{worker}-{next(number):05d}"
                    known.write(name, hashes, {"verifier": made_by, **asker.loaded()})
                    meter.advance(len(hashes))
    finally:
        asker.close()
    mention(f"verify: {attempts} attempts judged with {n} prompts, content-free ones included")
    return made


def check(run: Run, views: Views, bases: Floats) -> None:
    """Stop when all attempts so far, those of this batch included, show a broken verifier.

    Raises UserError: says what is broken (`verifiers.judge.guards`).
    """
    v, graded = run.cfg.verifier, views.truth >= 0
    limits: dict[str, Any] = {"temperature": v.temperature, "mass_floor": v.least_mass}
    seen = views.logprobs[graded], bases[graded], views.truth[graded] == 0
    problems = guards.check_verdicts(views.logprobs, bases, **limits)
    if problems := problems or guards.check_verdicts(*seen, **limits):
        raise UserError(
            f"verifier={v.name} ({v.id}) with prompt {v.prompt}: {'; '.join(problems)}. Check"
            " verifier.prompt, verifier.labels and the chat template, or set verifier=none"
        )


def _derive(run: Run, made: Made, made_from: dict[str, Any], owed: Container[str]) -> None:
    """Write the verdicts of parts of attempts, by their stems, in place of what is said of them."""
    for path in (run.path / "verdicts").glob("_*.json"):
        path.unlink()
    v, (views, bases), rows = run.cfg.verifier, made.views(), 0
    fit = calibrate.fit(run, views, bases.astype(np.float32))[0] if v.fit_temperature else None
    temperature = fit.temperature if fit else v.temperature
    for number, part in enumerate(made.work.parts):
        if part.stem in owed:
            at = np.flatnonzero(made.work.part == number)
            table = _table(run, made, at, bases[at], temperature)
            VERDICTS_TABLE.write(run, part, made_from, table)
            rows += at.size
    VERDICTS_TABLE.sweep(run)
    note(f"verify: {rows} verdicts, T={temperature:g}, calibration={v.calibration}")


def _table(run: Run, made: Made, at: Ints, bases: Floats, temperature: float) -> pa.Table:
    """The verdicts on some attempts, with their baselines (n, 3)."""
    keys, said = made.work.keys[at], made.known.said[made.slots[at]]
    logprobs = said["logprobs"].astype(np.float64)
    raw, calibrated = np.exp(logprobs), calibration.calibrate(logprobs, bases, temperature)
    kinds = {"logprob_": logprobs, "base_": bases, "raw_": raw, "": calibrated}
    kinds["direct_"] = calibration.direct(logprobs)
    numbers = {
        f"{kind}{label.lower()}": values[:, i].astype(np.float32)
        for kind, values in kinds.items()
        for i, label in enumerate(LABELS)
    }
    columns = numbers | {
        "question_id": rowkeys.question_ids(run).take(pa.array(keys >> 32)),
        "trial": keys & 0xFFFFFFFF,
        "mass": raw.sum(axis=1).astype(np.float32),
        "label": np.array(LABELS)[calibrated.argmax(axis=1)],
        "tokens": said["tokens"],
        "cut": said["cut"],
    }
    return pa.table(columns, schema=VERDICTS)
