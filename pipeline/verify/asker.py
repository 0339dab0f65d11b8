"""Load the verifier and ask it: in this process, or in several that have a device each.

A process of verifier.engine.replicas only judges: batches of candidates in, answers out. If it dies
or hangs, another one gets its batch; an error that it can name ends the command.
"""

import contextlib
import itertools
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.base.console import fail, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import labels
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts
from bayes_at_n.pipeline.workers import devices, heartbeat, process
from bayes_at_n.verifiers.judge.labels import LABELS

PROGRAM = [sys.executable, "-c", f"from {__name__} import main; main()"]
_STOP_S = 30.0  # for a process that has closed its pipe
_SLACK = 1024  # tokens that the longest prompt is rounded up by


class Answer(NamedTuple):
    """What the verifier says of n candidates, in their order."""

    logprobs: npt.NDArray[np.float32]  # (n, 3) of the labels
    tokens: list[int]  # of each prompt
    cut: list[bool]  # whether the middle of the response was left out


Batch = tuple[list[str], Sequence[Candidate]]  # hashes, and what is to be judged
Answered = tuple[list[str], Answer, dict[str, Any]]  # hashes, their answer, and the engine's
Answers = Generator[Answered, None, None]


class Judge:
    """The verifier in this process.

    `cfg`: a configuration whose model and engine are the verifier's. `most`: bytes of the longest
    user's turn. Raises UserError: it cannot be used. TryAgain: it cannot be loaded.
    """

    def __init__(self, cfg: RunConfig, most: int) -> None:
        self.cfg, context = cfg, models.context(cfg.model)
        self.prompts = Prompts(cfg.verifier, models.tokenizer(cfg.model), context)
        # No tokenizer makes more tokens than bytes.
        tokens = most + len(self.prompts.before) + len(self.prompts.after)
        self.engine = labels.load(cfg, min(context, -(-tokens // _SLACK) * _SLACK))
        about = models.describe_tokenizer(cfg.model, self.prompts.tokenizer)
        self.described = self.engine.describe() | {"tokenizer": about}

    def ask(self, candidates: Sequence[Candidate], got_on: Callable[[], None]) -> Answer:
        """Judge candidates; `got_on` is called after every step of the engine.

        Raises UserError: a question is too long; the engine gives no log-probs, or no numbers.
        TryAgain: it breaks.
        """
        prompts = self.prompts.build(candidates)
        try:
            ids = [prompt.token_ids for prompt in prompts]
            logprobs = self.engine.next_logprobs(ids, self.prompts.label_ids, got_on)
        except UserError:
            raise
        except Exception as error:  # engines raise whatever their parts raise
            engine = self.cfg.engine
            raise TryAgain(
                f"{engine.key}={engine.name} failed while verifying: {one_line(error)}. The same"
                f" command continues (out of memory: lower {engine.lighter})"
            ) from error
        if not np.isfinite(logprobs).all():
            raise UserError(
                f"verifier.id={self.cfg.verifier.id}: gave log-probs that are no numbers; try"
                " verifier.dtype=float32"
            )
        missing = len(LABELS) - logprobs.shape[1]  # a label that it does not have, it cannot say
        logprobs = np.pad(logprobs, ((0, 0), (0, missing)), constant_values=-np.inf)
        return Answer(logprobs, [len(p.token_ids) for p in prompts], [p.cut for p in prompts])


def answers(cfg: RunConfig, most: int, batches: Iterable[Batch], log: str) -> Answers:
    """Have batches judged, with replicas in any order; `log`: path of their logs, with a {}.

    Raises UserError, TryAgain: as `Judge`; TryAgain also when all replicas have died.
    """
    if cfg.engine.replicas > 1:
        yield from _of_replicas(cfg, most, batches, log)
        return

    def hung(seconds: float) -> None:
        """End this process: nothing else frees the GPU of its engine."""
        try:
            fail(
                f"{cfg.engine.key}={cfg.engine.name} hangs: it did not answer for {seconds:g} s."
                " Verdicts that were written are kept; the same command continues"
            )
        finally:
            os._exit(heartbeat.HUNG)

    with heartbeat.Watch(hung) as watch:
        with watch.awaiting(heartbeat.LOAD_S):
            judge = Judge(cfg, most)
        try:
            for hashes, candidates in batches:
                with watch.awaiting(heartbeat.silence_s(cfg.engine)):
                    answer = judge.ask(candidates, watch.got_on)
                yield hashes, answer, judge.described
        finally:
            with contextlib.suppress(Exception):  # after Ctrl-C its processes may be gone already
                judge.engine.close()


@dataclass
class Replica(process.Process):
    """A process that judges, and the batch that it is at."""

    batch: Batch | None = None
    engine: dict[str, Any] | None = None  # what it has loaded, once it has
    answers: Connection | None = None  # None: it has ended
    heard: float = 0.0  # when it last told something

    def start(self, cfg: RunConfig, most: int) -> None:
        """Start the process, which loads the verifier; for `most` see `Judge`."""
        self.begin(PROGRAM, (cfg, most))
        assert self.process is not None and self.process.stdout is not None
        self.answers = Connection(os.dup(self.process.stdout.fileno()), writable=False)
        self.heard = time.monotonic()

    def ask(self, batch: Batch) -> None:
        """Have a batch judged."""
        assert self.process is not None and self.process.stdin is not None
        self.batch, self.heard = batch, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # the end of its answers will say more
            pickle.dump(batch[1], self.process.stdin)
            self.process.stdin.flush()

    def hear(self) -> Answer | None:
        """Take in what the process tells next: its engine, a step of it, an error, or an answer.

        Raises UserError: as `Judge`. EOFError, OSError: it has ended.
        """
        assert self.answers is not None
        told, self.heard = self.answers.recv(), time.monotonic()
        if isinstance(told, UserError):
            raise told
        self.engine = told if isinstance(told, dict) else self.engine
        return told if isinstance(told, Answer) else None

    def kill_if_silent(self, cfg: RunConfig) -> None:
        """Kill a process that loads, or is at a step, for longer than any does."""
        limit = heartbeat.silence_s(cfg.engine) if self.engine else heartbeat.LOAD_S
        if (self.batch or not self.engine) and time.monotonic() - self.heard > limit:
            self.kill(f"its engine did not answer for {limit:g} s")

    def ended(self) -> str:
        """Say how the process ended, which should have gone on."""
        assert self.process is not None
        self.answers = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_STOP_S)
        self.process.kill()
        return self.how_it_ended(self.process.wait())


def _of_replicas(cfg: RunConfig, most: int, batches: Iterable[Batch], log: str) -> Answers:
    replicas = [Replica(i, s, Path(log.format(i))) for i, s in enumerate(devices.shares(cfg))]
    waiting, n = iter(batches), len(replicas)
    try:
        for replica in replicas:
            replica.start(cfg, most)
        answered = list[Answered]()
        while at_work := [replica for replica in replicas if replica.answers]:
            for idle in (one for one in at_work if one.engine and not one.batch):
                if batch := next(waiting, None):
                    idle.ask(batch)
                elif not any(one.batch for one in at_work):
                    yield from answered
                    return
            yield from answered  # while the replicas are at work
            answered = []
            ready = wait([one.answers for one in at_work if one.answers], heartbeat.HEARTBEAT_S)
            for replica in at_work:
                if replica.answers not in ready:
                    replica.kill_if_silent(cfg)
                    continue
                try:
                    answer = replica.hear()
                except (EOFError, OSError, pickle.UnpicklingError):
                    warn(f"{replica.ended()}\n  the others go on")
                    waiting = itertools.chain(filter(None, [replica.batch]), waiting)
                    continue
                if answer and replica.batch and replica.engine:
                    engine = replica.engine | {"replicas": n}
                    answered.append((replica.batch[0], answer, engine))
                    replica.batch = None
    finally:
        for replica in replicas:
            replica.end()
    raise TryAgain(
        f"{n} of {n} replicas ended. Verdicts that were written are kept; the same command"
        " continues"
    )


def main() -> None:
    """Judge, in a replica, until its parent ends it; exits with the status of an error."""
    with process.answering() as answers:
        tell = Connection(os.dup(answers.fileno()), readable=False).send
        cfg, most = process.take_order()
        try:
            judge = Judge(cfg, most)
            tell(judge.described)
            while True:
                tell(judge.ask(pickle.load(sys.stdin.buffer), lambda: tell(None)))
        except UserError as error:
            tell(error)
            sys.exit(error.exit_code)
