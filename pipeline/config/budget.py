"""What a run may cost: a limit of the whole run folder, over all its workers and sessions."""

import datetime
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from bayes_at_n.pipeline.config.checks import limited


@dataclass
class BudgetConfig:
    """Limits of generating, none by default; a resource, they never change what a run *is*."""

    tokens: float | None = limited(None, "[0, inf)")  # sampled ones, of completions
    # Hours that workers hold their GPUs, loading too; a worker without any counts as one.
    gpu_hours: float | None = limited(None, "[0, inf)")
    money: float | None = limited(None, "[0, inf)")  # at engine.price_in and engine.price_out
    until: str | None = None  # ISO 8601, such as 2026-12-01T08:00; this machine's zone unless said

    def problems(self) -> Iterator[str]:
        try:
            self.moment  # noqa: B018
        except (ValueError, OverflowError):
            yield f"until={self.until}: no moment; write YYYY-MM-DDTHH:MM, such as 2026-12-01T08:00"

    @property
    def given(self) -> dict[str, float | str]:
        """The limits that are set, by their keys.

        >>> BudgetConfig(tokens=5e6).given
        {'tokens': 5000000.0}
        """
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def moment(self) -> float | None:
        """`until` in Unix seconds.

        >>> BudgetConfig(until="1970-01-01T01:00+00:00").moment
        3600.0
        """
        if self.until is None:
            return None
        return datetime.datetime.fromisoformat(self.until).astimezone().timestamp()

    @property
    def past(self) -> bool:
        """Whether `until` is over."""
        return self.moment is not None and self.moment <= time.time()
