"""What a run may cost: a limit of the whole run folder, over all its workers and sessions."""

import time
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated

from bayes_at_n.pipeline.config.checks import Amount, must

# ISO 8601, in this machine's zone unless it says another.
Moment = Annotated[
    str, must("a moment, as 2026-12-01T08:00", lambda v: datetime.fromisoformat(v).astimezone())
]


@dataclass
class BudgetConfig:
    """Limits of generating, none by default; a resource, they never change what a run *is*."""

    tokens: Amount | None = None  # sampled ones, of completions
    # Hours that workers hold their GPUs, loading too; a worker without any counts as one.
    gpu_hours: Amount | None = None
    money: Amount | None = None  # at engine.price_in and engine.price_out
    until: Moment | None = None

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
        return datetime.fromisoformat(self.until).astimezone().timestamp()

    @property
    def past(self) -> bool:
        """Whether `until` is over."""
        return self.moment is not None and self.moment <= time.time()
