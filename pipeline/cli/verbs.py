"""The table of verbs; their functions are named, so that help imports nothing slow."""

import argparse
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from bayes_at_n.pipeline.base.console import clean
from bayes_at_n.pipeline.base.errors import UserError

RUN = "settings:RunConfig"
_ANALYSIS = "analysis:AnalysisConfig"
_PROTOCOL = "model dataset prompt sampling engine tag run_dir"
_MANY = "dataset model folders runs out scoring prior rubric thresholds"


class Verb(NamedTuple):
    """One verb: a function of a run, of other settings, or of the arguments themselves."""

    call: str  # MODULE:FUNCTION in the pipeline
    summary: str
    keys: str | None = None  # groups and keys in its help; None: all
    settings: str = RUN  # MODULE:CLASS in pipeline.config, of each dataclass whose keys it accepts
    composes: bool = False  # its function gets the arguments and composes settings itself
    flags: Mapping[str, Any] = {}  # keyword arguments, as for argparse
    examples: str = ""  # one per line, without the program's name
    reads: bool = False  # reads existing runs: dataset=NAME alone means all of runs/NAME

    @property
    def function(self) -> Callable[..., Any]:
        """Import and return the function."""
        return pkgutil.resolve_name(f"bayes_at_n.pipeline.{self.call}")  # type: ignore[no-any-return]

    @property
    def kinds(self) -> list[type[Any]]:
        """Import and return the dataclasses of its settings, its own before that of runs."""
        names = self.settings.split()
        return [pkgutil.resolve_name(f"bayes_at_n.pipeline.config.{name}") for name in names]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are UserErrors."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError with argparse's message."""
        raise UserError(f"{clean(message)}; see `{self.prog} --help`")


_COMMON: dict[str, str | dict[str, Any]] = {  # flags of all verbs; the last five are Hydra's
    "-q --quiet": "print only results, warnings and errors",
    "-v --verbose": "print full tables and a note for every step",
    "--json": "print results as JSON Lines on standard output, all else on standard error",
    "--cfg -c": {"choices": ["job"], "help": "print the composed configuration and exit"},
    "--info -i": {
        "choices": ["defaults", "searchpath"],
        "help": "print where the configuration comes from",
    },
    "--resolve": "with --cfg: resolve interpolations",
    "--config-dir -cd": {"metavar": "DIR", "help": "also search this folder for config groups"},
    "--multirun -m": "accepted, but not needed: several values always make several runs",
}


def declare(parser: argparse.ArgumentParser, verb: Verb, settings: str = "") -> None:
    """Add a verb's arguments to a parser; `settings`: their description in its help."""
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=settings)
    for names, options in {**verb.flags, **_COMMON}.items():
        switch: dict[str, Any] = {"action": "store_true", "help": options}
        parser.add_argument(*names.split(), **switch if isinstance(options, str) else options)


