"""What there is to judge, what is judged already, and what is owed: arrays, not objects.

A run may hold hundreds of thousands of attempts, so nothing here grows by more than a few dozen
bytes with each of them; texts pass by and are hashed.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import graded, judged, options, parquet, rowkeys, shards
from bayes_at_n.pipeline.store.columns import KEY, VERDICTS
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import store
from bayes_at_n.verifiers.judge.labels import LABELS

_ROWS, _CHARACTERS = 1024, 1 << 23  # of a batch, which is judged, and lost, together
_LEAST = 4  # rows of the last batches of several replicas
_STORED = ["tokens", "cut", "judged"]
_NAMES = [*KEY, *(f"logprob_{x.lower()}" for x in LABELS), *_STORED]


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
    sizes: Ints  # (n,) characters of the response
    longest: int  # bytes of the longest response with its answer

    @property
    def questions(self) -> Ints:
        """(n,) which question, as a position in `ids`."""
        return self.keys >> 32


def survey(run: Run, with_answer: bool) -> Survey:
    """Read what there is; verdicts on texts that have changed since are dropped.

    With judge=unmatched only what the rule grader does not accept is in it. Raises UserError:
    without attempts; when some are not graded that the prompt or judge=unmatched needs graded.
    """
    keys = np.sort(rowkeys.keyed(run, "attempts", [], parquet.Damage())[1])
    some = keys.size > 0
    judge, names = run.cfg.dataset.judge, ["answer", "outcome", "box"]
    grades = graded.aligned(run, names, keys)
    if (with_answer or judge == "unmatched") and (ungraded := grades["outcome"].null_count):
        why = f"the prompt {run.cfg.verifier.prompt} restates the extracted answer"
        why = why if with_answer else "dataset.judge=unmatched asks by the grade"
        raise UserError(
            f"{run.path}: {ungraded} attempts are not graded, and {why}; run `grade` first"
        )
    if judge == "unmatched":
        asked = judged.asks(judge, grades["outcome"], grades["box"])
        grades = {name: column.filter(asked) for name, column in grades.items()}
        keys = keys[asked.to_numpy(False)]
    answers = grades["answer"] if with_answer else pa.nulls(keys.size, pa.string())
    digests, sizes, longest = _digests(run, keys, answers)
    readable = digests != b""
    if not readable.any() and not (judge == "unmatched" and some):
        raise UserError(f"{run.path}: no attempts to verify yet; run `{PROGRAM} generate`")
    distinct, slots = np.unique(digests[readable], return_inverse=True)
    work = Survey(
        ids=rowkeys.question_ids(run),
        keys=keys[readable],
        slots=slots,
        answers=answers.filter(pa.array(readable)),
        truth=store.true_labels(grades["outcome"])[readable],
        done=np.zeros(slots.size, dtype=bool),
        digests=distinct,
        logprobs=np.full((distinct.size, len(LABELS)), np.nan, dtype=np.float32),
        tokens=np.zeros(distinct.size, dtype=np.int32),
        cut=np.zeros(distinct.size, dtype=bool),
        sizes=sizes[readable],
        longest=longest,
    )
    _add_stored(run, work)
    return work


def answered(work: Survey) -> Ints:
    """Rows of the survey without a verdict whose text the verifier has judged."""
    return np.flatnonzero(~work.done & ~np.isnan(work.logprobs[work.slots, 0]))


def owed(run: Run, work: Survey, replicas: int) -> Iterator[tuple[Ints, list[str]]]:
    """Rows of the survey whose texts are to be judged, each text once, in batches."""
    unknown = np.flatnonzero(np.isnan(work.logprobs[work.slots, 0]))
    first = unknown[np.unique(work.slots[unknown], return_index=True)[1]]
    texts = rowkeys.responses(run, work.keys[first], parquet.Damage())
    for places, of_batch in batches(texts, int(work.sizes[first].sum()), replicas):
        yield _by_question(first[places].tolist(), of_batch)


def batches(
    texts: Iterable[tuple[int, str]], total: int, replicas: int
) -> Iterator[tuple[list[int], list[str]]]:
    """Texts with their places, `total` characters in all, in batches of bounded size.

    For several replicas a batch is half of what each of them has left, so that they get ever
    smaller and all replicas end together (guided self-scheduling, Polychronopoulos and Kuck 1987).

    >>> texts = [(i, "four") for i in range(200)]
    >>> [len(rows) for rows, _ in batches(texts, 800, replicas=2)]
    [50, 38, 28, 21, 16, 12, 9, 7, 5, 4, 4, 4, 2]
    """
    rows: list[int] = []
    of_batch: list[str] = []
    size, left = 0, total
    for place, text in texts:
        rows.append(place)
        of_batch.append(text)
        size += len(text)
        enough = replicas > 1 and len(rows) >= _LEAST and size >= left / (2 * replicas)
        if enough or len(rows) >= _ROWS or size >= _CHARACTERS:
            yield rows, of_batch
            left -= size
            rows, of_batch, size = [], [], 0
    if rows:
        yield rows, of_batch


def _by_question(rows: list[int], texts: list[str]) -> tuple[Ints, list[str]]:
    """Prompts of one question one after the other: they share its prefix in the cache."""
    order = np.argsort(rows, kind="stable")
    return np.array(rows, dtype=np.int64)[order], [texts[i] for i in order]


def _digests(run: Run, keys: Ints, answers: pa.Array) -> tuple[npt.NDArray[np.bytes_], Ints, int]:
    """Of every attempt a hash, empty if unreadable, and its characters; bytes of the longest."""
    digests, longest, damage = np.zeros(keys.size, "S24"), 0, parquet.Damage()
    sizes = np.zeros(keys.size, np.int64)
    names = rowkeys.question_ids(run).to_pylist()
    for i, text in rowkeys.responses(run, keys, damage):
        answer = answers[i].as_py() or ""
        places = options.order(run.cfg, run.questions[keys[i] >> 32], int(keys[i] & 0xFFFFFFFF))
        judged = json.dumps([names[keys[i] >> 32], text, answer, *places]).encode()
        digests[i] = hashlib.blake2b(judged, digest_size=12).hexdigest()
        longest = max(longest, len(text.encode()) + len(answer.encode()))
        sizes[i] = len(text)
    if damage.lines:
        warn(f"attempts: {damage}; they are left out until they are made again")
    return digests, sizes, longest


def _add_stored(run: Run, work: Survey) -> None:
    """Add stored verdicts to a survey."""
    if not work.keys.size:
        return
    damage, order = parquet.Damage(), np.arange(work.keys.size)
    stale: list[Ints] = [np.empty(0, dtype=np.int64)]
    for batch in shards.batches(store.folder(run), VERDICTS, _NAMES, damage):
        judged = np.array(batch["judged"].to_pylist(), dtype="S24")
        slots = np.minimum(np.searchsorted(work.digests, judged), work.digests.size - 1)
        known = work.digests[slots] == judged
        at, verdicts = slots[known], batch.filter(pa.array(known))
        work.logprobs[at] = store.of_labels(verdicts, "logprob_")
        work.tokens[at] = verdicts["tokens"].to_numpy()
        work.cut[at] = verdicts["cut"].to_numpy(zero_copy_only=False)
        keys = rowkeys.encode(batch, work.ids)
        rows = rowkeys.rows_of(keys, work.keys, order)
        same_text = known & (work.slots[rows] == slots)
        work.done[rows[(rows >= 0) & same_text]] = True
        stale.append(keys[(rows >= 0) & ~same_text])
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
