"""The settings of `export`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.config.analysis import AnalysisConfig
from pipeline.config.checks import limited
from pipeline.config.tracking import PROJECT, TRACKERS

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # OWNER/NAME
FORMATS = {
    "csv": "pipeline.exports.flat:write_csv",
    "parquet": "pipeline.exports.flat:write_parquet",
    "hf": "pipeline.exports.hub:write_scores",
    "hub": "pipeline.exports.hub:write",
    "eee": "pipeline.exports.eee:write",
    "inspect": "pipeline.exports.inspect_log:write",
    "lm_eval": "pipeline.exports.lm_eval:write",
    **dict.fromkeys(TRACKERS, "pipeline.exports.trackers:send"),
}
"""By the names of formats MODULE:FUNCTION, which writes an `Export` into an empty folder."""


@dataclass
class ExportConfig(AnalysisConfig):
    """Which runs, in which format, and how much of them."""

    to: str = limited("", one_of=(*FORMATS,))
    texts: bool = True  # the responses
    logprobs: bool = False  # token ids and log-probs of the responses
    push: str | None = limited(None, named=True)  # to=hub: OWNER/NAME on the hub, made private
    project: str = limited(PROJECT, named=True)  # of a tracker, where to= names one

    def problems(self) -> Iterator[str]:
        """Lists where a format has no room for them, a place where nothing goes."""
        yield from super().problems()
        if self.logprobs and self.to not in ("parquet", "hub"):
            yield f"logprobs=true: to={self.to} has no room for lists; use to=parquet"
        if self.push and (self.to != "hub" or not HUB_ID.fullmatch(self.push)):
            yield f"push={self.push}: takes OWNER/NAME of a data set on the hub, with to=hub"
