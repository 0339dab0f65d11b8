"""The texts that a verifier is asked about, each once, and the log-probs that it gave of them.

Log-probs are rows of `label_logprobs/HASH/*.parquet`, HASH being of the verifier's identity.
With each attempt memory grows by a few dozen bytes: texts are read to be hashed, and to be judged.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.prepare.questions import find_local
from bayes_at_n.pipeline.store import (
    graded,
    options,
    origin,
    parquet,
    rowkeys,
    runfolder,
    shards,
    tables,
    verdicts,
)
from bayes_at_n.pipeline.store.columns import LABEL_LOGPROBS
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.asker import Answer
from bayes_at_n.pipeline.verify.prompts import Candidate, asked, uses_answer
from bayes_at_n.verifiers.judge.labels import LABELS

_VERSION = 1  # of how prompts are written and encoded; another one makes other log-probs
_MADE_BY = b"made_by"
_ROWS, _CHARACTERS = 1024, 1 << 23  # of a batch, which is judged, and lost, together
_EACH = 16  # batches at least that each of several replicas gets, so that they end together
Text = tuple[str, Candidate]  # its hash, and what is to be judged


def identity(cfg: RunConfig, judge: RunConfig, template: str) -> dict[str, Any]:
    """Make everything that decides a log-prob; none of it needs the model itself."""
    v, args = cfg.verifier, judge.engine.args
    local = find_local(str(v.id))
    chat = (local or Path()) / "chat_template.jinja"
    chat_text = chat.read_text("utf-8") if local and chat.is_file() else ""
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


def digest(candidate: Candidate) -> str:
    """Hash what is judged: question, gold answer, response and extracted answer."""
    fields = [text.encode() for text in candidate[1:]]
    lengths = repr([*map(len, fields)]).encode()
    return hashlib.blake2b(b"".join([lengths, *fields]), digest_size=12).hexdigest()


def folder(run: Run, made_by: dict[str, Any]) -> Path:
    """Where the log-probs of a verifier of this identity are."""
    name = runfolder.short_hash(json.dumps(made_by, sort_keys=True))
    return run.path / "label_logprobs" / name


def read(folder: Path) -> tuple[pa.Table, str]:
    """Read the log-probs of a folder, and by which weights they are; empty without any."""
    damage, batches, loaded = parquet.Damage(), list[pa.RecordBatch](), ""
    for path in shards.files(folder):
        batches += parquet.read(path, LABEL_LOGPROBS, LABEL_LOGPROBS.names, damage)
        made_by = json.loads(origin.metadata(path).get(_MADE_BY, b"{}"))
        loaded = loaded or str(made_by.get("loaded", ""))
    if damage.lines:
        warn(f"{folder}: {damage}; set aside, those texts are judged again")
        shards.set_aside(damage, LABEL_LOGPROBS)
    return pa.Table.from_batches(batches, LABEL_LOGPROBS), loaded


def rows(hashes: list[str], answer: Answer) -> pa.Table:
    """Make rows of log-probs of an answer."""
    logprobs = {f"logprob_{x.lower()}": answer.logprobs[:, i] for i, x in enumerate(LABELS)}
    columns = {"judged": hashes, "tokens": answer.tokens, "cut": answer.cut}
    return pa.table(columns | logprobs, schema=LABEL_LOGPROBS)


def write(path: Path, rows: pa.Table, made_by: dict[str, Any]) -> None:
    """Write a part; `made_by`: the verifier's identity, its weights and its engine."""
    path.parent.parent.mkdir(exist_ok=True)
    parquet.write_part(
        path, rows.cast(LABEL_LOGPROBS.with_metadata({_MADE_BY: json.dumps(made_by)}))
    )