GROUPS = {
    "everyday": "run status compare report",
    "stages": "prepare generate grade verify categorize score label",
    "adaptive": "settle plan",
    "records": "import export equivalence",
    "cluster": "submit prefetch catalogue",
    "training": "merge trajectory prr",
    "paper": "study reproduce",
}
_DRY = "show the first prompt, what is pending and its cost; write nothing"
VERBS = {
    "run": Verb(
        "cli.command:run_stages",
        "run every stage in order; each does only what is pending",
        flags={"--dry-run": _DRY},
        examples="""\
run  # the demo: a tiny model on this machine
run model=qwen3-30b dataset=aime25  # the same command resumes
run model=FOLDER_OR_HUB_ID dataset=./FILE.csv  # your own data
run model=qwen3-4b,limo-v2 dataset=aime25 until=best  # until the best is known""",
    ),
    "status": Verb(
        "cli.command:status",
        "show the progress of runs: trials, workers, cost, score so far; --watch follows it",
        keys="",
        composes=True,
        reads=True,
        flags={
            "--watch": "refresh until nothing is pending and no worker is left, or Ctrl-C",
            "--every": {"metavar": "SECONDS", "type": float, "help": "time between updates (30)"},
            "--check": "verify checksums of all files; exit 1 if any is damaged or stale",
        },
        examples="""\
status  # all runs in ./runs
status runs/aime25 --watch  # the runs of one dataset, refreshed""",
    ),
    "compare": Verb(
        "adaptive.gate:compare",
        "compare models: scores, ranks, and which differences are established",
        keys=f"{_MANY} ranking gate budget",
        settings="analysis:CompareConfig",
        examples="""\
compare dataset=aime25,aime24,hmmt25  # one table, with a mean
compare night1 night2  # two folders of runs of the same models: what changed
compare model=A,B gate=policy.yaml  # may B ship? exit 0 GO, 3 NO-GO, 4 open
compare model=A,B gate=policy.yaml settle=true  # sample until decided""",
    ),
    "report": Verb(
        "report.build:report",
        "write an HTML report to explore: leaderboard, plots, every attempt",
        keys=f"{_MANY} report",
        settings=_ANALYSIS,
        flags={"--open": "open it in the browser"},
        examples="report dataset=aime25 --open  # needs no server",
    ),
    "prepare": Verb(
        "prepare.stage:prepare",
        "read and check questions and gold answers, and render prompts",
        keys=_PROTOCOL,
        flags={"--dry-run": _DRY},
        examples="prepare model=qwen3-30b dataset=aime25 --dry-run  # first prompt and cost",
    ),
    "generate": Verb(
        "generate.stage:generate",
        "sample pending attempts, alone or beside other workers; Ctrl-C keeps finished ones",
        keys=f"{_PROTOCOL} budget track trust_parts",
        flags={"--dry-run": _DRY},
        examples="generate RUN_FOLDER trials=160 budget.gpu_hours=8",
    ),
    "grade": Verb(
        "cli.command:grade",
        "grade every boxed answer against its gold answer",
        keys="dataset.answer dataset.boxes dataset.pattern dataset.conventions grading",
        reads=True,
        flags={
            "--file": {"metavar": "IN", "help": "grade this JSON Lines file instead of a run"},
            "--out": {"metavar": "OUT", "help": "with --file: write graded lines here"},
            "--complete": "fail if attempts are pending and the budget is not spent",
        },
        examples="grade RUN_FOLDER grading.compat=math_verify  # why another score differs",
    ),
    "verify": Verb(
        "verify.stage:verify",
        "judge every attempt with a verifier: label probabilities, or written judgements",
        keys="verifier labels.file dataset.judge",
        reads=True,
        examples="verify RUN_FOLDER verifier.temperature=2  # calibrated again, without the model",
    ),
    "categorize": Verb(
        "rubrics.categories:categorize",
        "map every attempt into each rubric's categories; thresholds=FILE freezes quantiles",
        keys="rubric thresholds",
        reads=True,
        examples="categorize RUN_FOLDER rubric=exact-match,FILE.yaml",
    ),
    "score": Verb(
        "score.stage:score",
        "compute Bayes@N, avg@N, Pass@k with intervals; prior=RUN prior.trials=D adds a prior",
        keys="scoring prior labels.file",
        reads=True,
        examples="score RUN_FOLDER metrics=bayes,pass@8,g-pass@8:0.5",
    ),
    "label": Verb(
        "report.label:label",
        "make a page on which a person labels a sample of attempts, blind to model and judge",
        keys="labels.sample",
        composes=True,
        reads=True,
        flags={"--open": "open it in the browser"},
        examples="""\
label RUN_FOLDER  # 60 random attempts; then score RUN labels=NAME.jsonl
label RUN_FOLDER labels.sample=40  # 40 more, mostly where errors are likely""",
    ),
    "prefetch": Verb(
        "prepare.prefetch:prefetch",
        "download model, dataset and verifier for machines without network",
        keys="model dataset verifier prompt.shots_from",
        flags={"--check": "only compare datasets on the hub with their YAML files; dataset=all"},
        examples="""\
prefetch model=qwen3-30b dataset=aime25  # into HF_HOME
prefetch dataset=all --check  # what is gone or renamed on the hub""",
    ),
    "catalogue": Verb(
        "prepare.catalogue:show",
        "list models and datasets: answers, questions, license, protocol, confirmed or not",
        keys="",
        composes=True,
        examples="catalogue  # as a table; --json for programs",
    ),
    "submit": Verb(
        "adaptive.settle:submit",
        "queue runs on a cluster: an array of workers, then the other stages",
        keys="cluster",
        composes=True,
        flags={"--dry-run": "print the job scripts; write nothing"},
        examples="""\
submit model=qwen3-4b,limo-v2 dataset=aime24,aime25 cluster=h200-8
submit runs/aime25  # whatever is pending there; safe at any time""",
    ),
    "import": Verb(
        "records.importing:import_records",
        "convert records of other tools into run folders: lm-eval, inspect, CSV and more",
        settings="records:RecordsConfig",
        examples="import source=results/ kind=lm_eval  # sample logs (--log_samples)",
    ),
    "export": Verb(
        "records.exporting:export",
        "write runs in formats other tools read, or log them to a tracker",
        keys="to texts logprobs guard push project dataset model folders runs out scoring",
        settings="records:ExportConfig",
        examples="export runs/aime25/qwen3-30b to=csv  # a row per attempt; `import` reads it",
    ),
    "equivalence": Verb(
        "compare.equivalence:run",
        "test whether two ways of sampling a model are equivalent",
        settings="analysis:EquivalenceConfig",
        reads=True,
        examples="equivalence runs/aime25/qwen3-4b runs/aime25/qwen3-4b-int8",
    ),
    "study": Verb(
        "paper.reproduce:study",
        "run experiments of the paper, on your runs or in simulation",
        keys=f"{_MANY} study ranking",
        settings=_ANALYSIS,
        examples="study name=tau,convergence dataset=aime25 preset=quick  # from your runs",
    ),
    "reproduce": Verb(
        "paper.reproduce:reproduce",
        "rebuild all tables and figures of the paper, printed numbers beside ours",
        keys=f"{_MANY} study",
        settings=_ANALYSIS,
        examples="reproduce dataset=aime25,aime24,hmmt25,brumo25  # into paper/",
    ),
    "merge": Verb(
        "training.merge:run",
        "average the weights of the last checkpoints of a training run",
        settings="multirun:MergeConfig",
        examples="merge checkpoints=run last=4 out=merged  # the last four in a folder",
    ),
    "trajectory": Verb(
        "training.trajectory:run",
        "measure how steadily scores rise in training, by checkpoint and merged window",
        settings=f"multirun:TrajectoryConfig {RUN}",
        composes=True,
        flags={"--dry-run": "list the runs; write nothing"},
        examples="trajectory model=custom checkpoints=run merge=4,8 dataset=aime25 trials=16",
    ),
    "prr": Verb(
        "training.prr:run",
        "measure how often the order of two models reverses between two sets of runs",
        settings="multirun:ReversalConfig",
        examples="prr 'before=runs/aime25/*-base' 'after=runs/aime25/*-sft'",
    ),
    "settle": Verb(
        "adaptive.settle:run",
        "sample until it is decided which model is best",
        settings=f"multirun:SettleConfig {RUN}",
        composes=True,
        examples="""\
settle model=a,b,c dataset=aime25 until=best  # top:K, order, above:M, width:W
settle replay=runs/aime25 until=top:3  # what these runs would have needed""",
    ),
    "plan": Verb(
        "adaptive.forecast:plan",
        "simulate what a budget can decide before anything is spent",
        settings="multirun:PlanConfig",
        reads=True,
        examples="plan accuracies=[.74,.7,.66] questions=60 tokens=15000 budget.tokens=5e7",
    ),
}
