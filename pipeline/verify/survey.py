"""What there is to judge, what is judged already, and what is owed: arrays, not objects.

A run may hold hundreds of thousands of attempts, so nothing here grows by more than a few dozen
bytes with each of them; texts pass by and are hashed.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.console import note, warn
from pipeline.base.errors import UserError
from pipeline.store import rowkeys, shards
from pipeline.store.columns import ATTEMPTS, GRADES, KEY, VERDICTS
from pipeline.store.rowkeys import Ints
from pipeline.store.runfolder import Run
from pipeline.verify import store
from verifiers.judge.labels import LABELS

_ROWS, _CHARACTERS = 1024, 1 << 23  # of a batch, which is written, and lost, together
_NAMES = [*KEY, *(f"logprob_{x.lower()}" for x in LABELS), "tokens", "cut", "judged"]


@dataclass
class Survey:
    """Attempts in the order of question and trial, n of them, with U distinct texts."""

    ids: pa.Array  # of the questions; keys count in it
    keys: Ints  # (n,) see rowkeys.encode
    slots: Ints  # (n,) which text: identical attempts are judged once
    answers: pa.Array  # (n,) extracted, null without one or where the prompt does not ask for it
    truth: npt.NDArray[np.int8]  # (n,) see store.true_labels
    done: npt.NDArray[np.bool_]  # (n,) has a verdict
    digests: npt.NDArray[np.bytes_]  # (U,) hash of what is judged, sorted
    logprobs: npt.NDArray[np.float32]  # (U, 3) NaN where the verifier was not asked yet
    tokens: npt.NDArray[np.int32]  # (U,) of its prompt
    cut: npt.NDArray[np.bool_]  # (U,) whether the middle of the response was left out
    longest: int  # bytes of the longest response with its answer

    @property
    def questions(self) -> Ints:
        """(n,) which question, as a position in `ids`."""
        return self.keys >> 32


def survey(run: Run, with_answer: bool) -> Survey:
    """Read what there is; verdicts on texts that have changed since are dropped.

    Raises:
        UserError: without attempts, or when the prompt restates answers and some are not graded.
    """
    ids = rowkeys.question_ids(run)
    keys, digests, longest = _attempts(run, ids, with_answer)
    order = np.argsort(keys)
    keys, digests = keys[order], digests[order]
    grades = rowkeys.aligned(run.grades, GRADES, ["answer", "outcome"], keys, ids, "grade")
    distinct, slots = np.unique(digests, return_inverse=True)
    work = Survey(
        ids=ids,
        keys=keys,
        slots=slots,
        answers=grades["answer"] if with_answer else pa.nulls(keys.size, pa.string()),
        truth=store.true_labels(grades["outcome"]),
        done=np.zeros(keys.size, dtype=bool),
        digests=distinct,
        logprobs=np.full((distinct.size, len(LABELS)), np.nan, dtype=np.float32),
        tokens=np.zeros(distinct.size, dtype=np.int32),
        cut=np.zeros(distinct.size, dtype=bool),
        longest=longest,
    )
    _add_stored(run, work)
    return work


def owed(run: Run, work: Survey) -> Iterator[tuple[Ints, list[str]]]:
    """Rows of the survey without a verdict and their responses, in batches of bounded size."""
    rows: list[int] = []
    texts: list[str] = []
    size = 0
    order = np.arange(work.keys.size)
    for batch in shards.batches(run.attempts, ATTEMPTS, [*KEY, "text"], shards.Damage()):
        at = rowkeys.rows_of(rowkeys.encode(batch, work.ids), work.keys, order)
        for i in np.flatnonzero((at >= 0) & ~work.done[at]):
            texts.append(batch["text"][i].as_py() or "")
            rows.append(int(at[i]))
            size += len(texts[-1])
            if len(rows) >= _ROWS or size >= _CHARACTERS:
                yield _by_question(rows, texts)
                rows, texts, size = [], [], 0
    if rows:
        yield _by_question(rows, texts)


def _by_question(rows: list[int], texts: list[str]) -> tuple[Ints, list[str]]:
    """Prompts of one question one after the other: they share its prefix in the cache."""
    order = np.argsort(rows, kind="stable")
    return np.array(rows, dtype=np.int64)[order], [texts[i] for i in order]


def _attempts(
    run: Run, ids: pa.Array, with_answer: bool
) -> tuple[Ints, npt.NDArray[np.bytes_], int]:
    """Key and hash of every attempt, and the bytes of the longest response with its answer."""
    if with_answer:
        grades = rowkeys.streamed(run.grades, GRADES, [*KEY, "answer"], "grade")
        graded = rowkeys.encode(grades, ids)
        order = np.argsort(graded)
    parts: list[Ints] = []
    digests: list[npt.NDArray[np.bytes_]] = []
    ungraded, longest = 0, 0
    damage = shards.Damage()
    for batch in shards.batches(run.attempts, ATTEMPTS, [*KEY, "text"], damage):
        encoded = rowkeys.encode(batch, ids)
        keys = encoded[encoded >= 0]  # the run may have lost questions
        texts = batch["text"].filter(pa.array(encoded >= 0)).fill_null("").to_pylist()
        answers = [""] * keys.size
        if with_answer:
            at = rowkeys.rows_of(keys, graded, order)
            ungraded += int((at < 0).sum())
            answers = grades["answer"].take(pa.array(at, mask=at < 0)).fill_null("").to_pylist()
        names = ids.take(pa.array(keys >> 32)).to_pylist()
        hashes = []
        for judged in zip(names, texts, answers, strict=True):
            hashes.append(hashlib.blake2b(json.dumps(judged).encode(), digest_size=12).hexdigest())
            longest = max(longest, sum(len(text.encode()) for text in judged[1:]))
        parts.append(keys)
        digests.append(np.array(hashes, dtype="S24"))
    if damage.lines:
        warn(f"attempts: {damage}; they are left out until they are made again")
    if not sum(part.size for part in parts):
        raise UserError(f"{run.path}: no attempts to verify yet; run `python -m pipeline generate`")
    if ungraded:
        raise UserError(
            f"{run.path}: {ungraded} attempts are not graded, and the prompt"
            f" {run.cfg.verifier.prompt} restates the extracted answer; run `grade` first"
        )
    return np.concatenate(parts), np.concatenate(digests), longest


def _add_stored(run: Run, work: Survey) -> None:
    """Add stored verdicts to a survey."""
    damage, order = shards.Damage(), np.arange(work.keys.size)
    stale: list[Ints] = [np.empty(0, dtype=np.int64)]
    for batch in shards.batches(store.folder(run), VERDICTS, _NAMES, damage, verify=True):
        judged = np.array(batch["judged"].to_pylist(), dtype="S24")
        slot = np.searchsorted(work.digests, judged)
        slot[slot == work.digests.size] = 0
        known = work.digests[slot] == judged
        at = slot[known]
        work.logprobs[at] = store.of_labels(batch, "logprob_")[known]
        work.tokens[at] = batch["tokens"].to_numpy()[known]
        work.cut[at] = batch["cut"].to_numpy(zero_copy_only=False)[known]
        keys = rowkeys.encode(batch, work.ids)
        row = rowkeys.rows_of(keys, work.keys, order)
        current = (row >= 0) & known & (work.slots[row] == slot)
        work.done[row[current]] = True
        stale.append(keys[(row >= 0) & ~current])
    if damage.lines:
        warn(f"verdicts: {damage}; set aside, those rows are owed again")
        shards.set_aside(damage, VERDICTS)
    changed = np.concatenate(stale)
    if changed.size:
        note(f"verify: {changed.size} attempts or their extracted answers changed, judged anew")

        def without(table: pa.Table) -> pa.Table:
            keys = rowkeys.encode(table.combine_chunks(), work.ids)
            return table.filter(pa.array(~np.isin(keys, changed)))

        store.rewrite(run, without)
