"""Attempts on disk: the writer, stored parts that continue, and cleaning up after workers.

Written attempts survive the process at once and a power cut soon after. The caller's own thread
hands each frame to the operating system: that takes less than a millisecond, no other thread
competes with a CPU engine for its cores, and `kill -9` loses nothing that was handed over. The slow
parts, flushing to disk and sealing into Parquet, run in a thread.
"""

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.journal import Journal
from bayes_at_n.pipeline.config.settings import continued_seed
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.prepare import questions_table
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, below
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import claims, session
from bayes_at_n.pipeline.workers.stopping import Check

SEAL_AT = 64 << 20  # bytes of a journal, and so the most memory that sealing takes
SYNC_S = 0.5  # between two flushes to disk: the most that a power cut loses


class AttemptWriter:
    """Appends attempts to its own journals and seals them into Parquet parts.

    `suffix`: ends their names, see `runfolder.part_suffix`; `metadata`: of the parts; `check`:
    called before a journal is created, raises if the run folder has moved.

    Attributes:
        written: how many attempts are in journals, where the death of this process loses none.
        error: the first error, also of the writer's thread.
    """

    def __init__(
        self,
        folder: Path,
        worker: str,
        suffix: str = "",
        metadata: dict[bytes, bytes] | None = None,
        check: Check = lambda: None,
    ) -> None:
        self.folder, self.worker, self.suffix, self.check = folder, worker, suffix, check
        self.columns = ATTEMPTS.with_metadata(metadata)
        self.error: OSError | None = None
        self.written = self._synced = 0  # attempts in journals; attempts flushed to disk
        self._unsynced: deque[tuple[str, int]] = deque()  # keys, in the order written
        self._sequence = 0
        self._journal: Journal | None = None
        self._full: deque[Journal] = deque()
        self._settling, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="attempt-writer")
        self._thread.start()

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write finished attempts; after the call the death of this process cannot lose them.

        Raises OSError: something could not be written, now or before (a full disk, say).
        """
        if self.error is None and rows:
            with self._keeping_error():
                self._append(rows)
        if self.error is not None:
            raise self.error

    def cut(self) -> None:
        """Seal what is written and begin a new file. Raises OSError: see `append`."""
        self._hand_over()
        self.sync()

    def sync(self) -> None:
        """Flush what is written to disk. Raises OSError: see `append`."""
        self._settle()
        self.append([])

    def durable(self) -> Iterator[tuple[str, int]]:
        """Yield the keys of attempts flushed to disk since the last call."""
        for _ in range(self._synced - (self.written - len(self._unsynced))):
            yield self._unsynced.popleft()

    def close(self) -> None:
        """Seal what is written and end the thread.

        Raises OSError: not everything could be written; what was written stays readable.
        """
        self._hand_over()
        self._closed.set()
        self._thread.join()
        self.append([])

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if self._journal is None:
            self.check()
            stem = f"{self.worker}-{self._sequence:05d}{self.suffix}"
            path = self.folder / f"{shards.HIDDEN}{stem}.journal"
            self._journal = Journal(path, self.columns)
            self._sequence += 1
        self._journal.append(rows)
        if not self._journal.path.exists():  # sealed by another process that thought this one dead
            self._hand_over()
            self._append(rows)
            return
        self._unsynced.extend((row["question_id"], row["trial"]) for row in rows)
        self.written += len(rows)
        if self._journal.size >= SEAL_AT:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._journal is not None:
            self._full.append(self._journal)
            self._journal = None

    def _work(self) -> None:
        while not self._closed.wait(SYNC_S):
            self._settle()
        self._settle()

    def _settle(self) -> None:
        """Flush written attempts to disk, and seal full journals."""
        with self._settling, self._keeping_error():
            written, growing = self.written, self._journal  # in this order, so that all is synced
            full = [self._full.popleft() for _ in range(len(self._full))]
            for journal in full if growing is None else [*full, growing]:
                journal.sync()
            self._synced = written
            for journal in full:
                journal.close()
                # On a full disk the journal stays, and the next start seals it.
                if self.error is None and journal.path.exists():
                    shards.seal(journal.path, ATTEMPTS)

    @contextlib.contextmanager
    def _keeping_error(self) -> Iterator[None]:
        """Keep an error for the caller's next call: raised in a thread, it would be lost."""
        try:
            yield
        except UserError:
            raise
        except OSError as error:
            self.error = self.error or error
        except Exception as error:  # a row that does not fit the table
            self.error = OSError(f"attempts cannot be stored ({type(error).__name__}: {error})")


def row_of(completion: Completion) -> dict[str, Any]:
    """Return a finished attempt as a row of the table."""
    prompt, tokens = completion.request.prompt_token_ids, completion.token_ids
    if completion.request.begun is not None:
        so_far = len(completion.request.so_far([]))
        return row_of(joined(completion)) | {"continued_from": so_far}
    return {
        "question_id": completion.request.question_id,
        "trial": completion.request.trial,
        "seed": completion.request.seed,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens if prompt is None else len(prompt),
        "completion_tokens": completion.tokens,
        # Typed arrays are eight times smaller than lists, should attempts wait for the disk.
        "token_ids": None if tokens is None else np.asarray(tokens, dtype=np.int32),
        "logprobs": None
        if completion.logprobs is None
        else np.asarray(completion.logprobs, dtype=np.float32),
        "started": completion.started,
        "first_token": completion.first_token,
        "finished": completion.finished,
        "options": completion.options,
    }


