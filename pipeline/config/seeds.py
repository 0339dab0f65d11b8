"""Seeds of attempts, and the order of shuffled options."""

import hashlib
import json
from typing import Any

from bayes_at_n.pipeline.config.settings import RunConfig


def attempt_seed(cfg: RunConfig, question_id: str, trial: int) -> int | None:
    """Return the seed of one attempt; None if `sampling.seed` is null.

    With `sampling.seeds=shared` it is `sampling.seed` + trial for every question and model, the
    protocol of arXiv 2510.04265, appendix F.3. With `independent` it is a hash: the upper 53 bits
    of the 8-byte BLAKE2b digest (RFC 7693), big-endian, of the ASCII JSON array [seed,
    dataset.name, question_id, model.name, trial] without spaces. It never changes, because stored
    runs rely on it. Torch on a CPU uses the lower 32 bits of a seed, which are as good.
    """
    if cfg.sampling.seed is None or cfg.sampling.seeds == "shared":
        return None if cfg.sampling.seed is None else cfg.sampling.seed + trial
    return _hashed([cfg.sampling.seed, cfg.dataset.name, question_id, cfg.model.name, trial])


def continued_seed(seed: int | None, position: int) -> int | None:
    """Return the seed of an attempt that continues after `position` tokens: a hash of both.

    >>> continued_seed(1251, 32768), continued_seed(None, 32768)
    (3164383247724405, None)
    """
    return None if seed is None else _hashed([seed, position])


def option_order(
    cfg: RunConfig, question_id: str, count: int, trial: int | None = None
) -> tuple[int, ...]:
    """Return the order of a question's options in its prompt, as indices from 0.

    With `prompt.shuffle`, options are sorted by the hash of [prompt.shuffle_seed, dataset.name,
    question_id, trial, option], with trial null for `question`. It never changes.

    >>> from bayes_at_n.pipeline.config.settings import DatasetConfig, PromptConfig
    >>> cfg = RunConfig(dataset=DatasetConfig(name="gpqa"), prompt=PromptConfig(shuffle="trial"))
    >>> option_order(cfg, "q1", 4, trial=0), option_order(cfg, "q1", 4, trial=2)
    ((2, 0, 1, 3), (1, 3, 2, 0))
    """
    if cfg.prompt.shuffle == "none":
        return tuple(range(count))
    key = [cfg.prompt.shuffle_seed, cfg.dataset.name, question_id]
    key.append(trial if cfg.prompt.shuffle == "trial" else None)
    return tuple(sorted(range(count), key=lambda option: _hashed([*key, option])))


def _hashed(parts: list[Any]) -> int:
    digest = hashlib.blake2b(json.dumps(parts, separators=(",", ":")).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big") >> 11  # 53 bits: exact in every JSON reader
