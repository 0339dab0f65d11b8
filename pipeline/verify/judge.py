"""Judge texts with a verifier, in this process or as one of several workers.

Each worker writes the batches that it has judged; a batch of a worker that died is judged by
another one.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.console import fail, set_modes, warn
from bayes_at_n.pipeline.base.errors import Interrupted, TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models, sizing
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import LABEL_LOGPROBS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.calibrate import label_columns
from bayes_at_n.pipeline.verify.prompts import Plan, Prompts, Text, read_batch
from bayes_at_n.pipeline.workers import stopping
from bayes_at_n.pipeline.workers.claims import Claims, Heartbeat
from bayes_at_n.pipeline.workers.session import Session, Slot
from bayes_at_n.verifiers.judge.calibration import LABELS

KEPT = "Finished verdicts are kept; the same command continues"
_MADE_BY = b"made_by"
_SLACK = 1024  # tokens to a multiple of which the longest prompt is rounded up
_IDLE_S = 0.2


class Labels:
    """The log-probs of a verifier in a folder, as read so far.

    `table` has rows of LABEL_LOGPROBS, `loaded` is the fingerprint of the weights that made them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.loaded = folder, ""
        self.table = LABEL_LOGPROBS.empty_table()
        self._read, damage = set[Path](), shards.Damage()
        self.update(damage)
        if damage.lines:
            warn(f"{folder}: {damage}; set aside; these texts are judged again")
            shards.set_aside(damage, LABEL_LOGPROBS)
            self._read = {*shards.files(folder)}

    def update(self, damage: shards.Damage | None = None) -> int:
        """Read new parts; return how many texts they have."""
        new = [path for path in shards.files(self.folder) if path not in self._read]
        batches, damage = list[pa.RecordBatch](), damage or shards.Damage()
        for path in new:
            batches += shards.read(path, LABEL_LOGPROBS, LABEL_LOGPROBS.names, damage)
            made_by = json.loads(shards.metadata(path).get(_MADE_BY, b"{}"))
            self.loaded = self.loaded or str(made_by.get("loaded", ""))
        self._read.update(new)
        fresh = pa.Table.from_batches(batches, LABEL_LOGPROBS)
        self.table = pa.concat_tables([self.table, fresh])
        return len(fresh)


def missing(plan: Plan) -> set[str]:
    """Return the texts of a plan that are not judged yet."""
    return {*plan.names}.difference(Labels(plan.folder).table["judged"].to_pylist())


