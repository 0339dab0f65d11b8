"""What the command line can do: a table of verbs, which help, completion and dispatch all read.

Functions and settings are named and not imported: `--help` should not wait for an engine.
"""

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

RUN = "settings:RunConfig"
_ANALYSIS = "analysis:AnalysisConfig"
_PROTOCOL = "model dataset prompt sampling engine tag run_dir"  # which attempts, and where they go
_MANY = "dataset model folders runs out scoring prior rubric thresholds"


@dataclass(frozen=True)
class Verb:
    """One command."""

    call: str  # MODULE:FUNCTION, of the pipeline
    summary: str
    keys: str | None = None  # groups and keys that concern it, for its help; None: all of them
    settings: str = RUN  # MODULE:CLASS, of pipeline.config, of its primary config
    # MODULE:FUNCTION that makes what the function gets: if not its settings, or each run.
    load: str | None = None
    # The function's keyword arguments: what a switch does, or (VALUE, what it is, its type).
    flags: Mapping[str, str | tuple[str, str, type]] = field(default_factory=dict)
    words: tuple[str, ...] = ()  # the same, as a word among settings
    examples: str = ""  # where a line begins with $, that is the program's name
    runs_too: bool = False  # takes settings of `run` beside its own
    folders: bool = True  # takes run folders where settings may stand
    reads: bool = False  # reads runs that are there: dataset=NAME alone is all of runs/NAME

    @property
    def function(self) -> Callable[..., Any]:
        """The function, imported now."""
        return pkgutil.resolve_name(f"bayes_at_n.pipeline.{self.call}")  # type: ignore[no-any-return]

    @property
    def kind(self) -> type[Any]:
        """The dataclass of its settings, imported now."""
        return pkgutil.resolve_name(f"bayes_at_n.pipeline.config.{self.settings}")  # type: ignore[no-any-return]


GROUPS = {
    "everyday": "run status compare report",
    "stages": "prepare generate grade verify categorize score",
    "adaptive": "settle plan",
    "records": "import export equivalence",
    "cluster": "submit prefetch",
    "training": "merge trajectory prr",
    "paper": "study reproduce",
}
EXAMPLES = """\
  $ run  # the demo: a tiny model on this machine
  $ run model=qwen3-30b dataset=aime25  # again continues where it stopped
  $ run model=FOLDER_OR_HUB_ID dataset=./FILE.csv  # of your own
  $ run model=qwen3-4b,limo-v2 dataset=aime24,aime25  # one after the other"""
