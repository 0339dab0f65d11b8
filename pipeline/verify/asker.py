"""Asking the verifier: in this process, or in replicas; watched for a hang either way."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from bayes_at_n.pipeline.base.console import fail, mention_now, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models, prefetch, sizes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.judge import Answer, Judge
from bayes_at_n.pipeline.verify.prompts import asked, fill, read_template
from bayes_at_n.pipeline.verify.replicas import Batch, Replicas
from bayes_at_n.pipeline.workers import heartbeat
from bayes_at_n.pipeline.workers.heartbeat import Watch

Key = TypeVar("Key")


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
        v, self.weights = cfg.verifier, models.fingerprint(cfg.model)
        if v.trust_remote_code:
            warn(f"verifier.trust_remote_code=true: Python code that {v.id} brings will run")
        if stored not in ("", self.weights):
            raise UserError(
                f"verifier.id={v.id}: is {self.weights} now, but what it said in {run.path} is by"
                f" {stored}; set verifier.revision to one of them"
            )
        template = read_template(v)
        empty = (asked(row) for row in run.questions)
        self.most = longest + max(len(fill(template, turn)[0].encode()) for turn in empty)
        self.judge: Judge | None = None
        n = self.cfg.engine.replicas
        if not kind(cfg.engine.name).served:
            prefetch.weights(cfg.model)
        self.replicas = Replicas(run, self.cfg, self.most) if n > 1 else None
        how_many = f", {n} replicas" if n > 1 else ""
        mention_now(f"loading verifier {v.name} with {cfg.engine.name}{how_many} ...")

    def answers(self, batches: Iterable[Batch[Key]]) -> Iterator[tuple[Key, Answer]]:
        """The answer to every batch of candidates, with replicas in any order.

        Raises UserError: as `Judge`. TryAgain: as `Judge` or `Replicas`.
        """
        return self._here(batches) if self.replicas is None else self.replicas.answers(batches)

    def loaded(self) -> dict[str, Any]:
        """What has answered: the weights, and the engine as it describes itself."""
        by = self.replicas
        engine = by.describe() if by is not None else getattr(self.judge, "described", {})
        return {"loaded": self.weights, "engine": engine}

    def _here(self, batches: Iterable[Batch[Key]]) -> Iterator[tuple[Key, Answer]]:
        """The answers of a verifier in this process, which ends if its engine hangs."""
        with Watch(self._hung) as watch:
            for key, candidates in batches:
                if self.judge is None:
                    with watch.awaiting(heartbeat.LOAD_S):
                        self.judge = Judge(self.cfg, self.most)
                with watch.awaiting(heartbeat.silence_s(self.cfg.engine)):
                    answer = self.judge.ask(candidates, watch.got_on)
                yield key, answer

    def _hung(self, seconds: float) -> None:
        """Nothing but the end of the process frees its GPU."""
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
