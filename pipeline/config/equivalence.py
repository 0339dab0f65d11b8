"""The settings of `equivalence`."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from bayes_at_n.pipeline.config.checks import TRUST, limited


@dataclass
class EquivalenceConfig:
    """Which two runs, how much they may differ, and how many attempts are replayed.

    Without `out` results go to _equivalence/A-B beside the first run.
    """

    folders: list[str] = field(default_factory=list)  # A and B
    margin: float = limited(1.0, "(0, 100)")  # points of accuracy
    # Attempts of A that B's engine is given; 0: none, and no engine is loaded.
    replay: int = limited(200, "[0, inf)")
    out: str | None = limited(None, named=True)
    trust: str = limited("false", one_of=TRUST)  # use what B's folder says of its engine

    def problems(self) -> Iterator[str]:
        """Not two folders."""
        if len(self.folders) != 2:
            yield (
                f"{' '.join(self.folders) or 'no folder'}: takes two run folders, such as"
                " runs/aime25/qwen3-4b runs/aime25/qwen3-4b-int8"
            )
