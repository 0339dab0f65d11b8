"""The loaded verifier: candidates in, log-probs of its labels out."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.base.errors import TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import labels
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.verify.prompts import Candidate, Prompts
from bayes_at_n.verifiers.judge.labels import LABELS

_SLACK = 1024  # tokens that the longest prompt is rounded up by


class Answer(NamedTuple):
    """What the verifier says of n candidates, in their order."""

    logprobs: npt.NDArray[np.float32]  # (n, 3) of the labels
    tokens: list[int]  # of each prompt
    cut: list[bool]  # whether the middle of the response was left out


class Judge:
    """The verifier in this process.

    `cfg`: a configuration whose model and engine are the verifier's. `most`: bytes of the longest
    user's turn. Raises UserError: it cannot be used. TryAgain: it cannot be loaded.
    """

    def __init__(self, cfg: RunConfig, most: int) -> None:
        self.cfg = cfg
        context = models.context(cfg.model)
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
