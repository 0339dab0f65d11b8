"""The settings of `export`."""

from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.config.analysis import AnalysisConfig
from pipeline.config.checks import limited

FORMATS = {
    "csv": "CSV, one row an attempt",
    "parquet": "Parquet, one row an attempt",
}
"""The formats, as the command line calls them; `pipeline.exports.formats` writes them."""


@dataclass
class ExportConfig(AnalysisConfig):
    """Which runs, in which format, and how much of them."""

    to: str = limited("", one_of=(*FORMATS,))
    texts: bool = True  # the responses
    logprobs: bool = False  # token ids and log-probs of the responses

    def problems(self) -> Iterator[str]:
        """Lists where a format has no room for them."""
        yield from super().problems()
        if self.logprobs and self.to == "csv":
            yield "logprobs=true: CSV has no lists; use to=parquet"
