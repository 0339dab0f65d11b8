"""The settings of `prr`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bayes_at_n.pipeline.config.checks import limited
from bayes_at_n.pipeline.config.trajectory import ResearchConfig
from bayes_at_n.scoring.metrics.table import parse_all


@dataclass
class ReversalConfig(ResearchConfig):
    """Which runs are compared, and how their reversals are judged.

    Without `out` results go to _prr beside the first run, as in runs/DATASET/_prr.
    """

    before: list[str] = field(default_factory=list)  # run folders, or globs of them
    after: list[str] = field(default_factory=list)  # of the same models, in the same order
    draws: int = limited(4000, "[100, 1000000]")  # from the posterior of each side

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        for metric in parse_all(self.metrics) if not [*super().problems()] else ():
            if metric.votes:
                yield f"metrics: {metric.name} takes answers, and prr compares outcomes only"
        for side in ("before", "after"):
            if not getattr(self, side):
                yield (
                    f"{side}: names no run; write before=PATTERN after=PATTERN, such as"
                    " before='runs/demo/*-base' after='runs/demo/*-tuned'"
                )
