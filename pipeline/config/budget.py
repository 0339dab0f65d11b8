"""What a run may cost: a limit of the whole run folder, over all its workers and sessions."""

import time
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated

from bayes_at_n.pipeline.config.checks import Amount, must


def _parsed(moment: str) -> datetime:
    return datetime.fromisoformat(moment).astimezone()  # in this machine's zone without another


Moment = Annotated[str, must("a moment, as 2026-12-01T08:00", _parsed)]


@dataclass
class BudgetConfig:
    """Limits of generating, none by default; a resource, they never change what a run *is*."""

    tokens: Amount | None = None  # sampled ones, of completions
    gpu_hours: Amount | None = None  # loading too; a worker without a GPU counts as one
    money: Amount | None = None  # at engine.price_in and engine.price_out
    until: Moment | None = None

    @property
    def given(self) -> dict[str, float | str]:
        """The limits that are set, by their keys."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def moment(self) -> float | None:
        """`until` in Unix seconds."""
        return None if self.until is None else _parsed(self.until).timestamp()

    @property
    def past(self) -> bool:
        """Whether `until` is over."""
        return self.moment is not None and self.moment <= time.time()
