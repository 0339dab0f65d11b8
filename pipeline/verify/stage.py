"""verify: a verifier's label probabilities for every attempt, raw and calibrated.

Each distinct text is judged once, by a prefill; verdicts are derived from its log-probs. An attempt
takes a few dozen bytes of memory: texts are read to be hashed, and again to be judged.
"""

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic, engines, lease
from bayes_at_n.pipeline.base.console import Meter, mention, note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM, find_local
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import models, sizing
from bayes_at_n.pipeline.store import graded, parquet, rowkeys, runfolder, shards
from bayes_at_n.pipeline.store.columns import LABEL_LOGPROBS, VERDICTS
from bayes_at_n.pipeline.store.graded import VERDICTS_TABLE
from bayes_at_n.pipeline.store.origin import metadata
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Inputs, Part, keys_of, parts
from bayes_at_n.pipeline.verify import asker, calibrate, prompts
from bayes_at_n.pipeline.verify.calibrate import label_columns, of_labels
from bayes_at_n.pipeline.verify.prompts import Candidate
from bayes_at_n.pipeline.workers import home
from bayes_at_n.verifiers.judge import calibration, guards
from bayes_at_n.verifiers.judge.labels import LABELS

_VERSION = 1  # of how prompts are written and encoded; another one makes other log-probs
_MADE_BY = b"made_by"
Text = tuple[str, Candidate]  # its hash, and what is judged
_ROWS, _CHARACTERS = 1024, 1 << 23  # of a batch, which is judged, and lost, together
_EACH = 16  # batches at least that each of several replicas gets, so that they end together


def verify(run: Run) -> None:
    """Judge every text that was not judged yet, calibrate, and read or draw labels of people.

    Raises UserError: no attempts, or an unusable verifier or prompt. TryAgain: its engine breaks.
    """
    if run.cfg.verifier.id is None:
        mention("verify: nothing is judged (verifier=none)")
    else:
        _verify(run)
    labels, name = calibrate.people(run), run.cfg.verifier.name
    measures = runfolder.read_json(run.path / "verdicts" / "_calibration.json")
    answer({"run": run.path, "verifier": name, "calibration": measures, "labels": labels})


def _verify(given: Run) -> None:
    run, engine = given, given.cfg.engine.name
    sampled = runfolder.read_manifest(run).get("identity", {}).get("engine.name", engine)
    if sampled != engine:
        mine = f"the verifier's is verifier.engine.name={engine}"
        raise UserError(f"engine.name={engine}: {run.path} was sampled with {sampled}; {mine}")
    runfolder.check_same(run, runfolder.identity(run.cfg))
    if not run.questions or not parts(run.attempts):
        raise UserError(f"{run.path}: no attempts to verify yet; run `{PROGRAM} generate`")
    run = Run(
        prompts.with_fallback(run.cfg, graded.verdicts_made_of(run).get("asked", {}).get("prompt"))
    )
    template = prompts.read_template(run.cfg.verifier)
    made_by = identity(run.cfg, verifier_as_model(run.cfg), template)
    at, work = run.path, "attempts were verified"
    with lease.held(at / "verify.lease", "verifying", wait=True), home.staying(at, work) as intact:
        # All that decides verdicts but the texts of attempts and their log-probs.
        v, labels = run.cfg.verifier, Path(run.cfg.labels.file or "").expanduser()
        of_grades = run.cfg.dataset.judge == "unmatched" or v.calibration == "graded"
        made_from = graded.verdict_inputs(run, of_grades or prompts.uses_answer(template))
        made_from |= {"verifier": made_by, "template": made_by["template"]}
        if v.fit_temperature or v.calibration == "graded":  # each by all attempts
            made_from["attempts"] = [part.mark for part in parts(run.attempts)]
        if v.fit_temperature:
            text = labels.read_text("utf-8") if labels.is_file() else None
            made_from["fit"] = "" if text is None else runfolder.short_hash(text)
        if owed := VERDICTS_TABLE.owed(run, made_from):
            if why := next(filter(None, owed.values()), ""):
                note(f"verify: verdicts so far were made otherwise ({why})")
            attempts = _judged(run, made_by, template, intact)
            runfolder.save_verifier(given)
            _derive(run, attempts, made_from, owed)
        else:
            mention("verify: nothing owed, all attempts have a verdict")
        calibrate.report(run)


