"""verifier.engine.replicas > 1: so many verifiers on this node, each a process with its devices.

This process reads, checks and writes; replicas only judge, so whatever ends one of them loses no
more than time: what it was asked is asked again of another.
"""

import itertools
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import workernames
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.judge import Answer
from bayes_at_n.pipeline.verify.prompts import Candidate
from bayes_at_n.pipeline.workers import devices
from bayes_at_n.pipeline.workers.heartbeat import LOAD_S, Watch, silence_s
from bayes_at_n.pipeline.workers.process import Process

PROGRAM = [sys.executable, "-m", "bayes_at_n.pipeline.verify.replica"]
MOST_IN_VAIN = 3  # processes in a row, of one replica, without an answer: it is given up
STOP_S = 30.0  # for an engine that is taken down

Key = TypeVar("Key")
Batch = tuple[Key, Sequence[Candidate]]


@dataclass
class Replica(Process):
    """One place for a verifier, and what is known of the process that fills it."""

    engine: dict[str, Any] | None = None  # what the latest process has loaded
    in_vain: int = 0  # processes in a row without an answer
    failed: str = ""  # why nobody judges here now

    def ask(self, cfg: RunConfig, most: int, candidates: Sequence[Candidate]) -> Answer:
        """Have candidates judged, by a new process where there is none; see `Judge`.

        Raises UserError: as `Judge`. TryAgain: as `Judge`, or when the process ended or hung.
        """
        if self.process is None:
            self.engine = None
            self.begin(PROGRAM, (cfg, most))
        assert self.process is not None and self.process.stdin is not None

        def hung(seconds: float) -> None:
            self.kill(f"its engine did not answer for {seconds:g} s")

        try:
            with Watch(hung) as watch:
                if self.engine is None:
                    with watch.awaiting(LOAD_S):
                        self.engine = self._told()
                with watch.awaiting(silence_s(cfg.engine)):
                    pickle.dump(candidates, self.process.stdin)
                    self.process.stdin.flush()
                    while (told := self._told()) is None:
                        watch.got_on()
            self.in_vain = 0
            answer: Answer = told
            return answer
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise TryAgain(self.how_it_ended(self._ended())) from error
        except UserError as error:
            self.error = str(error)
            self._ended()
            raise

    def _told(self) -> Any:
        """What the process tells next; raised if it is an error."""
        assert self.process is not None and self.process.stdout is not None
        what = pickle.load(self.process.stdout)
        if isinstance(what, UserError):
            raise what
        return what

    def _ended(self) -> int:
        """The status of a process that has told its last."""
        assert self.process is not None
        self.in_vain += 1
        try:
            return self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill("it did not end")
            return self.process.wait()
        finally:
            self.forget()

    def dismiss(self) -> None:
        """Tell an idle process that nothing more is asked: it takes its engine down and ends."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()

    def end(self) -> None:
        """Wait for the end of a process that is dismissed."""
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
        super().end()


class Replicas:
    """The verifiers of this node; processes start when they are first asked.

    `cfg`, `most`: as of `Judge`. Raises UserError: when there are too few GPUs.
    """

    def __init__(self, run: Run, cfg: RunConfig, most: int) -> None:
        self.cfg, self.most = cfg, most
        folder, name = run.path / "logs", workernames.worker_id()
        self.replicas = [
            Replica(number, share, folder / f"{name}-verify-{number}.stderr")
            for number, share in enumerate(devices.shares(cfg))
        ]
        self.threads = ThreadPoolExecutor(len(self.replicas), "verify")
        self.asked: dict[Future[Answer], tuple[Replica, Any]] = {}  # who is at which batch

    def describe(self) -> dict[str, Any]:
        """What the engines are, of which one at least has answered."""
        loaded = [replica.engine for replica in self.replicas if replica.engine]
        return {**loaded[0], "replicas": len(self.replicas)}

    def answers(self, batches: Iterable[Batch[Key]]) -> Iterator[tuple[Key, Answer]]:
        """The answer to every batch, in any order; a batch is taken when somebody is free for it.

        Raises UserError: as `Judge`. TryAgain: when all replicas are given up.
        """
        waiting, asked = iter(batches), self.asked
        idle = [replica for replica in self.replicas if not replica.failed]
        answered: list[tuple[Key, Answer]] = []
        while True:
            while idle:
                batch = next(waiting, None)
                if batch is None:
                    break
                replica = idle.pop(0)
                future = self.threads.submit(replica.ask, self.cfg, self.most, batch[1])
                asked[future] = replica, batch
            yield from answered  # while the replicas are at work
            answered = []
            if not asked:
                break
            for future in wait(asked, return_when=FIRST_COMPLETED).done:
                replica, batch = asked.pop(future)
                try:
                    answered.append((batch[0], future.result()))
                except TryAgain as error:
                    waiting = itertools.chain([batch], waiting)
                    idle += [replica] if self._once_more(replica, error) else []
                else:
                    idle += [replica, *self._reconsidered()]
        if next(waiting, None) is not None:
            raise TryAgain(
                f"{'; '.join(self._reasons())} ({len(self.replicas)} of {len(self.replicas)}"
                " replicas were given up). Verdicts that were written are kept; the same command"
                " continues"
            )

    def _once_more(self, replica: Replica, error: TryAgain) -> bool:
        """Whether a replica that failed is to be started again."""
        if replica.in_vain >= MOST_IN_VAIN:
            replica.failed = f"{error}\n  given up after {MOST_IN_VAIN} times without an answer"
        elif replica.error and not replica.engine:  # it may be the user's, and all others' too
            replica.failed = str(error)
        else:
            warn(f"{error}\n  starting it again")
        return not replica.failed

    def _reconsidered(self) -> list[Replica]:
        """Those that could not load where others could: memory that was not free yet, say."""
        found = [r for r in self.replicas if r.failed and not r.engine and r.in_vain < MOST_IN_VAIN]
        for replica in found:
            warn(f"replica {replica.number}: {replica.failed}\n  others could load: once more")
            replica.failed = ""
        return found

    def _reasons(self) -> list[str]:
        """Why replicas were given up, each reason once."""
        return list(dict.fromkeys(replica.failed for replica in self.replicas if replica.failed))

    def close(self) -> None:
        """End all processes, those that are at work at once; warn of those that were given up."""
        at_work = set(self.asked)
        while at_work:
            for future in at_work:
                self.asked[future][0].kill("the command ends")
            at_work = wait(at_work, timeout=0.5).not_done  # one that was only about to start?
        for replica in self.replicas:
            replica.dismiss()
        for replica in self.replicas:
            replica.end()
        self.threads.shutdown()  # last: Linux kills a process when the thread that began it ends
        given_up, n = sum(bool(replica.failed) for replica in self.replicas), len(self.replicas)
        for reason in self._reasons() if given_up < n else ():
            warn(f"{given_up} of {n} replicas were given up: {reason}")