class Judge:
    """A loaded verifier, for user turns of at most `longest` bytes; see `engines.load`."""

    def __init__(self, cfg: RunConfig, longest: int) -> None:
        self.cfg, context = cfg, models.context(cfg.model)
        self.prompts = Prompts(cfg.verifier, models.tokenizer(cfg.model), context)
        # A text has at most as many tokens as bytes.
        tokens = longest + len(self.prompts.before) + len(self.prompts.after)
        self.engine = engines.load_verifier(cfg, min(context, -(-tokens // _SLACK) * _SLACK))
        tokenizer = models.describe_tokenizer(cfg.model, self.prompts.tokenizer)
        self.description = self.engine.describe() | {"tokenizer": tokenizer}

    def ask(self, texts: Sequence[Text], step: Callable[[], None]) -> pa.Table:
        """Return rows of LABEL_LOGPROBS; `step` is called after every step of the engine.

        Raises UserError: a question is too long, or has no log-probs. TryAgain: the engine failed.
        """
        prompts = self.prompts.build([candidate for _, candidate in texts])
        ids = [prompt.token_ids for prompt in prompts]
        try:
            logprobs = self.engine.next_logprobs(ids, self.prompts.label_ids, step)
        except (UserError, Interrupted):
            raise
        except Exception as error:  # engines raise whatever their parts raise
            e = self.cfg.engine
            text = f"{e.key}={e.name} failed while verifying: {one_line(error)}"
            raise TryAgain(f"{text}. {KEPT} (out of memory: lower {e.lighter})") from error
        if not np.isfinite(logprobs).all():
            key = f"verifier.id={self.cfg.verifier.id}"
            raise UserError(f"{key}: log-probs are not finite; try verifier.dtype=float32")
        missing = len(LABELS) - logprobs.shape[1]  # a missing label has probability 0
        logprobs = np.pad(logprobs, ((0, 0), (0, missing)), constant_values=-np.inf)
        columns = {"judged": [name for name, _ in texts], "tokens": [*map(len, ids)]}
        columns |= {"cut": [p.cut for p in prompts]} | label_columns(logprobs, "logprob_")
        return pa.table(columns, schema=LABEL_LOGPROBS)


def judge(
    plan: Plan,
    configs: Sequence[RunConfig],
    stop: stopping.StopFlag,
    slot: Slot | None = None,
    written: Callable[[], None] = lambda: None,
) -> None:
    """Judge batches of a plan and write them, until all are judged.

    `configs`: of the run, with the verifier as the model. `slot`: under a supervisor. `written` is
    called after each part. Raises: see `Judge`. Interrupted: `stop` was set within a batch.
    """
    cfg, worker = sizing.resolved(configs[0], ()), shards.worker_id()
    if slot:
        set_modes("quiet")  # the supervisor prints the progress
    with contextlib.ExitStack() as stack:
        run = Run(cfg)
        intact = stack.enter_context(stopping.unmoved(run.path, "attempts were verified"))
        watch = stack.enter_context(stopping.Watch(partial(_hung, cfg)))
        session = Session(plan.work, cfg, worker, slot)
        claims = stack.enter_context(_claims(plan, session, watch))

        def step() -> None:
            with watch.awaiting(np.inf):  # restarts the time limit of the engine
                if stop.signal_number:
                    raise Interrupted(f"stopped. {KEPT}", stop.signal_number)

        def left() -> int:
            return sum(len(plan.span(number)) for number in claims.pending)

        with watch.awaiting(stopping.LOAD_S):
            verifier = Judge(cfg, plan.longest)
        stack.callback(_leave, verifier, watch)
        about = verifier.description | ({"replicas": cfg.engine.replicas} if slot else {})
        loaded = models.fingerprint(cfg.model)
        made_by = {"verifier": plan.made_by, "loaded": loaded, "engine": about}
        columns = LABEL_LOGPROBS.with_metadata({_MADE_BY: json.dumps(made_by)})
        session.loaded(left(), verifier.description)
        while claims.pending:
            if (number := claims.take(0, 1, 1)) is None:  # another worker's are left
                step()
                session.tick("waiting", left())
                time.sleep(_IDLE_S)
                continue
            if texts := read_batch(run, plan, number):
                with watch.awaiting(stopping.silence_s(cfg.engine)):
                    rows = verifier.ask(texts, step)
                if claims.lost(number):
                    continue
                intact()
                path = plan.folder / f"{worker}-{number:05d}.parquet"
                shards.write_part(path, rows.cast(columns))
            claims.durable(number)
            session.add(0.0, attempts=len(texts))
            session.tick("sampling", left())
            written()


def _pending(plan: Plan) -> list[int]:
    names, pending = plan.names, missing(plan)
    spans = enumerate(map(plan.span, range(len(plan.starts))))
    return [n for n, span in spans if not pending.isdisjoint(names[span.start : span.stop])]


@contextlib.contextmanager
def _claims(plan: Plan, session: Session, watch: stopping.Watch) -> Iterator[Claims]:
    """Yield this worker's claims on batches; write its session and heartbeat, and how it ended."""
    with Heartbeat(plan.work, session.worker) as beat:
        watch.beats.append(beat)
        try:
            claims = Claims(beat, partial(_pending, plan), most=1)
            claims.read()
            yield claims
        except BaseException as error:
            session.end("failed", str(error))
            raise
        finally:
            watch.beats.remove(beat)
        session.end("done")


def _hung(cfg: RunConfig, seconds: float) -> None:
    try:  # then end the process: nothing else frees the GPU of its engine
        fail(f"{cfg.engine.key}={cfg.engine.name} hangs: no response in {seconds:g} s. {KEPT}")
    finally:
        os._exit(stopping.HUNG)


def _leave(verifier: Judge, watch: stopping.Watch) -> None:
    with watch.awaiting(), contextlib.suppress(Exception):  # its processes may have ended
        engines.leave(verifier.engine)
