"""Ask the verifier: in this process, or in replicas that have a device each.

If a replica dies or hangs, another one gets its batch; an error that it can name ends the command.
"""

import contextlib
import itertools
import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base.console import fail, note, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import labels, leave
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.store.columns import LABEL_LOGPROBS
from bayes_at_n.pipeline.verify.calibrate import label_columns
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts
from bayes_at_n.pipeline.workers import devices, heartbeat
from bayes_at_n.pipeline.workers.process import Process, answering, take_order
from bayes_at_n.verifiers.judge.labels import LABELS

PROGRAM = [sys.executable, "-c", f"from {__name__} import main; main()"]
_KEPT = "Verdicts that were written are kept; the same command continues"
_SLACK = 1024  # tokens that the longest prompt is rounded up by
Batch = tuple[list[str], list[Candidate]]  # hashes of texts, and what is to be judged
Answers = Generator[tuple[pa.Table, dict[str, Any]], None, None]  # LABEL_LOGPROBS, the engine


class Judge:
    """The verifier, loaded, for turns of so many bytes. Raises as `engines.load` and `Prompts`."""

    def __init__(self, cfg: RunConfig, most: int) -> None:
        self.cfg, context = cfg, models.context(cfg.model)
        self.prompts = Prompts(cfg.verifier, models.tokenizer(cfg.model), context)
        # No tokenizer makes more tokens than bytes.
        tokens = most + len(self.prompts.before) + len(self.prompts.after)
        self.engine = labels.load(cfg, min(context, -(-tokens // _SLACK) * _SLACK))
        about = models.describe_tokenizer(cfg.model, self.prompts.tokenizer)
        self.described = self.engine.describe() | {"tokenizer": about}

    def ask(self, batch: Batch, got_on: Callable[[], None]) -> pa.Table:
        """Make rows of LABEL_LOGPROBS; `got_on` is called after every step of the engine.

        Raises UserError: a question is too long; there are no log-probs. TryAgain: it breaks.
        """
        prompts = self.prompts.build(batch[1])
        try:
            ids = [prompt.token_ids for prompt in prompts]
            logprobs = self.engine.next_logprobs(ids, self.prompts.label_ids, got_on)
        except UserError:
            raise
        except Exception as error:  # engines raise whatever their parts raise
            e = self.cfg.engine
            why = f"{e.key}={e.name} failed while verifying: {one_line(error)}"
            raise TryAgain(f"{why}. {_KEPT} (out of memory: lower {e.lighter})") from error
        if not np.isfinite(logprobs).all():
            which = f"verifier.id={self.cfg.verifier.id}"
            raise UserError(f"{which}: log-probs are no numbers; try verifier.dtype=float32")
        missing = len(LABELS) - logprobs.shape[1]  # a label that it does not have, it cannot say
        logprobs = np.pad(logprobs, ((0, 0), (0, missing)), constant_values=-np.inf)
        columns = {"judged": batch[0], "tokens": [*map(len, ids)], "cut": [p.cut for p in prompts]}
        return pa.table(columns | label_columns(logprobs, "logprob_"), schema=LABEL_LOGPROBS)


def answers(cfg: RunConfig, most: int, batches: Iterable[Batch], log: str) -> Answers:
    """Have batches judged, by replicas in any order; `log`: path of their logs, with a {}.

    Raises UserError, TryAgain: as `Judge`; TryAgain also when all replicas have died.
    """
    if (n := cfg.engine.replicas) == 1:
        yield from _here(cfg, most, batches)
        return
    note(f"loading verifier {cfg.model.name} with {cfg.engine.name}, {n} replicas ...")
    replicas = [Process(i, of, Path(log.format(i))) for i, of in enumerate(devices.shares(cfg))]
    waiting, pipes = iter(batches), dict[Connection, Process]()
    current = dict[Connection, Batch | None]()  # of the replicas that have loaded
    try:
        for replica in replicas:
            replica.begin(PROGRAM, (cfg, most))
            assert replica.process is not None and replica.process.stdout is not None
            pipes[Connection(os.dup(replica.process.stdout.fileno()), writable=False)] = replica
        while pipes:
            answered, ready = [], wait([*pipes])
            for pipe in [pipe for pipe in pipes if pipe in ready]:
                try:
                    answer = pipe.recv()
                except (EOFError, OSError):
                    child = (replica := pipes.pop(pipe)).process
                    assert child is not None
                    warn(f"{replica.how_it_ended(child.wait())}\n  the others go on")
                    waiting = itertools.chain(filter(None, [current.pop(pipe, None)]), waiting)
                    continue
                if isinstance(answer, UserError):
                    raise answer
                answered += [(rows, by | {"replicas": n}) for rows, by in answer]
                current[pipe] = None
            for pipe in [pipe for pipe, batch in current.items() if not batch]:
                if batch := next(waiting, None):
                    current[pipe], child = batch, pipes[pipe].process
                    assert child is not None and child.stdin is not None
                    with contextlib.suppress(BrokenPipeError):  # the end of its answers says more
                        pickle.dump(batch, child.stdin)
                        child.stdin.flush()
            yield from answered  # while the replicas are at work
            if current and not any(current.values()):
                return
    finally:
        for replica in replicas:
            replica.end()
    raise TryAgain(f"{n} of {n} replicas ended. {_KEPT}")


def _here(cfg: RunConfig, most: int, batches: Iterable[Batch]) -> Answers:
    def hung(seconds: float) -> None:
        try:  # to end this process: nothing else frees the GPU of its engine
            fail(f"{cfg.engine.key}={cfg.engine.name} hangs: no answer in {seconds:g} s. {_KEPT}")
        finally:
            os._exit(heartbeat.HUNG)

    with heartbeat.Watch(hung) as watch:
        with watch.awaiting(heartbeat.LOAD_S):
            judge = Judge(cfg, most)
        try:
            for batch in batches:
                with watch.awaiting(heartbeat.silence_s(cfg.engine)):
                    rows = judge.ask(batch, watch.got_on)
                yield rows, judge.described
        finally:  # after Ctrl-C its processes may be gone already
            with watch.awaiting(), contextlib.suppress(Exception):
                leave(judge.engine)


def main() -> None:
    """Judge, in a replica, until its parent ends it; exits with the status of an error."""
    with answering() as out:
        tell = Connection(os.dup(out.fileno()), readable=False).send
        cfg, most = take_order()

        def batches() -> Iterator[Batch]:
            tell([])  # it has loaded
            while True:
                yield pickle.load(sys.stdin.buffer)

        try:
            for answer in _here(cfg, most, batches()):
                tell([answer])
        except UserError as error:
            tell(error)
            sys.exit(error.exit_code)
