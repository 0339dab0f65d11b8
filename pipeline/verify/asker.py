"""Asking the verifier: in this process, or in replicas; watched for a hang either way.

With verifier.engine.replicas > 1 each verifier is a process with its devices, which only judges:
what ends it loses no more than time, for its batch is asked again. A process tells what its engine
is, then an answer for every list of candidates, and None after every step of the engine in between;
an error is the last thing that it tells.
"""

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from bayes_at_n.pipeline.base.console import fail, mention_now, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models, prefetch, sizes
from bayes_at_n.pipeline.store import workernames
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.judge import Answer, Judge
from bayes_at_n.pipeline.verify.prompts import Candidate, asked, fill, read_template
from bayes_at_n.pipeline.workers import devices, process
from bayes_at_n.pipeline.workers.heartbeat import HUNG, LOAD_S, Watch, silence_s

PROGRAM = [sys.executable, "-m", __name__]
MOST_IN_VAIN = 3  # processes in a row, of one replica, without an answer: it is given up
STOP_S = 30.0  # for a process that has told its last

Key = TypeVar("Key")
Batch = tuple[Key, Sequence[Candidate]]


@dataclass
class Replica(process.Process):
    """One place for a verifier, and what is known of the process that fills it."""

    engine: dict[str, Any] | None = None  # what the latest process has loaded
    in_vain: int = 0  # processes in a row without an answer
    failed: str = ""  # why it was given up

    def ask(self, cfg: RunConfig, most: int, candidates: Sequence[Candidate]) -> Answer:
        """Have candidates judged, by a new process where there is none; see `Judge`.

        Raises UserError: as `Judge`. TryAgain: as `Judge`, or when the process ended or hung.
        """
        if self.process is None:
            self.engine = None
            self.begin(PROGRAM, (cfg, most))
        assert self.process is not None and self.process.stdin is not None
        try:
            with Watch(lambda s: self.kill(f"its engine did not answer for {s:g} s")) as watch:
                if self.engine is None:
                    with watch.awaiting(LOAD_S):
                        self.engine = self._told()
                with watch.awaiting(silence_s(cfg.engine)):
                    pickle.dump(candidates, self.process.stdin)
                    self.process.stdin.flush()
                    while (answer := self._told()) is None:
                        watch.got_on()
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise TryAgain(self.how_it_ended(self._ended())) from error
        except UserError as error:
            self.error = str(error)
            self._ended()
            raise
        self.in_vain = 0
        return answer  # type: ignore[no-any-return]

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

    def gives_up(self, error: TryAgain) -> bool:
        """Whether no other process is started after this error."""
        if self.in_vain >= MOST_IN_VAIN:
            self.failed = f"{error}\n  given up after {MOST_IN_VAIN} times without an answer"
        elif self.error and not self.engine:  # it could not load, and says why
            self.failed = str(error)
        else:
            warn(f"{error}\n  starting it again")
        return bool(self.failed)


