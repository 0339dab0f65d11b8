"""The writer of attempts: what is finished survives the process, and soon a power cut as well.

The caller's own thread hands each frame to the operating system: it takes less than a millisecond,
no other thread competes with a CPU engine for its cores, and `kill -9` cannot take back what was
handed over. What is slow, flushing to the disk and sealing into Parquet, has a thread of its own.
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
from bayes_at_n.pipeline.generate.continuing import whole
from bayes_at_n.pipeline.store import parquet, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.origin import Metadata
from bayes_at_n.pipeline.workers.home import Check

SEAL_AT = 64 << 20  # bytes of a journal, and so the writer's largest piece of memory
SYNC_S = 0.5  # between two flushes to the disk: what a power cut may cost


class AttemptWriter:
    """Appends attempts to journals of its own and seals them into Parquet parts.

    `ending`: of their names, see `runfolder.part_suffix`; `about`: their metadata; `check`: of the
    run folder, before a journal is made there.

    Attributes:
        written: attempts in journals, which the death of this process does not lose.
        error: what went wrong since, also in the writer's thread.
    """

    def __init__(
        self,
        folder: Path,
        worker: str,
        ending: str = "",
        about: Metadata | None = None,
        check: Check = lambda: None,
    ) -> None:
        self.folder, self.worker, self.ending, self.check = folder, worker, ending, check
        self.columns = ATTEMPTS.with_metadata(about)
        self.error: OSError | None = None
        self.written = self._synced = 0  # attempts; those that the disk has: nothing loses them
        self._unsynced: deque[tuple[str, int]] = deque()  # keys, in the order written
        self._sequence = 0
        self._journal: Journal | None = None
        self._full: deque[Journal] = deque()
        self._settling, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="attempt-writer")
        self._thread.start()

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Write finished attempts: from here on the death of this process cannot lose them.

        Raises OSError: something could not be written, now or since (a full disk, say).
        """
        if self.error is None and rows:
            with self._noted():
                self._append(rows)
        if self.error is not None:
            raise self.error

    def cut(self) -> None:
        """Seal what is written; the next attempt begins a new file. Raises OSError: as `append`."""
        self._hand_over()
        self.sync()

    def sync(self) -> None:
        """Wait for the disk. Raises OSError: as `append`."""
        self._settle()
        self.append([])

    def durable(self) -> Iterator[tuple[str, int]]:
        """The keys of attempts that have reached the disk since this was last asked."""
        for _ in range(self._synced - (self.written - len(self._unsynced))):
            yield self._unsynced.popleft()

    def close(self) -> None:
        """Seal what is written.

        Raises OSError: when not everything could be written; what was written stays readable.
        """
        self._hand_over()
        self._closed.set()
        self._thread.join()
        self.append([])

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if self._journal is None:
            self.check()
            stem = f"{self.worker}-{self._sequence:05d}{self.ending}"
            path = self.folder / f"{parquet.HIDDEN}{stem}.journal"
            self._journal = Journal(path, self.columns)
            self._sequence += 1
        self._journal.append(rows)
        if not self._journal.path.exists():  # this process was thought dead, and its journal taken
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
        """Flush to the disk what is written by now, and seal the journals that are full."""
        with self._settling, self._noted():
            written, growing = self.written, self._journal  # in this order: then all is synced
            full = [self._full.popleft() for _ in range(len(self._full))]
            for journal in full if growing is None else [*full, growing]:
                journal.sync()
            self._synced = written
            for journal in full:
                journal.close()
                # On a full disk the journal is what is left: the next start seals it.
                if self.error is None and journal.path.exists():
                    shards.seal(journal.path, ATTEMPTS)

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """What goes wrong is remembered for the caller: a thread would end in silence."""
        try:
            yield
        except UserError:
            raise
        except OSError as error:
            self.error = self.error or error
        except Exception as error:  # a row that does not fit the table
            self.error = OSError(f"attempts cannot be stored ({type(error).__name__}: {error})")


def row_of(completion: Completion) -> dict[str, Any]:
    """A finished attempt as a row of the table."""
    prompt, tokens = completion.request.prompt_token_ids, completion.token_ids
    if completion.request.begun is not None:
        so_far = len(completion.request.so_far([]))
        return row_of(whole(completion)) | {"continued_from": so_far}
    return {
        "question_id": completion.request.question_id,
        "trial": completion.request.trial,
        "seed": completion.request.seed,
        "text": completion.text,
        "finish_reason": completion.finish_reason,
        "prompt_tokens": completion.prompt_tokens if prompt is None else len(prompt),
        "completion_tokens": completion.tokens,
        # Typed arrays: eight times smaller than lists, should attempts wait for the disk.
        "token_ids": None if tokens is None else np.asarray(tokens, dtype=np.int32),
        "logprobs": None
        if completion.logprobs is None
        else np.asarray(completion.logprobs, dtype=np.float32),
        "started": completion.started,
        "first_token": completion.first_token,
        "finished": completion.finished,
    }
