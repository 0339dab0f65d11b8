"""Which seed an attempt is sampled with."""

import hashlib
import json
from typing import Any

from bayes_at_n.pipeline.config.settings import RunConfig


def attempt_seed(cfg: RunConfig, question_id: str, trial: int) -> int | None:
    """Return the seed of one attempt; None where `sampling.seed` is null.

    With `sampling.seeds=shared` it is `sampling.seed` + trial for every question and model, the
    protocol of arXiv 2510.04265, appendix F.3. With `independent` it is a hash: of the ASCII JSON
    array [seed, dataset.name, question_id, model.name, trial] without spaces the first 8 bytes of
    BLAKE2b (RFC 7693, 8 bytes long), big-endian, of which the upper 53 bits count. Stored runs rely
    on it, so it never changes. Torch takes the lower 32 bits of a seed on a CPU; these are as good.
    """
    if cfg.sampling.seed is None or cfg.sampling.seeds == "shared":
        return None if cfg.sampling.seed is None else cfg.sampling.seed + trial
    return _hashed([cfg.sampling.seed, cfg.dataset.name, question_id, cfg.model.name, trial])


def continued_seed(seed: int | None, position: int) -> int | None:
    """Return the seed of an attempt that goes on after so many tokens: hash of [seed, position].

    >>> continued_seed(1251, 32768), continued_seed(None, 32768)
    (3164383247724405, None)
    """
    return None if seed is None else _hashed([seed, position])


def option_order(
    cfg: RunConfig, question_id: str, count: int, trial: int | None = None
) -> tuple[int, ...]:
    """Return which of a question's options, counted from 0, stands at each place of its prompt.

    With `prompt.shuffle` options are in the order of the hash of [prompt.shuffle_seed,
    dataset.name, question_id, trial, option], with trial null for `question`. It never changes.

    >>> from bayes_at_n.pipeline.config.settings import DatasetConfig, PromptConfig
    >>> cfg = RunConfig(dataset=DatasetConfig(name="gpqa"), prompt=PromptConfig(shuffle="trial"))
    >>> option_order(cfg, "q1", 4, trial=0), option_order(cfg, "q1", 4, trial=2)
    ((2, 0, 1, 3), (1, 3, 2, 0))
    """
    if cfg.prompt.shuffle == "none":
        return tuple(range(count))
    of = trial if cfg.prompt.shuffle == "trial" else None
    about = [cfg.prompt.shuffle_seed, cfg.dataset.name, question_id, of]
    return tuple(sorted(range(count), key=lambda option: _hashed([*about, option])))


def _hashed(parts: list[Any]) -> int:
    digest = hashlib.blake2b(json.dumps(parts, separators=(",", ":")).encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "big") >> 11  # 53 bits: every reader of JSON takes them
