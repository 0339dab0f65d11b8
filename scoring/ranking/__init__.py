"""Two models or many: comparison, ranks, reversals, planning, trajectories."""

from typing import Literal

Method = Literal["competition", "dense"]
Rule = Literal["consecutive_z", "overlap"]
