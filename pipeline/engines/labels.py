"""A verifier's model, loaded to score its labels: many long prompts, one prefill each.

In bfloat16 the log-probs of the two engines differ by rounding: see `tests/test_verify_stage.py`.
"""

import dataclasses
from typing import Any

from pipeline import engines
from pipeline.config.settings import RunConfig
from pipeline.engines import Engine


def load(cfg: RunConfig, longest: int) -> Engine:
    """Load the model of `cfg` for `next_logprobs`, with the engine that `cfg` names.

    Args:
        cfg: a configuration whose `model` is the verifier.
        longest: the most tokens of any prompt, and one.

    Raises:
        UserError: as `pipeline.engines.load`.
    """
    # Prompts of one question share the prefix cache, if they come one after the other.
    args = {"enable_prefix_caching": True} if cfg.engine.name == "vllm" else _flash(cfg)
    engine = dataclasses.replace(cfg.engine, args=args | dict(cfg.engine.args))
    return engines.load(dataclasses.replace(cfg, engine=engine), longest)


def _flash(cfg: RunConfig) -> dict[str, Any]:
    """FlashAttention where the package and a GPU for it are there; else torch's own attention."""
    import torch
    from transformers.utils import is_flash_attn_2_available

    gpu = torch.cuda.is_available() and (cfg.engine.device or "cuda").startswith("cuda")
    half = cfg.model.dtype in ("bfloat16", "float16")
    flash = gpu and half and is_flash_attn_2_available()
    return {"attn_implementation": "flash_attention_2"} if flash else {}
