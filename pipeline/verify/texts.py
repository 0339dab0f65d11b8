"""The texts that a verifier is asked about, each once, and the log-probs that it gave of them.

Log-probs are rows of `label_logprobs/HASH/*.parquet`, HASH being of the verifier's identity.
Attempts are read once, and with each memory grows by a few dozen bytes: texts wait in a file.
"""

import hashlib
import json
import pickle
import tempfile
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

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
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, LABEL_LOGPROBS
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.judge import Answer
from bayes_at_n.pipeline.verify.prompts import Candidate, asked, uses_answer
from bayes_at_n.verifiers.judge.labels import LABELS

_VERSION = 1  # of how prompts are written and encoded; another one makes other log-probs
_MADE_BY = b"made_by"
_ROWS, _CHARACTERS = 1024, 1 << 23  # of a batch, which is judged, and lost, together
_LEAST = 4  # rows of the last batches of several replicas
_IN_MEMORY = 1 << 26  # bytes of texts that wait; more are in a file
_ROW = np.dtype(
    [("judged", "S24"), ("logprobs", "f4", len(LABELS)), ("tokens", "i4"), ("cut", "?")]
)
Hashes = npt.NDArray[np.bytes_]
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


def folder(run: Run, made_by: Mapping[str, Any]) -> Path:
    """Where the log-probs of a verifier of this identity are."""
    name = runfolder.short_hash(json.dumps(made_by, sort_keys=True))
    return run.path / "label_logprobs" / name


def digest(candidate: Candidate) -> str:
    """Hash what is judged: question, gold answer, response and extracted answer."""
    fields = [text.encode() for text in candidate[1:]]
    lengths = repr([*map(len, fields)]).encode()
    return hashlib.blake2b(b"".join([lengths, *fields]), digest_size=12).hexdigest()


class LogProbs:
    """What the verifier said of texts, by their hashes; NaN where it is still to judge."""

    def __init__(self, folder: Path) -> None:
        damage, batches = parquet.Damage(), list[pa.RecordBatch]()
        self.folder, self.loaded = folder, ""  # the weights that gave what is stored
        for path in shards.files(folder):
            batches += parquet.read(path, LABEL_LOGPROBS, LABEL_LOGPROBS.names, damage)
            made_by = json.loads(origin.metadata(path).get(_MADE_BY, b"{}"))
            self.loaded = self.loaded or str(made_by.get("loaded", ""))
        if damage.lines:
            warn(f"{folder}: {damage}; set aside, those texts are judged again")
            shards.set_aside(damage, LABEL_LOGPROBS)
        table = pa.Table.from_batches(batches, LABEL_LOGPROBS)
        rows = np.empty(len(table), _ROW)
        rows["judged"], rows["logprobs"] = table["judged"].to_pylist(), of_labels(table, "logprob_")
        rows["tokens"], rows["cut"] = table["tokens"], table["cut"]
        self.said = rows[np.unique(rows["judged"], return_index=True)[1]]

    def rows(self, hashes: Any) -> Ints:
        """For each hash its row in `said`, or -1."""
        wanted, there = np.asarray(hashes, "S24"), self.said["judged"]
        at = np.searchsorted(there, wanted)
        return np.where(np.append(there, b"")[at] == wanted, at, -1)

    def expect(self, hashes: Hashes) -> None:
        """Make room for more texts."""
        fresh = np.setdiff1d(hashes, self.said["judged"])
        more = np.zeros(fresh.size, _ROW)
        more["judged"], more["logprobs"] = fresh, np.nan
        every = np.concatenate([self.said, more])
        self.said = every[np.argsort(every["judged"])]

    def add(self, hashes: list[str], answer: Answer) -> None:
        """Take what the verifier said of texts that are expected."""
        at = self.rows(hashes)
        for name, values in answer._asdict().items():
            self.said[name][at] = values

    def write(self, name: str, hashes: list[str], made_by: Any) -> None:
        """Add a part; `made_by`: the verifier's identity, its weights and its engine."""
        self.folder.parent.mkdir(exist_ok=True)
        said = self.said[self.rows(hashes)]
        columns: dict[str, Any] = {"judged": hashes, "tokens": said["tokens"], "cut": said["cut"]}
        columns |= {f"logprob_{x.lower()}": said["logprobs"][:, i] for i, x in enumerate(LABELS)}
        schema = LABEL_LOGPROBS.with_metadata({_MADE_BY: json.dumps(made_by)})
        parquet.write_part(self.folder / f"{name}.parquet", pa.table(columns, schema=schema))


@dataclass
class Work:
    """The attempts to be judged, n of them, in the order of question and trial."""

    run: Run
    parts: list[tables.Part]
    keys: Ints  # (n,) see rowkeys.encode
    part: Ints  # (n,) which file of attempts
    hashes: Hashes  # (n,) of its text
    truth: npt.NDArray[np.int64]  # (n,) see true_labels
    owed: "Waiting"  # texts that were not judged yet


