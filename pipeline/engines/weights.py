"""Weights of another checkpoint in a loaded engine: when that is allowed, and proof that it works.

An engine may report success and keep a part of the old weights: vLLM 0.32 on a CPU does not update
a tied output layer. So an engine first loads the weights of a checkpoint that another engine was
loaded with, and must reproduce that one's log-probs of a fixed text to the last bit; a part of its
own weights would show. In a series of checkpoints two are loaded, and the others swapped.
"""

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.program import find_local, kind
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import Engine, Logprobs, NotSupported
from bayes_at_n.pipeline.prepare import models

# Prefixes of the names of files that determine how an engine uses weights and tokens.
_DECISIVE = (
    *("config", "generation_config", "tokenizer", "special_tokens", "added_tokens"),
    *("vocab", "merges", "chat_template", "preprocessor"),
)
_TEXT = "What is 12 + 34? 12 + 34 = 46, so the answer is 46."
_MOST = 64  # tokens of it
_loads: dict[str, tuple[RunConfig, Logprobs]] = {}  # by family: a loaded model, its log-probs
_proven: dict[str, bool] = {}  # by family: whether weights can be swapped
_families: dict[int, str] = {}  # by id of a loaded engine; its folder may be gone since


def loaded(engine: Engine) -> None:
    """Keep the log-probs of an engine that was just loaded, for the proof."""
    family = _families[id(engine)] = _family(engine.cfg)
    if family and family not in _loads:
        with contextlib.suppress(NotSupported):
            _loads[family] = engine.cfg, _read(engine)


def swap(engine: Engine, cfg: RunConfig) -> bool:
    """Load the weights of another model into an idle engine, if that is proven to work.

    Returns whether it did; if not, the engine must be closed and the model loaded.
    """
    family = _family(cfg)
    if family != _families.get(id(engine)) or not _proven.get(family, family in _loads):
        return False
    try:
        if family not in _proven:
            other, values = _loads[family]
            if find_local(other.model.id) is None:  # deleted: another load must prove it
                del _loads[family]
                return False
            if _equal(_read(engine), values):  # equal weights prove nothing
                return False
            engine.load_weights(other)
            if not _equal(_read(engine), values):
                raise NotSupported("log-probs after a swap are not those of a load")
            _proven[family] = True
        engine.load_weights(cfg)
    except NotSupported as error:
        note(f"each model is loaded separately: {error}")
        _proven[family] = False
        return False
    return True


def _family(cfg: RunConfig) -> str:
    """Return a key that models share if one engine can swap their weights; empty: it cannot.

    It holds the settings of the model but for name and location, those of the engine, and a hash of
    the configuration and tokenizer files of its folder.
    """
    if kind(cfg.engine.name).served or cfg.model.trust_remote_code or cfg.model.adapter:
        return ""
    folder = Path(models.locate(cfg.model))
    if not folder.is_absolute():
        return ""
    names = sorted(path.name for path in folder.iterdir() if path.name.startswith(_DECISIVE))
    unnamed: dict[str, Any] = {"name": "", "id": "", "checkpoint": None}
    unnamed |= {"table_id": None, "short_name": None}
    engine = replace(cfg.engine, batch_size=1, in_flight=None)
    return repr((models.fingerprint(cfg.model, names), replace(cfg.model, **unnamed), engine))


def _read(engine: Engine) -> Logprobs:
    """Return log-probs of the fixed text, float32 [tokens]. Raises NotSupported: there are none."""
    try:
        ids = engine.tokenizer(_TEXT, add_special_tokens=False)["input_ids"]
        return engine.prompt_logprobs([ids[:_MOST]])[0]
    except Exception as error:  # engines raise whatever their parts raise
        raise NotSupported(f"no log-probs of a text: {error}") from error


def _equal(a: Logprobs, b: Logprobs) -> bool:
    return a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=True))
