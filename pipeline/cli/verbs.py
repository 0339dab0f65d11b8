"""The verbs, for help, completion and dispatch; functions are named: help waits for no engine."""

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
    load: str | None = None  # MODULE:FUNCTION that makes the argument, if not settings or each run
    flags: Mapping[str, Any] = field(
        default_factory=dict
    )  # keyword arguments, as argparse has them
    words: tuple[str, ...] = ()  # the same, as a word among settings
    examples: str = ""  # a line each, without the program's name
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
_DRY = "show the first prompt, what is owed and its cost; write nothing"
VERBS = {
    "run": Verb(
        "cli.stages:run_stages",
        "every stage of `stages`, in order, each doing only what is owed",
        flags={"--dry-run": _DRY},
        examples="""\
run  # the demo: a tiny model on this machine
run model=qwen3-30b dataset=aime25  # again continues where it stopped
run model=FOLDER_OR_HUB_ID dataset=./FILE.csv  # of your own
run model=qwen3-4b,limo-v2 dataset=aime24,aime25 until=best  # many runs; until settled""",
    ),
    "status": Verb(
        "cli.runs:status",
        "where runs stand: trials, workers, cost, score so far; --watch follows them",
        keys="",
        load="builtins:list",
        reads=True,
        flags={
            "--watch": "go on until nothing is owed and no worker is left, or until Ctrl-C",
            "--every": {"metavar": "SECONDS", "type": float, "help": "of reports (default 30)"},
            "--check": "read everything and name damaged files; exit 1 if there are any",
        },
        examples="status runs --watch  # all runs in a folder",
    ),
    "compare": Verb(
        "cohorts.compare:compare",
        "compare models: scores, ranks with ties, which orders are settled",
        keys=f"{_MANY} ranking",
        settings=_ANALYSIS,
        examples="compare dataset=aime25,aime24,hmmt25  # one table, with a pooled column",
    ),
    "report": Verb(
        "report.build:report",
        "one HTML file to explore: leaderboard, plots, every attempt",
        keys=f"{_MANY} report",
        settings=_ANALYSIS,
        flags={"--open": "open it in the browser"},
        examples="report dataset=aime25 --open  # runs/_report/index.html; needs no server",
    ),
    "prepare": Verb(
        "prepare.stage:prepare",
        "read and check questions and gold answers, and render the prompts",
        keys=_PROTOCOL,
        flags={"--dry-run": _DRY},
        examples="prepare model=qwen3-30b dataset=aime25 --dry-run  # a prompt, and the cost",
    ),
    "generate": Verb(
        "generate.stage:generate",
        "sample what is owed, alone or with other workers; Ctrl-C keeps what is done",
        keys=f"{_PROTOCOL} budget track trust_parts",
        flags={"--dry-run": _DRY},
        examples="generate RUN_FOLDER trials=160 budget.gpu_hours=8",
    ),
    "grade": Verb(
        "cli.runs:grade",
        "compare every boxed answer with its gold answer",
        keys="dataset.answer dataset.boxes dataset.pattern dataset.conventions grading",
        reads=True,
        flags={
            "--file": {"metavar": "IN", "help": "JSON Lines to grade instead of a run"},
            "--out": {"metavar": "OUT", "help": "where its graded lines go"},
            "--complete": "fail if attempts are owed and the budget is not spent",
            "--review": "also list disagreements with plain math_verify in review.jsonl",
        },
        examples="grade RUN_FOLDER grading.compat=math_verify  # why another score differs",
    ),
    "verify": Verb(
        "verify.stage:verify",
        "a verifier's calibrated label probabilities for every attempt",
        keys="verifier labels dataset.judge",
        reads=True,
        examples="verify RUN_FOLDER labels.sample=60  # 60 attempts for people, in labels.jsonl",
    ),
    "categorize": Verb(
        "rubrics.categories:categorize",
        "map every attempt into each rubric; thresholds=FILE freezes quantiles",
        keys="rubric thresholds",
        reads=True,
        examples="categorize RUN_FOLDER rubric=exact-match,FILE.yaml",
    ),
    "score": Verb(
        "score.stage:score",
        "Bayes@N, avg@N and Pass@k with intervals; prior=RUN prior.trials=D adds a prior",
        keys="scoring prior",
        words=("rubrics",),
        reads=True,
        examples="score RUN_FOLDER metrics=bayes,pass@8,g-pass@8:0.5",
    ),
    "prefetch": Verb(
        "prepare.prefetch:prefetch",
        "download model, data set and verifier for machines without a network",
        keys="model dataset verifier prompt.shots_from",
        examples="prefetch model=qwen3-30b dataset=aime25  # into HF_HOME",
    ),
    "submit": Verb(
        "settle.queue:submit",
        "queue runs on a Slurm cluster: one array of workers, then the other stages",
        keys="cluster",
        runs_too=True,
        load="builtins:list",
        flags={"--dry-run": "show the scripts; write nothing"},
        examples="""\
submit model=qwen3-4b,limo-v2 dataset=aime24,aime25 cluster=h200-8
submit runs/aime25  # what these runs owe; safe at any time""",
    ),
    "import": Verb(
        "imports.importing:import_records",
        "make run folders of other tools' records: lm_eval, inspect, CSV and more",
        settings="records:RecordsConfig",
        folders=False,
        examples="import source=results/ kind=lm_eval  # sample logs (--log_samples)",
    ),
    "export": Verb(
        "exports.verb:export",
        "write runs in formats that others read, or in a tracker",
        keys="to texts logprobs push project dataset model folders runs out scoring",
        settings="records:ExportConfig",
        examples="export runs/aime25/qwen3-30b to=csv  # a row an attempt; `import` takes it back",
    ),
    "equivalence": Verb(
        "cohorts.equivalence:run",
        "test whether two ways of sampling a model are equivalent",
        settings="analysis:EquivalenceConfig",
        reads=True,
        examples="equivalence runs/aime25/qwen3-4b runs/aime25/qwen3-4b-int8",
    ),
    "study": Verb(
        "research.studies.reproduce:study",
        "some of the paper's experiments, from your runs or from simulation",
        keys=f"{_MANY} study ranking",
        settings=_ANALYSIS,
        examples="study name=tau,convergence dataset=aime25 preset=quick  # from your runs",
    ),
    "reproduce": Verb(
        "research.studies.reproduce:reproduce",
        "all tables and figures of the paper, each printed number beside ours",
        keys=f"{_MANY} study",
        settings=_ANALYSIS,
        examples="reproduce dataset=aime25,aime24,hmmt25,brumo25  # into paper/",
    ),
    "merge": Verb(
        "research.checkpoints.merging:run",
        "the mean of the weights of a training's last checkpoints",
        settings="trajectory:MergeConfig",
        folders=False,
        examples="merge checkpoints=run last=4 out=merged  # of a folder of them the last four",
    ),
    "trajectory": Verb(
        "research.trajectory.verb:run",
        "how steadily scores rise during training, by checkpoint and merged window",
        settings="trajectory:TrajectoryConfig",
        runs_too=True,
        folders=False,
        load="bayes_at_n.pipeline.config.trajectory:load",
        flags={"--dry-run": "show the runs; write nothing"},
        examples="trajectory model=custom checkpoints=run merge=4,8 dataset=aime25 trials=16",
    ),
    "prr": Verb(
        "research.prr.verb:run",
        "how often the order of two models reverses between two sets of runs",
        settings="trajectory:ReversalConfig",
        folders=False,
        examples="prr 'before=runs/aime25/*-base' 'after=runs/aime25/*-sft'",
    ),
    "settle": Verb(
        "settle.verb:run",
        "sample until it is settled which model is best, and no longer",
        settings="settle:SettleConfig",
        runs_too=True,
        load="bayes_at_n.pipeline.config.settle:load",
        flags={"--dry-run": "simulate what it decides and takes; write nothing"},
        examples="""\
settle model=a,b,c dataset=aime25 until=best  # top:K, order, above:M, width:W
settle replay=runs/aime25 until=top:3  # what complete runs would have taken""",
    ),
    "plan": Verb(
        "settle.preview:plan",
        "simulate what a budget can settle, before anything is spent",
        settings="settle:PlanConfig",
        reads=True,
        examples="plan accuracies=[.74,.7,.66] questions=60 tokens=15000 budget.tokens=5e7",
    ),
}