@dataclass
class Waiting:
    """Texts to be judged, in a file without a name."""

    file: Any = field(default_factory=partial(tempfile.SpooledTemporaryFile, _IN_MEMORY))
    hashes: set[str] = field(default_factory=set)
    characters: int = 0
    longest: int = 0  # bytes of the longest of them

    def put(self, text: Text) -> None:
        """Let a text wait, unless it does already."""
        name, candidate = text
        if name not in self.hashes:
            self.hashes.add(name)
            self.characters += len(candidate.response)
            self.longest = max(self.longest, sum(len(part.encode()) for part in candidate[1:]))
            pickle.dump(text, self.file)

    def batches(
        self, replicas: int, without: Container[str] = ()
    ) -> Iterator[tuple[list[str], list[Candidate]]]:
        """All other texts with their hashes, in batches; those of one question stand together."""
        self.file.seek(0)
        waiting = (pickle.load(self.file) for _ in range(len(self.hashes)))
        texts = (text for text in waiting if text[0] not in without)
        for batch in batches(texts, self.characters, replicas):
            batch.sort(key=lambda text: text[1].question)  # they share a prefix in the cache
            yield [name for name, _ in batch], [candidate for _, candidate in batch]


def batches(texts: Iterable[Text], total: int, replicas: int) -> Iterator[list[Text]]:
    """Split texts, `total` characters in all, into batches of bounded size.

    For several replicas a batch is half of what each of them has left, so that they get ever
    smaller and all replicas end together (guided self-scheduling, Polychronopoulos and Kuck 1987).

    >>> texts = [(str(i), Candidate("q", "", "", "four", "")) for i in range(200)]
    >>> [len(batch) for batch in batches(texts, 800, replicas=2)]
    [50, 38, 28, 21, 16, 12, 9, 7, 5, 4, 4, 4, 2]
    """
    batch, size, left = list[Text](), 0, total
    for text in texts:
        batch.append(text)
        size += len(text[1].response)
        enough = replicas > 1 and len(batch) >= _LEAST and size >= left / (2 * replicas)
        if enough or len(batch) >= _ROWS or size >= _CHARACTERS:
            yield batch
            batch, size, left = [], 0, left - size
    if batch:
        yield batch


def survey(run: Run, known: LogProbs, template: str) -> Work:
    """Read all attempts, once, and let those texts wait that are not known.

    With judge=unmatched only what the rule grader does not accept is in it. Raises UserError:
    there are no attempts, or ungraded ones where the prompt or judge=unmatched needs grades.
    """
    try:
        return _survey(run, known, template)
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return _survey(run, known, template)  # a journal was sealed since the listing


def _survey(run: Run, known: LogProbs, template: str) -> Work:
    ids, judge, damage = rowkeys.question_ids(run), run.cfg.dataset.judge, parquet.Damage()
    grades, with_answer = graded.ruled(run, ["outcome", "box", "answer"]), uses_answer(template)
    of_grades = rowkeys.encode(grades, ids)
    order, owed, seen, ungraded = np.argsort(of_grades), Waiting(), set[int](), 0
    found = list[tuple[Any, ...]]()
    parts = tables.parts(run.attempts)
    for number, part in enumerate(parts):
        for batch in parquet.read(part.path, ATTEMPTS, [*KEY, "text"], damage):
            keys = rowkeys.encode(batch, ids)
            fresh = [i for i, k in enumerate(keys.tolist()) if k >= 0 and k not in seen]
            keys, texts = keys[fresh], batch["text"].take(pa.array(fresh, pa.int64()))
            seen.update(keys.tolist())
            at = rowkeys.rows_of(keys, of_grades, order)
            grade = grades.take(pa.array(at, mask=at < 0))
            ungraded += grade["outcome"].null_count
            if judge == "unmatched":
                asks = verdicts.asks(judge, grade["outcome"], grade["box"]).to_numpy()
                keys, wanted = keys[asks], pa.array(asks)
                texts, grade = texts.filter(wanted), grade.filter(wanted)
            answers = grade["answer"].to_pylist() if with_answer else [""] * keys.size
            of = zip(keys.tolist(), texts.to_pylist(), answers, strict=True)
            told = [_candidate(run, *one) for one in of]
            hashes = np.array([*map(digest, told)], "S24")
            for i in np.flatnonzero(known.rows(hashes) < 0).tolist():
                owed.put((hashes[i].decode(), told[i]))
            truth = true_labels(grade["outcome"], run)
            found.append((keys, np.full(keys.size, number), hashes, truth))
    if ungraded and (with_answer or judge == "unmatched"):
        why = f"verifier.prompt={run.cfg.verifier.prompt} restates the answer"
        why = why if with_answer else "dataset.judge=unmatched asks by the grade"
        raise UserError(f"{run.path}: {ungraded} attempts are not graded; {why}: run `grade` first")
    if not seen:
        raise UserError(f"{run.path}: no attempts to verify yet; run `{PROGRAM} generate`")
    if damage.lines:
        warn(f"attempts: {damage}; they are left out until they are made again")
    columns = [np.concatenate(column) for column in zip(*found, strict=True)]
    keys, number_of, hashes, truth = (column[np.argsort(columns[0])] for column in columns)
    return Work(run, parts, keys, number_of, hashes, truth, owed)


def _candidate(run: Run, key: int, text: str | None, answer: str | None) -> Candidate:
    """Make what is judged of an attempt, with options and letters as it saw them."""
    shown = options.as_shown(run.cfg, run.questions[key >> 32], key & 0xFFFFFFFF)
    said = options.letter(shown, answer or "")
    return asked(shown)._replace(response=text or "", answer=said)


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
