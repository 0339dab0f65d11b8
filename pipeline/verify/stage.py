"""verify: a verifier's label probabilities for every attempt, raw and calibrated.

One prefill a distinct text, no text generated; verdicts are derived from its log-probs.
"""

import contextlib
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import Meter, mention, note, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.prepare import models, prefetch, sizes
from bayes_at_n.pipeline.store import rowkeys, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import VERDICTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.verdicts import VERDICTS_TABLE, inputs, made_of
from bayes_at_n.pipeline.verify import asker, calibrate, quality, texts
from bayes_at_n.pipeline.verify.calibrate import Views
from bayes_at_n.pipeline.verify.people import people
from bayes_at_n.pipeline.verify.prompts import asked, fill, here, read_template, uses_answer
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
    found = runfolder.read_json(run.path / "verdicts" / "_calibration.json")
    name = run.cfg.verifier.name
    display.answer({"run": run.path, "verifier": name, "calibration": found, "labels": labels})


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
        if owed := VERDICTS_TABLE.owed(run, made_from):
            if why := next(filter(None, owed.values()), ""):
                note(f"verify: verdicts so far were made otherwise ({why})")
            made = _judged(run, judge, made_by, template, intact)
            runfolder.save_verifier(given)
            _derive(run, made, made_from, {part.stem for part in owed})
        else:
            mention("verify: nothing owed, all attempts have a verdict")
        quality.report(run)


def _inputs(run: Run, template: str, made_by: dict[str, Any]) -> dict[str, Any]:
    """Make all that decides verdicts but the texts of attempts and what is said of them."""
    v, file = run.cfg.verifier, Path(run.cfg.labels.file or "").expanduser()
    of_grades = run.cfg.dataset.judge == "unmatched" or v.calibration == "graded"
    found = inputs(run, of_grades or uses_answer(template))
    found |= {"verifier": made_by, "template": made_by["template"]}
    if v.fit_temperature or v.calibration == "graded":  # each by all attempts
        found["attempts"] = [part.mark for part in tables.parts(run.attempts)]
    if v.fit_temperature:
        found["fit"] = runfolder.short_hash(file.read_text("utf-8")) if file.is_file() else ""
    return found


class Made(NamedTuple):
    """What verdicts are derived from: n attempts, and what the verifier said of their texts."""

    work: texts.Work
    probes: list[str]  # hashes of the texts without content
    said: pa.Table  # log-probs of texts, as stored

    def rows(self, hashes: Any) -> pa.Table:
        """Rows of `said` in the order of hashes, null where there is none."""
        wanted = pa.array(hashes).cast(pa.string())
        return self.said.take(pc.index_in(wanted, value_set=self.said["judged"]))

    def views(self, run: Run) -> tuple[Views, Floats | None]:
        """The attempts whose text was judged, and the baseline of each, (n, 3); None: not known."""
        logprobs = texts.of_labels(self.rows(self.work.hashes), "logprob_")
        views = Views(self.work.keys, logprobs, self.work.truth).at(~np.isnan(logprobs[:, 0]))
        said = texts.of_labels(self.rows(self.probes), "logprob_")
        if np.isnan(said).any() and self.work.keys.size:
            return views, None
        return views, calibrate.baselines(run, said, views)[views.keys >> 32]


def _judged(
    run: Run, judge: RunConfig, made_by: dict[str, Any], template: str, intact: home.Check
) -> Made:
    """Ask the verifier about texts that it has not judged; return what it says of all."""
    folder, work = texts.folder(run, made_by), texts.survey(run, template)
    said, stored = texts.read(folder)
    known, free = {*said["judged"].to_pylist()}, calibrate.probes(run)
    probes = {texts.digest(candidate): candidate for candidate in free}
    made = Made(work, [*map(texts.digest, free)], said)
    names, first = np.unique(work.hashes, return_index=True)
    owed = first[~np.isin(names, np.array([b"", *(x.encode() for x in known | {*probes})]))]
    probes = {name: candidate for name, candidate in probes.items() if name not in known}
    total = owed.size + len(probes)
    if not total or not work.keys.size:
        return made
    attempts = made.rows(work.hashes)["judged"].null_count
    cfg = _loadable(run, judge, stored)
    of_owed = texts.candidates(run, work.keys[owed], work.answers[owed])
    todo = ((work.hashes[owed[i]].decode(), candidate) for i, candidate in of_owed)
    batches = texts.batches(itertools.chain(probes.items(), todo), total, cfg.engine.replicas)
    turns = (fill(template, asked(row))[0] for row in run.questions)
    most = work.longest + max(len(turn.encode()) for turn in turns)
    worker, number = shards.worker_id(), itertools.count()
    answers = asker.answers(cfg, most, batches, f"{run.path}/logs/{worker}-verify-{{}}.stderr")
    with Meter("verify", total) as meter, contextlib.closing(answers):
        for hashes, answer, engine in answers:
            intact()
            rows = texts.rows(hashes, answer)
            made = made._replace(said=pa.concat_tables([made.said, rows]))
            check(run, *made.views(run))
            by = {"verifier": made_by, "loaded": models.fingerprint(cfg.model), "engine": engine}
            texts.write(folder / f"{worker}-{next(number):05d}.parquet", rows, by)
            meter.advance(len(hashes))
    mention(f"verify: {attempts} attempts judged with {total} prompts, content-free ones included")
    return made