class Asker:
    """The verifier, loaded when it is first asked.

    Args:
        run: the run folder.
        cfg: what `verifier_as_model` makes of its configuration.
        longest: bytes of the longest text.
        stored: the weights that the stored log-probs are by; empty: there are none.

    Raises UserError: they are by other weights, or there are too few GPUs.
    """

    def __init__(self, run: Run, cfg: RunConfig, longest: int, stored: str) -> None:
        self.cfg = sizes.settled(cfg, ())
        v, self.weights, n = cfg.verifier, models.fingerprint(cfg.model), self.cfg.engine.replicas
        if v.trust_remote_code:
            warn(f"verifier.trust_remote_code=true: Python code that {v.id} brings will run")
        if stored not in ("", self.weights):
            raise UserError(
                f"verifier.id={v.id}: is {self.weights} now, but what it said in {run.path} is by"
                f" {stored}; set verifier.revision to one of them"
            )
        template = read_template(v)
        turns = (fill(template, asked(row))[0] for row in run.questions)
        self.most = longest + max(len(turn.encode()) for turn in turns)
        if not kind(cfg.engine.name).served:
            prefetch.weights(cfg.model)
        self.judge: Judge | None = None  # in this process
        log = f"{workernames.worker_id()}-verify-{{}}.stderr"
        self.replicas = [
            Replica(number, share, run.path / "logs" / log.format(number))
            for number, share in enumerate(devices.shares(self.cfg) if n > 1 else ())
        ]
        self.threads = ThreadPoolExecutor(n, "verify")
        self.asked: dict[Future[Answer], tuple[Replica, Any]] = {}  # who is at which batch
        how_many = f", {n} replicas" if n > 1 else ""
        mention_now(f"loading verifier {v.name} with {cfg.engine.name}{how_many} ...")

    def answers(self, batches: Iterable[Batch[Key]]) -> Iterator[tuple[Key, Answer]]:
        """The answer to every batch of candidates, with replicas in any order.

        Raises UserError: as `Judge`. TryAgain: as `Judge`, or when all replicas are given up.
        """
        return self._of_replicas(batches) if self.replicas else self._here(batches)

    def _here(self, batches: Iterable[Batch[Key]]) -> Iterator[tuple[Key, Answer]]:
        with Watch(self._hung) as watch:
            for key, candidates in batches:
                if self.judge is None:
                    with watch.awaiting(LOAD_S):
                        self.judge = Judge(self.cfg, self.most)
                with watch.awaiting(silence_s(self.cfg.engine)):
                    answer = self.judge.ask(candidates, watch.got_on)
                yield key, answer

    def _of_replicas(self, batches: Iterable[Batch[Key]]) -> Iterator[tuple[Key, Answer]]:
        waiting, asked = iter(batches), self.asked
        idle = [replica for replica in self.replicas if not replica.failed]
        answered: list[tuple[Key, Answer]] = []
        while True:
            while idle and (batch := next(waiting, None)):
                replica = idle.pop(0)
                future = self.threads.submit(replica.ask, self.cfg, self.most, batch[1])
                asked[future] = replica, batch
            yield from answered  # while the replicas are at work
            if not asked:
                break
            answered = []
            for future in wait(asked, return_when=FIRST_COMPLETED).done:
                replica, batch = asked.pop(future)
                try:
                    answered.append((batch[0], future.result()))
                except TryAgain as error:
                    waiting = itertools.chain([batch], waiting)
                    if replica.gives_up(error):
                        continue
                idle.append(replica)
        if next(waiting, None):
            n = len(self.replicas)
            raise TryAgain(
                f"{self._reasons()} ({n} of {n} replicas were given up). Verdicts that were"
                " written are kept; the same command continues"
            )

    def _reasons(self) -> str:
        """Why replicas were given up, each reason once."""
        return "; ".join(dict.fromkeys(r.failed for r in self.replicas if r.failed))

    def loaded(self) -> dict[str, Any]:
        """What has answered: the weights, and the engine as it describes itself."""
        if self.judge is not None:
            return {"loaded": self.weights, "engine": self.judge.described}
        engine = next(replica.engine for replica in self.replicas if replica.engine)
        return {"loaded": self.weights, "engine": {**engine, "replicas": len(self.replicas)}}

    def _hung(self, seconds: float) -> None:
        """End this process: nothing else frees the GPU of its engine."""
        try:
            engine = self.cfg.engine
            fail(
                f"{engine.key}={engine.name} hangs: it did not answer for {seconds:g} s. Verdicts"
                " that were written are kept; the same command continues"
            )
        finally:
            os._exit(HUNG)

    def close(self) -> None:
        """Free the memory of the verifier, and end replicas; warn of those that were given up."""
        if self.judge is not None:
            with contextlib.suppress(Exception):  # after Ctrl-C its processes may be gone already
                self.judge.engine.close()
        at_work = set(self.asked)
        while at_work:
            for future in at_work:
                self.asked[future][0].kill("the command ends")
            at_work = wait(at_work, timeout=0.5).not_done  # one that was only about to start?
        for replica in self.replicas:
            replica.end()
        self.threads.shutdown()  # last: Linux kills a process when the thread that began it ends
        given_up, n = sum(bool(replica.failed) for replica in self.replicas), len(self.replicas)
        if 0 < given_up < n:
            warn(f"{given_up} of {n} replicas were given up: {self._reasons()}")


def main() -> int:
    """Judge, in a replica, until its parent ends it; returns the exit status after an error."""
    with process.answering() as answers:

        def tell(what: Any) -> None:
            pickle.dump(what, answers)
            answers.flush()

        cfg, most = process.take_order()
        try:
            judge = Judge(cfg, most)
            tell(judge.described)
            while True:
                tell(judge.ask(pickle.load(sys.stdin.buffer), lambda: tell(None)))
        except UserError as error:
            tell(error)
            return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