_DRY = "show the first prompt, what is owed and its cost; write nothing"
VERBS = {
    "run": Verb(
        "cli.stages:run_stages",
        "every stage of `stages`, in order, each doing only what is owed",
        flags={"--dry-run": _DRY},
        examples=f"""{EXAMPLES}
  $ run model=qwen3-30b dataset=aime25 until=width:0.02  # narrow enough
  $ run model=qwen3-4b,limo-v2 dataset=aime25 until=best  # until settled""",
    ),
    "status": Verb(
        "cli.runs:status",
        "where runs stand: trials, workers, cost, score so far; --watch follows them",
        keys="",
        load="builtins:list",
        reads=True,
        flags={
            "--watch": "go on until nothing is owed and no worker is left, or until Ctrl-C",
            "--every": ("SECONDS", "between reports without a terminal (default 30)", float),
            "--check": "read everything and name damaged files; exit 1 if there are any",
        },
        examples="""\
  $ status RUN_FOLDER
  $ status runs --watch  # all runs in a folder
  $ status runs --json  # an object a run""",
    ),
    "compare": Verb(
        "cohorts.compare:compare",
        "compare models: scores, ranks with ties, which orders are settled",
        keys=f"{_MANY} ranking",
        settings=_ANALYSIS,
        examples="""\
  $ compare dataset=aime25  # all runs in runs/aime25; tables in _compare
  $ compare dataset=aime25,aime24,hmmt25  # one table, with a pooled column
  $ compare dataset=aime25 ranking=rasch,borda  # also by methods of scorio""",
    ),
    "report": Verb(
        "report.build:report",
        "one HTML file to explore: leaderboard, plots, every attempt",
        keys=f"{_MANY} report",
        settings=_ANALYSIS,
        flags={"--open": "open it in the browser"},
        examples="""\
  $ report dataset=aime25 --open  # runs/_report/index.html; needs no server
  $ report dataset=aime25 single=true  # one file to mail, up to 10 MB""",
    ),
    "prepare": Verb(
        "prepare.stage:prepare",
        "read and check questions and gold answers, and render the prompts",
        keys=_PROTOCOL,
        flags={"--dry-run": _DRY},
        examples="""\
  $ prepare model=qwen3-30b dataset=aime25 --dry-run  # a prompt, and the cost
  $ prepare RUN_FOLDER max_tokens=65536  # truncated attempts will be continued""",
    ),
    "generate": Verb(
        "generate.stage:generate",
        "sample what is owed, alone or with other workers; Ctrl-C keeps what is done",
        keys=f"{_PROTOCOL} budget track trust_parts",
        flags={"--dry-run": _DRY},
        examples="""\
  $ generate RUN_FOLDER  # on several nodes: they share the work
  $ generate RUN_FOLDER trials=160 budget.gpu_hours=8""",
    ),
    "grade": Verb(
        "cli.runs:grade",
        "compare every boxed answer with its gold answer",
        keys="dataset.answer dataset.boxes dataset.pattern dataset.conventions grading",
        reads=True,
        flags={
            "--file": ("IN", "JSON Lines to grade instead of a run", str),
            "--out": ("OUT", "where its graded lines go", str),
            "--complete": "fail if attempts are owed and the budget is not spent",
            "--review": "also list disagreements with plain math_verify in review.jsonl",
        },
        examples="""\
  $ grade RUN_FOLDER grading.compat=math_verify  # why another score differs
  $ grade RUN_FOLDER --review
  $ grade --file in.jsonl --out out.jsonl  # of completions from elsewhere""",
    ),
    "verify": Verb(
        "verify.stage:verify",
        "a verifier's calibrated label probabilities for every attempt",
        keys="verifier labels dataset.judge",
        reads=True,
        examples="""\
  $ verify RUN_FOLDER labels.sample=60  # 60 attempts for people, in labels.jsonl
  $ verify RUN_FOLDER labels=labels.jsonl  # the score without its errors""",
    ),
    "categorize": Verb(
        "rubrics.categorize:categorize",
        "map every attempt into each rubric; thresholds=FILE freezes quantiles",
        keys="rubric thresholds",
        reads=True,
        examples="""\
  $ categorize RUN_FOLDER rubric=exact-match,FILE.yaml
  $ categorize RUN_FOLDER thresholds=OTHER_RUN_FOLDER/thresholds.json""",
    ),
    "score": Verb(
        "score.stage:score",
        "Bayes@N, avg@N and Pass@k with intervals; prior=RUN prior.trials=D adds a prior",
        keys="scoring prior",
        words=("rubrics",),
        reads=True,
        examples="""\
  $ score RUN_FOLDER metrics=bayes,pass@8,g-pass@8:0.5
  $ score RUN_FOLDER rubrics  # every rubric, with shares of its categories
  $ score RUN_FOLDER caps=2048,4096  # under smaller max_tokens; or auto""",
    ),
    "prefetch": Verb(
        "prepare.prefetch:prefetch",
        "download model, data set and verifier for machines without a network",
        keys="model dataset verifier prompt.shots_from",
        examples="  $ prefetch model=qwen3-30b dataset=aime25   # into HF_HOME",
    ),
    "submit": Verb(
        "settle.queue:submit",
        "queue runs on a Slurm cluster: one array of workers, then the other stages",
        keys="cluster",
        runs_too=True,
        load="builtins:list",
        flags={"--dry-run": "show the scripts; write nothing"},
        examples="""\
  $ submit model=qwen3-4b,limo-v2 dataset=aime24,aime25 cluster=h200-8
  $ submit model=a,b,c dataset=aime25 until=best  # as `settle`
  $ submit runs/aime25  # what these runs owe; safe at any time""",
    ),
    "import": Verb(
        "imports.importing:import_records",
        "make run folders of other tools' records: lm_eval, inspect, CSV and more",
        settings="records:RecordsConfig",
        folders=False,
        examples="""\
  $ import source=harimo/scorio-trace/meta revision=COMMIT  # the authors'
  $ import source=results/ kind=lm_eval  # sample logs (--log_samples)
  $ import source=labels.csv dataset=summaries category_names=[bad,fair,good]""",
    ),
    "export": Verb(
        "exports.verb:export",
        "write runs in formats that others read, or in a tracker",
        keys="to texts logprobs push project dataset model folders runs out scoring",
        settings="records:ExportConfig",
        examples="""\
  $ export runs/aime25/qwen3-30b to=csv  # a row an attempt; `import` takes it back
  $ export dataset=aime25 to=eee  # other logs: to=inspect, to=lm_eval
  $ export runs/aime25/qwen3-30b to=wandb project=NAME  # or mlflow, trackio""",
    ),
    "equivalence": Verb(
        "cohorts.equivalence:run",
        "test whether two ways of sampling a model are equivalent",
        settings="analysis:EquivalenceConfig",
        reads=True,
        examples="""\
  $ equivalence runs/aime25/qwen3-4b runs/aime25/qwen3-4b-int8
  $ equivalence A B margin=2 replay=0  # from what is stored, no engine""",
    ),
    "study": Verb(
        "research.studies.reproduce:study",
        "some of the paper's experiments, from your runs or from simulation",
        keys=f"{_MANY} study ranking",
        settings=_ANALYSIS,
        examples="""\
  $ study name=coins,separation,priors  # what the paper simulated
  $ study name=tau,convergence dataset=aime25 preset=quick  # from your runs
  $ study name=rankings ranking=borda dataset=aime25""",
    ),
    "reproduce": Verb(
        "research.studies.reproduce:reproduce",
        "all tables and figures of the paper, each printed number beside ours",
        keys=f"{_MANY} study",
        settings=_ANALYSIS,
        examples="  $ reproduce dataset=aime25,aime24,hmmt25,brumo25   # into paper/",
    ),
    "merge": Verb(
        "research.checkpoints.merging:run",
        "the mean of the weights of a training's last checkpoints",
        settings="trajectory:MergeConfig",
        folders=False,
        examples="""\
  $ merge checkpoints=run/step-3700,run/step-3800,run/step-3900 out=merged
  $ merge checkpoints=run last=4 out=merged  # of a folder of them the last four""",
    ),
    "trajectory": Verb(
        "research.trajectory.verb:run",
        "how steadily scores rise during training, by checkpoint and merged window",
        settings="trajectory:TrajectoryConfig",
        runs_too=True,
        folders=False,
        load="bayes_at_n.pipeline.config.trajectory:load",
        flags={"--dry-run": "show the runs; write nothing"},
        examples="""\
  $ trajectory model=demo checkpoints=demo/models merge=4 dataset=demo
  $ trajectory model=custom checkpoints=run merge=4,8 dataset=aime25 trials=16
  $ trajectory model=custom checkpoints.math=a checkpoints.code=b dataset=aime25""",
    ),
    "prr": Verb(
        "research.prr.verb:run",
        "how often the order of two models reverses between two sets of runs",
        settings="trajectory:ReversalConfig",
        folders=False,
        examples="""\
  $ prr 'before=runs/aime25/*-base' 'after=runs/aime25/*-sft'
  $ prr before=runs/d/a,runs/d/b after=runs/d/x,runs/d/y  # in this order""",
    ),
    "settle": Verb(
        "settle.verb:run",
        "sample until it is settled which model is best, and no longer",
        settings="settle:SettleConfig",
        runs_too=True,
        load="bayes_at_n.pipeline.config.settle:load",
        flags={"--dry-run": "simulate what it decides and takes; write nothing"},
        examples="""\
  $ settle model=qwen3-30b,qwen3-4b,limo-v2 dataset=aime25 until=best
  $ settle model=a,b,c dataset=aime25 assume=[0.7,0.66,0.5] --dry-run
  $ settle replay=runs/aime25 until=top:3  # what complete runs would have taken
until          best, top:K, order, above:MODEL, or width:W of each model's interval""",
    ),
    "plan": Verb(
        "settle.preview:plan",
        "simulate what a budget can settle, before anything is spent",
        settings="settle:PlanConfig",
        reads=True,
        examples="""\
  $ plan dataset=aime25 until=best budget.tokens=5e7
  $ plan accuracies=[.74,.7,.66] questions=60 tokens=15000 budget.tokens=5e7""",
    ),
}