class Work(NamedTuple):
    """The attempts to be judged, n of them, in the order of question and trial."""

    parts: list[tables.Part]
    keys: Ints  # (n,) see rowkeys.encode
    part: Ints  # (n,) which of `parts`
    hashes: npt.NDArray[np.bytes_]  # (n,) of its text; empty: it could not be read
    truth: Ints  # (n,) see true_labels
    answers: npt.NDArray[Any]  # (n,) extracted ones, where the template has them
    longest: int  # bytes of the longest text


def survey(run: Run, template: str) -> Work:
    """Read all attempts, and hash what is to be judged of each.

    With judge=unmatched only what the rule grader does not accept is in it. Raises UserError:
    there are no attempts, or ungraded ones where the prompt or judge=unmatched needs grades.
    """
    parts, judge, longest = tables.parts(run.attempts), run.cfg.dataset.judge, 0
    try:
        of = [tables.keys_of(run, part) for part in parts]
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return survey(run, template)  # a journal was sealed since the listing
    number = np.repeat(np.arange(len(of)), [len(one) for one in of])
    keys, first = np.unique(np.concatenate([*of, [-1]]), return_index=True)
    keys, part = keys[1:], number[first[1:]]
    if not keys.size:
        raise UserError(f"{run.path}: no attempts to verify yet; run `{PROGRAM} generate`")
    grade = pa.table(graded.aligned(run, ["outcome", "box", "answer"], keys))
    with_answer, ungraded = uses_answer(template), grade["outcome"].null_count
    if ungraded and (judge == "unmatched" or with_answer):
        raise UserError(
            f"{run.path}: {ungraded} attempts are not graded, which dataset.judge=unmatched and"
            " prompts with {answer} need: run `grade` first"
        )
    if judge == "unmatched":
        asks = verdicts.asks(judge, grade["outcome"], grade["box"]).to_numpy()
        keys, part, grade = keys[asks], part[asks], grade.filter(pa.array(asks))
    answers, hashes = np.full(keys.size, "", object), np.zeros(keys.size, "S24")
    if with_answer:
        answers[:] = grade["answer"].to_pylist()
    for i, candidate in candidates(run, keys, answers):
        hashes[i] = digest(candidate)
        longest = max(longest, sum(len(field.encode()) for field in candidate[1:]))
    return Work(parts, keys, part, hashes, true_labels(grade["outcome"], run), answers, longest)


def candidates(run: Run, keys: Ints, answers: Any) -> Iterator[tuple[int, Candidate]]:
    """Stream what is judged of attempts and the places of these, with options as they saw them."""
    damage, known = parquet.Damage(), keys.tolist()
    for i, text in rowkeys.responses(run, keys, damage):
        shown = options.as_shown(run.cfg, run.questions[known[i] >> 32], known[i] & 0xFFFFFFFF)
        answer = options.letter(shown, answers[i] or "")
        yield i, asked(shown)._replace(response=text, answer=answer)
    if damage.lines:
        warn(f"attempts: {damage}; they are left out until they are made again")


def batches(
    texts: Iterable[Text], total: int, replicas: int
) -> Iterator[tuple[list[str], list[Candidate]]]:
    """Split texts, `total` of them, into batches of bounded size; several for each replica."""
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


def true_labels(outcome: Any, run: Run) -> npt.NDArray[np.int64]:
    """Return the labels that outcomes stand for: 0 (A), 1 (B), 2 (C); -1 of a timeout or the like.

    A verifier that lacks C can only say B for it.
    """
    label = pc.index_in(outcome, value_set=pa.array(["correct", "wrong", "no_answer"]))
    most = 2 if run.cfg.verifier.labels.invalid else 1
    labels: Ints = np.minimum(pc.fill_null(label, -1).to_numpy(), most).astype(np.int64)
    return labels


def of_labels(rows: Any, kind: str = "") -> npt.NDArray[Any]:
    """Stack the columns of A, B and C, (n, 3): "logprob_", "base_" or "" (calibrated)."""
    return np.stack([rows[f"{kind}{label.lower()}"].to_numpy() for label in LABELS], axis=1)