def identity(cfg: RunConfig, judge: RunConfig, template: str) -> dict[str, Any]:
    """Make everything that decides a log-prob; none of it needs the model itself."""
    v, args, local = cfg.verifier, judge.engine.args, find_local(str(cfg.verifier.id))
    chat = local / "chat_template.jinja" if local else None
    chat_text = chat.read_text("utf-8") if chat and chat.is_file() else ""
    return {
        "prompts": _VERSION,
        "engine": judge.engine.name,  # two engines round otherwise
        "weights": models.fingerprint(judge.model) if local else f"{v.id}@{v.revision}",
        "chat_template": runfolder.short_hash(chat_text) if chat_text else "",
        "chat_template_kwargs": dict(v.chat_template_kwargs),
        "template": runfolder.short_hash(template),
        "labels": [v.labels.correct, v.labels.incorrect, v.labels.invalid],
        "dtype": v.dtype,
        "context": v.context,
        **v.form(),
        **({"engine_args": args} if args else {}),  # quantisation, and nobody can tell what else
    }


def folder(run: Run, made_by: dict[str, Any]) -> Path:
    """Return where the log-probs of a verifier of this `identity` are."""
    return run.path / "label_logprobs" / runfolder.short_hash(json.dumps(made_by, sort_keys=True))


def read(folder: Path) -> tuple[pa.Table, str]:
    """Read the log-probs of a folder, and by which weights they are; empty without any."""
    damage, batches, loaded = parquet.Damage(), list[pa.RecordBatch](), ""
    for path in shards.files(folder):
        batches += parquet.read(path, LABEL_LOGPROBS, LABEL_LOGPROBS.names, damage)
        loaded = loaded or json.loads(metadata(path).get(_MADE_BY, b"{}")).get("loaded", "")
    if damage.lines:
        warn(f"{folder}: {damage}; set aside, those texts are judged again")
        shards.set_aside(damage, LABEL_LOGPROBS)
    return pa.Table.from_batches(batches, LABEL_LOGPROBS), str(loaded)


def survey(run: Run, template: str) -> pa.Table:
    """Read all attempts in the order of question and trial, and hash what is judged of each.

    Columns: `key` (`rowkeys.encode`), `part` (stem of its file), `judged` (hash of its text; empty:
    unreadable), `bytes` of the text, `truth` (`true_labels`), grades. With judge=unmatched only
    what the rule grader does not accept. Raises UserError: grades that are needed are not there.
    """
    judge, listed = run.cfg.dataset.judge, parts(run.attempts)
    with_answer = prompts.uses_answer(template)
    try:
        of = [keys_of(run, part) for part in listed]
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return survey(run, template)  # a journal was sealed since the listing
    stems = np.repeat([part.stem for part in listed], [*map(len, of)])
    keys, first = np.unique(np.concatenate(of), return_index=True)
    keys, first = keys[keys >= 0], first[keys >= 0]
    grades = graded.ruled(run, ["outcome", "box", *["answer"] * with_answer])
    grades = rowkeys.aligned(run, grades, keys)
    attempts = pa.table({"key": keys, "part": stems[first]} | grades)
    if (ungraded := attempts["outcome"].null_count) and (judge == "unmatched" or with_answer):
        why = "judge=unmatched and prompts with {answer} need grades: run `grade` first"
        raise UserError(f"{run.path}: {ungraded} attempts are not graded; {why}")
    if judge == "unmatched":
        attempts = attempts.filter(graded.asks(judge, attempts["outcome"], attempts["box"]))
    hashes, sizes = np.zeros(len(attempts), "S24"), np.zeros(len(attempts), np.int64)
    for i, candidate in candidates(run, attempts):
        hashes[i] = digest(candidate)
        sizes[i] = sum(len(field.encode()) for field in candidate[1:])
    attempts = attempts.append_column("judged", pa.array(hashes).cast(pa.string()))
    attempts = attempts.append_column("bytes", pa.array(sizes))
    return attempts.append_column("truth", calibrate.true_labels(attempts["outcome"], run))


