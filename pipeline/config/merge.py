"""The settings of `merge`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bayes_at_n.pipeline.config.checks import limited


@dataclass
class MergeConfig:
    """Which checkpoints to average, and where the mean goes."""

    checkpoints: list[str] = field(default_factory=list)  # folders, folders of them, or globs
    last: int | None = limited(None, "[2, inf)")  # the mean of the last so many; default: of all
    out: str = ""  # the folder to make; must not exist

    def problems(self) -> Iterator[str]:
        if not self.checkpoints:
            yield (
                "checkpoints: name what to average, such as checkpoints=[a,b,c] or"
                " checkpoints=training (a folder that holds checkpoints)"
            )
        if not self.out.strip():
            yield "out: name the folder to make, such as out=mean"
