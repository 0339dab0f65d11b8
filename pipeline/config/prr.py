"""The settings of `prr`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pipeline.config import overrides
from pipeline.config.checks import check, limited
from pipeline.config.trajectory import ResearchConfig


@dataclass
class ReversalConfig(ResearchConfig):
    """Which runs are compared, and how their reversals are judged.

    Without `out` results go to _prr beside the first run, as in runs/DATASET/_prr.
    """

    before: list[str] = field(default_factory=list)  # run folders, or globs of them
    after: list[str] = field(default_factory=list)  # of the same models, in the same order
    draws: int = limited(4000, "[100, 1000000]")  # from the posterior of each side

    def problems(self) -> Iterator[str]:
        """What nobody can guess."""
        yield from super().problems()
        for side in ("before", "after"):
            if not getattr(self, side):
                yield (
                    f"{side}: names no run; write before=PATTERN after=PATTERN, such as"
                    " before='runs/demo/*-base' after='runs/demo/*-tuned'"
                )


def load(arguments: Sequence[str]) -> ReversalConfig:
    """Settings from KEY=VALUE arguments.

    Raises:
        UserError: an unknown key, a value of the wrong type, or one that cannot work.

    Example:
        >>> cfg = load(["before=runs/demo/*-base", "after=runs/demo/a-sft,runs/demo/b-sft"])
        >>> cfg.before, cfg.after
        (['runs/demo/*-base'], ['runs/demo/a-sft', 'runs/demo/b-sft'])
    """
    return check(overrides.fill(ReversalConfig, arguments))
