"""The writer of attempts, which survive the process at once and a power cut soon after.

The caller's own thread hands each frame to the operating system: that takes less than a
millisecond, no other thread competes with a CPU engine for its cores, and `kill -9` loses nothing
that was handed over. The slow parts, flushing to disk and sealing into Parquet, run in a thread.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.journal import Journal
from bayes_at_n.pipeline.engines import Completion
from bayes_at_n.pipeline.generate.continuing import joined
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.workers.guard import Check

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
