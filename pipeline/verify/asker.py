"""The verifier behind the verify stage: candidates in, log-probs of its labels out."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pipeline.base.console import note, warn
from pipeline.base.errors import TryAgain, UserError, one_line
from pipeline.config.settings import RunConfig, VerifierModel, verifier_engine
from pipeline.engines import labels
from pipeline.prepare import models
from pipeline.store.runfolder import Run
from pipeline.verify import store
from pipeline.verify.prompts import Candidate, Prompts, fill

_SLACK = 1024  # tokens that the longest prompt is rounded up by


def as_model(cfg: RunConfig) -> RunConfig:
    """The configuration with the verifier in the place of the model, for the engines."""
    v = cfg.verifier
    assert v.id is not None
    keys = ("name", "id", "revision", "dtype", "context", "trust_remote_code")
    model = VerifierModel(**{key: getattr(v, key) for key in keys})
    return dataclasses.replace(cfg, model=model, engine=verifier_engine(cfg))


class Asker:
    """The loaded verifier; `longest` is the bytes of the longest response with its answer."""

    def __init__(self, run: Run, judge: RunConfig, longest: int) -> None:
        self.run, self.kind, self.asked = run, judge.engine.name, 0
        v = run.cfg.verifier
        if v.trust_remote_code:
            warn(f"verifier.trust_remote_code=true: Python code that {v.id} brings will run")
        context = models.context(judge.model)
        self.prompts = Prompts(v, models.tokenizer(judge.model), context)
        weights = models.fingerprint(judge.model)
        stored = store.remembered(run, "loaded")
        if stored not in (None, weights):
            raise UserError(
                f"verifier.id={v.id}: is {weights} now, but the verdicts in"
                f" {store.folder(run)} are by {stored}; set verifier.revision to one of them"
            )
        note(f"loading verifier {v.name} with {self.kind} ...")
        # No tokenizer makes more tokens than bytes. A smaller engine takes less memory.
        empty = (Candidate("", row["problem"], row["gold"], "", "") for row in run.questions)
        around = max(len(fill(self.prompts.template, turn)[0].encode()) for turn in empty)
        tokens = longest + around + len(self.prompts.before) + len(self.prompts.after)
        self.engine = labels.load(judge, min(context, -(-tokens // _SLACK) * _SLACK))
        store.remember(run, loaded=weights, engine=self.engine.describe())

    def ask(
        self, candidates: Sequence[Candidate]
    ) -> tuple[npt.NDArray[np.float32], list[int], list[bool]]:
        """Log-probs of the labels (n, 3), and of each prompt its tokens and whether it was cut."""
        prompts = self.prompts.build(candidates)
        try:
            ids = [prompt.token_ids for prompt in prompts]
            logprobs = self.engine.next_logprobs(ids, self.prompts.label_ids)
        except Exception as error:  # engines raise whatever their parts raise
            raise TryAgain(
                f"verifier.engine={self.kind} failed while verifying: {one_line(error)}."
                " Verdicts that were written are kept; the same command continues (out of memory:"
                " lower verifier.batch_size, or verifier.context)"
            ) from error
        self.asked += len(prompts)
        if not np.isfinite(logprobs).all():
            raise UserError(
                f"verifier.id={self.run.cfg.verifier.id}: gave log-probs that are no numbers; try"
                " verifier.dtype=float32"
            )
        return logprobs, [len(p.token_ids) for p in prompts], [p.cut for p in prompts]
