"""Asking the verifier: in this process, or in replicas; watched for a hang either way."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from bayes_at_n.pipeline.base.console import fail, mention_now, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models, prefetch, sizes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.judge import Answer, Judge
from bayes_at_n.pipeline.verify.prompts import asked, fill, read_template
from bayes_at_n.pipeline.verify.replicas import Batch, Key, Replicas
from bayes_at_n.pipeline.workers import heartbeat


class Asker:
    """The verifier, loaded when it is first asked.

    Args:
        run: the run folder.
        cfg: what `verifier_as_model` makes of its configuration.
        longest: bytes of the longest text.
        stored: the weights that the stored log-probs are by; empty: there are none.

    Raises UserError: they are by other weights.
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
        self.judge: Judge | None = None
        self.replicas = Replicas(run, self.cfg, self.most) if n > 1 else None
        how_many = f", {n} replicas" if n > 1 else ""
        mention_now(f"loading verifier {v.name} with {cfg.engine.name}{how_many} ...")

    def answers(self, batches: Iterable[Batch[Key]]) -> Iterator[tuple[Key, Answer]]:
        """The answer to every batch of candidates, with replicas in any order.

        Raises UserError: as `Judge`. TryAgain: as `Judge` or `Replicas`.
        """
        if self.replicas is not None:
            yield from self.replicas.answers(batches)
            return
        with heartbeat.Watch(self._hung) as watch:
            for key, candidates in batches:
                if self.judge is None:
                    with watch.awaiting(heartbeat.LOAD_S):
                        self.judge = Judge(self.cfg, self.most)
                with watch.awaiting(heartbeat.silence_s(self.cfg.engine)):
                    answer = self.judge.ask(candidates, watch.got_on)
                yield key, answer

    def loaded(self) -> dict[str, Any]:
        """What has answered: the weights, and the engine as it describes itself."""
        by = self.replicas
        engine = by.describe() if by is not None else getattr(self.judge, "described", {})
        return {"loaded": self.weights, "engine": engine}

    def _hung(self, seconds: float) -> None:
        """End this process: nothing else frees the GPU of its engine."""
        try:
            engine = self.cfg.engine
            fail(
                f"{engine.key}={engine.name} hangs: it did not answer for {seconds:g} s. Verdicts"
                " that were written are kept; the same command continues"
            )
        finally:
            os._exit(heartbeat.HUNG)

    def close(self) -> None:
        """Free the memory of the verifier, and end replicas."""
        if self.replicas is not None:
            self.replicas.close()
        if self.judge is not None:
            with contextlib.suppress(Exception):  # after Ctrl-C its processes may be gone already
                self.judge.engine.close()
