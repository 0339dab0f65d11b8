"""The settings of `export`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from bayes_at_n.pipeline.base.errors import install
from bayes_at_n.pipeline.config.analysis import SelectionConfig
from bayes_at_n.pipeline.config.checks import limited
from bayes_at_n.pipeline.config.scoring import ComparisonConfig
from bayes_at_n.pipeline.config.tracking import PROJECT, TRACKERS

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # OWNER/NAME
FORMATS = {
    "csv": "bayes_at_n.pipeline.exports.flat:write_csv",
    "parquet": "bayes_at_n.pipeline.exports.flat:write_parquet",
    "hf": "bayes_at_n.pipeline.exports.hub:write_scores",
    "hub": "bayes_at_n.pipeline.exports.hub:write",
    "eee": "bayes_at_n.pipeline.exports.eee:write",
    "inspect": "bayes_at_n.pipeline.exports.inspect_log:write",
    "lm_eval": "bayes_at_n.pipeline.exports.lm_eval:write",
    **dict.fromkeys(TRACKERS, "bayes_at_n.pipeline.exports.trackers:send"),
}
"""By the names of formats MODULE:FUNCTION, which writes an `Export` into an empty folder."""


@dataclass
class ExportConfig(SelectionConfig):
    """Which runs, in which format, and how much of them."""

    to: str = limited("", one_of=(*FORMATS,))
    texts: bool = True  # the responses
    logprobs: bool = False  # token ids and log-probs of the responses
    push: str | None = limited(None, named=True)  # to=hub: OWNER/NAME on the hub, made private
    project: str = limited(PROJECT, named=True)  # of a tracker, where to= names one

    def problems(self) -> Iterator[str]:
        """No library, runs named in two ways, a file's name, what a format has no use for."""
        yield from super().problems()
        library = {"inspect": "inspect_ai"}.get(self.to, self.to)
        if self.to in ("inspect", *TRACKERS) and find_spec(library) is None:
            yield f"to={self.to} needs {library}, which is not installed: {install(self.to)}"
        if self.folders and (self.dataset or self.model):
            yield f"{self.folders[0]}: name folders of runs, or dataset= and model=, not both"
        if self.out and Path(self.out).suffix in (".csv", ".parquet", ".json", ".jsonl", ".eval"):
            yield f"out={self.out}: names the folder in which files are made; leave out the suffix"
        if self.to != "hub" and self.scoring != ComparisonConfig():
            own = "its scores are by each run's own settings, which `score RUN_FOLDER` sets"
            yield f"to={self.to} takes no scoring.* (metrics, confidence, ...): {own}"
        if self.project != PROJECT and self.to not in TRACKERS:
            yield f"project={self.project}: is of a tracker, to={' or '.join(TRACKERS)}"
        if self.logprobs and self.to not in ("parquet", "hub"):
            yield f"logprobs=true: to={self.to} has no room for lists; use to=parquet"
        if self.push and (self.to != "hub" or not HUB_ID.fullmatch(self.push)):
            yield f"push={self.push}: takes OWNER/NAME of a data set on the hub, with to=hub"
