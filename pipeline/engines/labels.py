"""A verifier's model, loaded to score its labels: many long prompts, one prefill each.

In bfloat16 the log-probs of the two engines differ by rounding: see `test_verify_stage.py`.
"""

import dataclasses

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import Engine


def load(cfg: RunConfig, longest: int) -> Engine:
    """Load the model of `cfg` for `next_logprobs`, with the engine that `cfg` names.

    `cfg`: a configuration whose `model` is the verifier. `longest`: the most tokens of any prompt,
    and one. Raises UserError: as `pipeline.engines.load`.
    """
    make: type[Engine] = kind(cfg.engine.name).made_by
    engine = dataclasses.replace(cfg.engine, args=make.label_args(cfg) | dict(cfg.engine.args))
    cfg = dataclasses.replace(cfg, engine=engine)
    if not engines.kept(cfg, longest):
        note(f"loading verifier {cfg.model.name} with {engine.name} ...")
    return engines.load(cfg, longest)
