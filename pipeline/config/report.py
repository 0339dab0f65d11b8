"""Settings of the report."""

from dataclasses import dataclass


@dataclass
class ReportConfig:
    """What the report shows."""

    title: str | None = None  # default: the names of the data sets
    texts: bool = True  # prompts and responses go to side files; without: numbers only
    trials: int | None = None  # texts of the first so many trials of a question; default: all