_AT_ONCE = 64  # attempts whose tokens are read and kept together
_READ = ["finish_reason", "completion_tokens", "token_ids", "logprobs", "seed"]
_READ += ["started", "first_token", "finished"]

Rows = dict[tuple[str, int], dict[str, Any]]  # of attempts, by key


class Continued:
    """The attempts that a run continues; their stored tokens are read when they are requested."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.cut = list(runfolder.continuing(run))
        self._index = {key: i for i, key in enumerate(self.cut)}
        self._read: Rows = {}

    def __call__(self, request: Request) -> Request:
        """Return the request for the rest of an attempt; unchanged if no part of it is stored."""
        key = request.question_id, request.trial
        if key not in self._index:
            return request
        if key not in self._read:
            first = self._index[key]
            self._read = stored(self.run, set(self.cut[first : first + _AT_ONCE]))
        begun = self._read.pop(key, None)
        if begun is None:  # lost with a damaged part since: sampled from the start
            return request
        n = len(begun["token_ids"])
        seed = continued_seed(begun["seed"], n)
        return replace(request, begun=begun, max_tokens=request.max_tokens - n, seed=seed)


def stored(run: Run, keys: set[tuple[str, int]]) -> Rows:
    """Read the rows of these attempts that were cut below the cap of their question.

    Raises UserError: token ids are not stored.
    """
    questions, rows = {row["question_id"]: row for row in run.questions}, {}
    for batch in shards.batches(run.attempts, ATTEMPTS, [*KEY, *_READ], shards.Damage(), keep=keys):
        limits = [questions[id_]["max_tokens"] for id_ in batch[KEY[0]].to_pylist()]
        short = below(limits, batch["finish_reason"], batch["completion_tokens"])
        for row in batch.filter(short).to_pylist():
            if None in (row["token_ids"], questions[row["question_id"]]["prompt_token_ids"]):
                raise UserError(questions_table.refusal(run, questions_table.NO_TOKENS))
            rows[row["question_id"], row["trial"]] = row
    return rows


def joined(completion: Completion) -> Completion:
    """Return a continued attempt as if sampled in one go, its times without the pause."""
    request, begun = completion.request, completion.request.begun
    assert begun is not None and completion.token_ids is not None
    logprobs = None
    if begun["logprobs"] is not None and completion.logprobs is not None:
        logprobs = begun["logprobs"] + completion.logprobs
    paused = completion.started - begun["finished"]
    return replace(
        completion,
        request=replace(request, seed=begun["seed"], begun=None),
        token_ids=request.so_far(completion.token_ids),
        logprobs=logprobs,
        started=begun["started"] + paused,
        first_token=None if begun["first_token"] is None else begun["first_token"] + paused,
    )


PATIENCE_S = 3600.0  # a silent worker on another host may wake up and still need its journal
LEAVING = "leaving.lease"  # in the run folder: held by the last worker to leave


def tidy(run: Run, patience: bool = True) -> None:
    """Seal journals of dead workers and set damaged parts aside, unless another process does.

    `patience`: spare silent workers of other hosts, which may wake up. Without it every worker that
    is not alive counts as dead, which is right when nothing is pending.
    """
    with contextlib.suppress(lease.Taken), lease.held(run.path / "tidy.lease", "tidying up"):
        alive = runfolder.alive(run.path)

        @functools.cache
        def is_dead(worker: str) -> bool:
            heartbeat = runfolder.heartbeat(run.path, worker)
            return worker not in alive and (not patience or lease.expired(heartbeat, PATIENCE_S))

        for line in shards.seal_leftovers(run.attempts, ATTEMPTS, is_dead):
            warn(f"attempts/{line}: its rows are pending again")
        damage = shards.Damage()
        runfolder.pending(run, damage)
        if parts := shards.set_aside(damage, ATTEMPTS):
            warn(f"attempts: {parts}; those rows are pending again; damaged files are set aside")


def leave(run: Run, spent: bool = False) -> None:
    """Write the summary and remove journals and claims, if this is the last worker of the run.

    `spent`: do so although attempts are pending, because the budget allows no more of them.
    """
    if runfolder.alive(run.path) or (not spent and runfolder.pending(run)):
        return
    tidy(run, patience=spent)
    session.write_summary(run)
    folder = run.path / runfolder.CLAIMS
    with (
        contextlib.suppress(OSError, lease.Taken),  # another worker may just have started
        lease.held(run.path / LEAVING, "leaving"),  # a killed worker may have left it
    ):
        claims.clear(run.path)
        for path in folder.glob(".*"):  # that killed workers did not get to rename or delete
            path.unlink(missing_ok=True)
        folder.rmdir()
