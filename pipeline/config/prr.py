"""The settings of `prr`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.base.errors import UserError
from pipeline.config import overrides
from pipeline.config.trajectory import PriceSettings, judging_problems


@dataclass
class ReversalConfig:
    """Which runs are compared, and how their reversals are judged."""

    before: list[str] = field(default_factory=list)  # run folders, or globs of them
    after: list[str] = field(default_factory=list)  # of the same models, in the same order
    pass_k: list[int] = field(default_factory=lambda: [1, 2, 4, 8, 16])
    confidence: float = 0.95  # of intervals, and of an order that counts as settled
    draws: int = 4000  # from the posterior of each side
    seed: int = 0  # of the draws
    prices: PriceSettings = field(default_factory=PriceSettings)
    out: str | None = None  # default: _prr beside the first run, as in runs/DATASET/_prr


def load(arguments: Sequence[str]) -> ReversalConfig:
    """Settings from KEY=VALUE arguments.

    Raises:
        UserError: an unknown key, a value of the wrong type, or one that cannot work.

    Example:
        >>> cfg = load(["before=runs/demo/*-base", "after=runs/demo/a-sft,runs/demo/b-sft"])
        >>> cfg.before, cfg.after
        (['runs/demo/*-base'], ['runs/demo/a-sft', 'runs/demo/b-sft'])
    """
    cfg = overrides.fill(ReversalConfig, arguments)
    for message in _problems(cfg):
        raise UserError(message)
    cfg.pass_k = sorted({*cfg.pass_k})
    return cfg


def _problems(cfg: ReversalConfig) -> Iterator[str]:
    for side in ("before", "after"):
        if not getattr(cfg, side):
            yield (
                f"{side}: names no run; write before=PATTERN after=PATTERN, such as"
                " before='runs/demo/*-base' after='runs/demo/*-tuned'"
            )
    if not cfg.pass_k or any(k < 1 for k in cfg.pass_k):
        yield f"pass_k={cfg.pass_k}: name one k or more, each at least 1"
    if not 100 <= cfg.draws <= 1_000_000:
        yield f"draws={cfg.draws}: must be 100 to 1000000"
    yield from judging_problems(cfg.confidence, cfg.seed, cfg.prices, cfg.out)
