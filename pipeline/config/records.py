"""The settings of `import` and `export`, and of trackers: records of others, in and out."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Annotated

from pydantic import Field

from bayes_at_n.pipeline.base.errors import install
from bayes_at_n.pipeline.config.analysis import SelectionConfig
from bayes_at_n.pipeline.config.checks import FolderName, Named, must, one_of
from bayes_at_n.pipeline.config.scoring import ComparisonConfig
from bayes_at_n.pipeline.config.settings import PROJECT, TRACKERS

KINDS = {  # of records, and what makes them; `pipeline.records.formats` reads them
    "trace": "Parquet",  # one row an attempt, as in scorio-trace
    "inspect": "inspect_ai",  # .eval and JSON
    "lighteval": "lighteval",
    "evalscope": "evalscope",
    "npz": "NPZ",
    "lm_eval": "lm-evaluation-harness",
    "eee": "Every Eval Ever",
    "nemo_skills": "NeMo-Skills",
    "openai": "OpenAI's interface",  # chats, and batches of them
    "jsonl": "JSON Lines",
    "csv": "CSV",
    "runs": "this program",  # run folders of another machine
}
FORMATS = {  # by name the FUNCTION that writes an `Export` into an empty folder, as MODULE:FUNCTION
    "csv": "bayes_at_n.pipeline.records.flat:write_csv",
    "parquet": "bayes_at_n.pipeline.records.flat:write_parquet",
    "hf": "bayes_at_n.pipeline.records.hub:write_scores",
    "hub": "bayes_at_n.pipeline.records.hub:write",
    "eee": "bayes_at_n.pipeline.records.eee:write",
    "inspect": "bayes_at_n.pipeline.records.inspect_log:write",
    "lm_eval": "bayes_at_n.pipeline.records.lm_eval:write",
    **dict.fromkeys(TRACKERS, "bayes_at_n.pipeline.records.trackers:send"),
}
MOST_CATEGORIES = 100
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*")  # OWNER/NAME
HubId = Annotated[str, must("OWNER/NAME of a data set on the hub", HUB_ID.fullmatch)]
_FILES = (".csv", ".parquet", ".json", ".jsonl", ".eval")
Out = Annotated[Named, must("a folder, without a suffix", lambda v: not v.endswith(_FILES))]


@dataclass
class ImportConfig:
    """What to import, and what the source does not say itself."""

    path: str | None = None  # file, folder, or hub id OWNER/NAME of a data set
    kind: Annotated[str, one_of("auto", *KINDS)] = "auto"
    revision: str | None = None  # of a hub id: a commit, tag or branch
    questions: str | None = None  # .jsonl of id, problem, answer; or a folder of DATASET.jsonl
    metric: str | None = None  # which value of a sample is its outcome, in other harnesses' logs
    filter: str | None = None  # lm_eval: which filter's samples count
    rubric: str = "labels"  # what the categories are called
    category_names: list[str] = field(default_factory=list)  # of categories 0..C
    # By default 0, 1, ..., C.
    category_weights: list[Annotated[float, Field(gt=-1e6, lt=1e6)]] = field(default_factory=list)
    tag: FolderName | None = None  # ends the names of the run folders

    def problems(self) -> Iterator[str]:
        names, weights = self.category_names, self.category_weights
        if names and weights and len(names) != len(weights):
            yield f"category_weights={weights}: one for each of the {len(names)} category_names"
        if names and not 2 <= len(set(names)) == len(names) <= MOST_CATEGORIES:
            yield f"category_names={names}: must be 2 to {MOST_CATEGORIES}, each once"


@dataclass
class RecordsConfig:
    """Records from elsewhere, and which runs they become."""

    dataset: list[str] = field(default_factory=list)  # its name, where the source has none
    model: list[str] = field(default_factory=list)  # the models' names, where it has none
    runs: Named = "runs"  # run folders are runs/DATASET/RUN
    source: ImportConfig = field(default_factory=ImportConfig)


@dataclass
class ExportConfig(SelectionConfig):
    """Which runs, in which format, and how much of them."""

    out: Out | None = None
    to: Annotated[str, one_of(*FORMATS), Field(validate_default=True)] = ""
    texts: bool = True  # the responses
    logprobs: bool = False  # token ids and log-probs of the responses
    push: HubId | None = None  # to=hub: where on the hub, made private
    project: Named = PROJECT  # of a tracker, where to= names one

    def problems(self) -> Iterator[str]:
        library = {"inspect": "inspect_ai"}.get(self.to, self.to)
        if self.to in ("inspect", *TRACKERS) and find_spec(library) is None:
            yield f"to={self.to} needs {library}, which is not installed: {install(self.to)}"
        if self.folders and (self.dataset or self.model):
            yield f"{self.folders[0]}: name folders of runs, or dataset= and model=, not both"
        if self.to != "hub" and self.scoring != ComparisonConfig():
            yield f"scoring: to={self.to} has the scores of each run, which `score RUN_FOLDER` sets"
        if self.project != PROJECT and self.to not in TRACKERS:
            yield f"project={self.project}: is of a tracker, to={' or '.join(TRACKERS)}"
        if self.logprobs and self.to not in ("parquet", "hub"):
            yield f"logprobs=true: to={self.to} has no room for lists; use to=parquet"
        if self.push and self.to != "hub":
            yield f"push={self.push}: takes to=hub"