def _loadable(run: Run, judge: RunConfig, stored: str) -> RunConfig:
    """Get the verifier's weights; returns its configuration without `auto`.

    Raises UserError: what is stored was said by other weights.
    """
    cfg, v, weights = sizes.settled(judge, ()), run.cfg.verifier, models.fingerprint(judge.model)
    if v.trust_remote_code:
        warn(f"verifier.trust_remote_code=true: Python code that {v.id} brings will run")
    if stored not in ("", weights):
        raise UserError(
            f"verifier.id={v.id}: is {weights} now, but what it said in {run.path} is by {stored};"
            " set verifier.revision to one of them"
        )
    if not kind(cfg.engine.name).served:
        prefetch.weights(cfg.model)
    n = f", {cfg.engine.replicas} replicas" if cfg.engine.replicas > 1 else ""
    note(f"loading verifier {v.name} with {cfg.engine.name}{n} ...")
    return cfg


def check(run: Run, views: Views, bases: Floats | None) -> None:
    """Stop when all attempts so far, those of this batch included, show a broken verifier.

    Raises UserError: says what is broken (`verifiers.judge.guards`).
    """
    v, graded = run.cfg.verifier, views.truth >= 0
    limits: dict[str, Any] = {"temperature": v.temperature, "mass_floor": v.least_mass}
    seen = None if bases is None else bases[graded]
    problems = guards.check_verdicts(views.logprobs, bases, **limits)
    if problems := problems or guards.check_verdicts(
        views.logprobs[graded], seen, views.truth[graded] == 0, **limits
    ):
        raise UserError(
            f"verifier={v.name} ({v.id}) with prompt {v.prompt}: {'; '.join(problems)}. Check"
            " verifier.prompt, verifier.labels and the chat template, or set verifier=none"
        )


def _derive(run: Run, made: Made, made_from: dict[str, Any], owed: set[str]) -> None:
    """Write the verdicts of parts of attempts, by their stems, in place of what is said of them."""
    (run.path / "verdicts" / "_calibration.json").unlink(missing_ok=True)
    v, work, (views, bases) = run.cfg.verifier, made.work, made.views(run)
    assert bases is not None
    bases = bases.astype(np.float64)
    fit = calibrate.fit(run, views, bases.astype(np.float32))[0] if v.fit_temperature else None
    temperature, written = fit.temperature if fit else v.temperature, 0
    said = made.rows(work.hashes)
    part_of = work.part[said["judged"].is_valid().to_numpy()]
    table = _table(run, views, bases, temperature, said.filter(said["judged"].is_valid()))
    for number, part in enumerate(work.parts):
        if part.stem in owed:
            rows = table.filter(pa.array(part_of == number))
            VERDICTS_TABLE.write(run.path, part.stem, rows, made_from, part.mark)
            written += rows.num_rows
    VERDICTS_TABLE.sweep(run)
    note(f"verify: {written} verdicts, T={temperature:g}, calibration={v.calibration}")


def _table(run: Run, views: Views, bases: Floats, temperature: float, said: pa.Table) -> pa.Table:
    """Make the verdicts on n attempts, with their baselines (n, 3)."""
    logprobs = views.logprobs.astype(np.float64)
    raw, calibrated = np.exp(logprobs), calibration.calibrate(logprobs, bases, temperature)
    kinds = {"logprob_": logprobs, "base_": bases, "raw_": raw, "": calibrated}
    kinds["direct_"] = calibration.direct(logprobs)
    numbers = {
        f"{kind}{label.lower()}": values[:, i].astype(np.float32)
        for kind, values in kinds.items()
        for i, label in enumerate(LABELS)
    }
    columns = numbers | {
        "question_id": rowkeys.question_ids(run).take(pa.array(views.keys >> 32)),
        "trial": views.keys & 0xFFFFFFFF,
        "mass": raw.sum(axis=1).astype(np.float32),
        "label": np.array(LABELS)[calibrated.argmax(axis=1)],
        "tokens": said["tokens"],
        "cut": said["cut"],
    }
    return pa.table(columns, schema=VERDICTS)
