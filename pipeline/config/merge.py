"""The settings of `merge`."""

from dataclasses import dataclass, field

from pipeline.base.errors import UserError
from pipeline.config import overrides


@dataclass
class MergeConfig:
    """Which checkpoints to average, and where the mean goes."""

    checkpoints: list[str] = field(default_factory=list)  # folders, folders of them, or globs
    last: int | None = None  # the mean of the last so many; default: of all
    out: str | None = None  # the folder to make; must not exist


def load(arguments: list[str]) -> MergeConfig:
    """Settings from KEY=VALUE arguments.

    Raises:
        UserError: an unknown key, a value of the wrong type, or one that cannot work.

    Example:
        >>> load(["checkpoints=training", "last=4", "out=mean"])
        MergeConfig(checkpoints=['training'], last=4, out='mean')
    """
    cfg = overrides.fill(MergeConfig, arguments)
    if not cfg.checkpoints:
        raise UserError(
            "checkpoints: name what to average, such as checkpoints=[a,b,c] or checkpoints=training"
            " (a folder that holds checkpoints)"
        )
    if cfg.out is None or not cfg.out.strip():
        raise UserError("out: name the folder to make, such as out=mean")
    if cfg.last is not None and cfg.last < 2:
        raise UserError(f"last={cfg.last}: a mean needs at least 2 checkpoints")
    return cfg