def digest(candidate: Candidate) -> str:
    """Hash what is judged: question, gold answer, response and extracted answer."""
    fields = [text.encode() for text in candidate[1:]]
    lengths = repr([*map(len, fields)]).encode()
    return hashlib.blake2b(b"".join([lengths, *fields]), digest_size=12).hexdigest()


def candidates(run: Run, attempts: pa.Table) -> Iterator[tuple[int, Candidate]]:
    """Stream what is judged of attempts and the places of these, with options as they saw them."""
    damage, keys = parquet.Damage(), attempts["key"].to_pylist()
    answers = attempts["answer"].to_pylist() if "answer" in attempts.column_names else []
    for i, text in rowkeys.responses(run, attempts["key"].to_numpy(), damage):
        shown = runfolder.as_shown(run.cfg, run.questions[keys[i] >> 32], keys[i] & 0xFFFFFFFF)
        extracted = runfolder.letter_shown(shown, answers[i] or "") if answers else ""
        yield i, prompts.as_candidate(shown)._replace(response=text, answer=extracted)
    if damage.lines:
        warn(f"attempts: {damage}; they are left out until they are made again")


def batches(texts: Iterable[Text], total: int, replicas: int) -> Iterator[asker.Batch]:
    """Split texts and their hashes, `total` of them, into batches; several for each replica."""
    most = _ROWS if replicas == 1 else min(_ROWS, 1 + total // (_EACH * replicas))
    batch, size = list[Text](), 0
    for text in itertools.chain(texts, [None]):
        if text is not None:
            batch.append(text)
            size += len(text[1].response)
        if batch and (text is None or len(batch) >= most or size >= _CHARACTERS):
            batch.sort(key=lambda text: text[1].question)  # they share a prefix in the cache
            yield [name for name, _ in batch], [candidate for _, candidate in batch]
            batch, size = [], 0


def _judged(run: Run, made_by: dict[str, Any], template: str, intact: home.Check) -> pa.Table:
    """Ask about texts that are not judged; return `calibrate.with_labels` of all attempts."""
    place, attempts = folder(run, made_by), survey(run, template)
    logprobs, loaded = read(place)
    free, done = calibrate.probes(run), {"", *logprobs["judged"].to_pylist()}
    probes = [digest(candidate) for candidate in free]
    new = {name: one for name, one in zip(probes, free, strict=True) if name not in done}
    others = pc.is_in(attempts["judged"], value_set=pa.array([*done, *new]))
    owed = attempts.filter(pc.invert(others))
    owed = owed.take(np.unique(owed["judged"].to_numpy().astype("S"), return_index=True)[1])
    judged, total = calibrate.with_labels(run, attempts, logprobs, probes), len(new) + len(owed)
    if not total or not len(attempts):
        return judged
    v, judge = run.cfg.verifier, verifier_as_model(run.cfg)
    cfg, weights = sizing.resolved(judge, ()), models.fingerprint(judge.model)
    if v.trust_remote_code:
        warn(f"verifier.trust_remote_code=true: Python code that {v.id} brings will run")
    if loaded not in ("", weights):
        why = f"is {weights} now, but log-probs in {run.path} are by {loaded}"
        raise UserError(f"verifier.id={v.id}: {why}; set verifier.revision to one of them")
    if not engines.kind(cfg.engine.name).served:
        models.download(cfg.model)
    hashes, pending = owed["judged"], len(attempts) - len(judged)
    texts = ((hashes[i].as_py(), candidate) for i, candidate in candidates(run, owed))
    todo = batches(itertools.chain(new.items(), texts), total, cfg.engine.replicas)
    turns = (prompts.fill(template, prompts.as_candidate(row))[0] for row in run.questions)
    most = pc.max(attempts["bytes"]).as_py() + max(len(turn.encode()) for turn in turns)
    worker, number = shards.worker_id(), itertools.count()
    answers = asker.answers(cfg, most, todo, f"{run.path}/logs/{worker}-verify-{{}}.stderr")
    with Meter("verify", total) as meter, contextlib.closing(answers):
        for rows, engine in answers:
            intact()
            logprobs = pa.concat_tables([logprobs, rows])
            judged = calibrate.with_labels(run, attempts, logprobs, probes)
            check(run, judged)
            by = {"verifier": made_by, "loaded": models.fingerprint(cfg.model), "engine": engine}
            columns = LABEL_LOGPROBS.with_metadata({_MADE_BY: json.dumps(by)})
            place.parent.mkdir(exist_ok=True)
            parquet.write_part(place / f"{worker}-{next(number):05d}.parquet", rows.cast(columns))
            meter.advance(len(rows))
    mention(f"verify: {pending} attempts judged with {total} prompts, content-free ones included")
    return judged


def check(run: Run, attempts: pa.Table) -> None:
    """Raise UserError: all attempts so far, with this batch, show a broken verifier."""
    v, logprobs = run.cfg.verifier, of_labels(attempts, "logprob_")
    bases = of_labels(attempts, "base_") if "base_a" in attempts.column_names else None
    seen, correct = attempts["truth"].is_valid().to_numpy(), pc.equal(attempts["truth"], 0)
    of_seen = logprobs[seen], None if bases is None else bases[seen], correct.drop_null().to_numpy()
    limits: dict[str, Any] = {"temperature": v.temperature, "mass_floor": v.least_mass}
    problems = guards.check_verdicts(logprobs, bases, **limits)
    if problems := problems or guards.check_verdicts(*of_seen, **limits):
        remedy = "check verifier.prompt, verifier.labels and chat template, or verifier=none"
        raise UserError(f"verifier.id={v.id}, prompt {v.prompt}: {'; '.join(problems)}; {remedy}")


def _derive(run: Run, attempts: pa.Table, made_from: Inputs, owed: Iterable[Part]) -> None:
    """Write the verdicts of parts of attempts in place of what is there."""
    (run.path / "verdicts" / "_calibration.json").unlink(missing_ok=True)
    v, keys, bases = run.cfg.verifier, attempts["key"].to_numpy(), of_labels(attempts, "base_")
    fit = calibrate.fit(run, attempts)[0] if v.fit_temperature else None
    temperature, written = fit.temperature if fit else v.temperature, 0
    logprobs = of_labels(attempts, "logprob_").astype(np.float64)
    raw, calibrated = np.exp(logprobs), calibration.calibrate(logprobs, bases, temperature)
    columns = {
        "question_id": rowkeys.question_ids(run).take(pa.array(keys >> 32)),
        "trial": keys & 0xFFFFFFFF,
        **label_columns(logprobs, "logprob_"),
        **label_columns(bases, "base_"),
        **label_columns(raw, "raw_"),
        **label_columns(calibration.direct(logprobs), "direct_"),
        **label_columns(calibrated),
        "mass": raw.sum(axis=1).astype(np.float32),
        "label": np.array(LABELS)[calibrated.argmax(axis=1)],
        "tokens": attempts["tokens"],
        "cut": attempts["cut"],
    }
    table = pa.table(columns, schema=VERDICTS)
    for part in owed:
        rows = table.filter(pc.equal(attempts["part"], part.stem))
        VERDICTS_TABLE.write(run.path, part.stem, rows, made_from, part.mark)
        written += rows.num_rows
    VERDICTS_TABLE.sweep(run)
    note(f"verify: {written} verdicts, T={temperature:g}, calibration={v.calibration}")
