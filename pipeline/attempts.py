"""The writer of attempts: a thread that makes every finished attempt durable at once.

The engine never waits for the disk unless the disk is slower than the engine for long. What
finishes within a twentieth of a second is flushed together.
"""

import queue
import threading
import time
from pathlib import Path
from typing import Any

from pipeline import shards
from pipeline.journal import Journal
from pipeline.tables import ATTEMPTS

SEAL_AT = 64 << 20  # bytes of a journal, and so the writer's largest piece of memory
GATHER_S = 0.05  # what finishes together shares one flush, and the engine keeps its cores
_MOST_WAITING = 256  # attempts; above that the engine waits for the disk
_MOST_IN_FRAME = 64  # attempts; some 25 MB of them at 32,768 tokens each


class AttemptWriter:
    """Appends attempts to journals of its own and seals them into Parquet parts."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.folder, self.worker = folder, worker
        self.error: OSError | None = None
        self.written = 0
        self._sequence = 0
        self._journal: Journal | None = None
        self._queue: queue.Queue[dict[str, Any] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="attempt-writer")
        self._thread.start()

    def put(self, row: dict[str, Any]) -> None:
        """Hand over one finished attempt.

        Raises:
            OSError: when an earlier attempt could not be written (a full disk, say).
        """
        while True:
            if self.error is not None:
                raise self.error
            try:
                self._queue.put(row, timeout=1.0)
                return
            except queue.Full:
                continue

    def close(self) -> None:
        """Write what waits and seal the journal.

        Raises:
            OSError: when not everything could be written; what was written stays readable.
        """
        self._queue.put(None)
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _work(self) -> None:
        last = False
        while not last:
            rows, last = self._take()
            if self.error is not None:
                continue  # keep emptying the queue so that nobody blocks on it
            try:
                if rows:
                    self._append(rows)
                if last or (self._journal and self._journal.size >= SEAL_AT):
                    self._seal()
            except OSError as error:
                self.error = error
            except Exception as error:  # a thread that just ended would lose the rest in silence
                self.error = OSError(f"attempts cannot be stored ({type(error).__name__}: {error})")

    def _take(self) -> tuple[list[dict[str, Any]], bool]:
        """The rows that wait, at least one; and whether the writer is to finish."""
        rows = [self._queue.get()]
        if rows[0] is not None:
            time.sleep(GATHER_S)
        while rows[-1] is not None and len(rows) < _MOST_IN_FRAME:
            try:
                rows.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return [row for row in rows if row is not None], rows[-1] is None

    def _append(self, rows: list[dict[str, Any]]) -> None:
        if self._journal is None:
            name = f"{shards.HIDDEN}{self.worker}-{self._sequence:05d}.journal"
            self._journal = Journal(self.folder / name, ATTEMPTS)
            self._sequence += 1
        self._journal.append(rows)
        self.written += len(rows)

    def _seal(self) -> None:
        if self._journal is not None:
            self._journal.close()
            shards.seal(self._journal.path, ATTEMPTS)
            self._journal = None
