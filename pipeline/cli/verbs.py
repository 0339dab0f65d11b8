"""What the command line can do: a table of verbs, which help, completion and dispatch all read.

Functions and settings are named and not imported: `--help` should not wait for an engine.
"""

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

RUN = "bayes_at_n.pipeline.config.settings:RunConfig"
_ANALYSIS = "bayes_at_n.pipeline.config.analysis:AnalysisConfig"
_PROTOCOL = "model dataset prompt sampling engine tag run_dir"  # which attempts, and where they go
_MANY = "dataset model folders runs out scoring prior rubric thresholds"


def _flag(name: str, summary: str, **value: Any) -> tuple[str, dict[str, Any]]:
    """An option as argparse takes it: a switch, where nothing is said of a value."""
    return name, {"help": summary, **(value or {"action": "store_true"})}


@dataclass(frozen=True)
class Verb:
    """One command."""

    call: str  # MODULE:FUNCTION
    summary: str
    keys: str | None = None  # groups and keys that concern it, for its help; None: all of them
    settings: str = RUN  # MODULE:CLASS whose keys these are
    # MODULE:FUNCTION that makes what the function gets: if not its settings, or each run.
    load: str | None = None
    flags: tuple[tuple[str, dict[str, Any]], ...] = ()  # the function's keyword arguments
    words: tuple[str, ...] = ()  # the same, as a word among settings
    examples: str = ""  # where a line begins with $, that is the program's name
    runs_too: bool = False  # takes settings of `run` beside its own
    folders: bool = True  # takes run folders where settings may stand

    @property
    def takes(self) -> str:
        """What stands behind its name."""
        one = self.settings == RUN and self.load is None
        folders = "one run folder to take the settings from" if one else "folders of runs"
        groups = "GROUP=CHOICE or " if self.settings == RUN else ""
        words = "".join(f", or {word}" for word in self.words)
        return f"{groups}KEY=VALUE" + f", or {folders}" * self.folders + words

    @property
    def function(self) -> Callable[..., Any]:
        """The function, imported now."""
        function: Callable[..., Any] = pkgutil.resolve_name(self.call)
        return function


GONE = {"signals": "categorize"}  # verbs of before, and what does their work
EXAMPLES = """\
  $ run
      the demo: a tiny embedded model, 30 questions, 80 trials each, on this machine
  $ run model=qwen3-30b dataset=aime25
      a real evaluation on a GPU; the same command again continues where it stopped
  $ run model=custom model.id=FOLDER_OR_HUB_ID dataset=jsonl dataset.path=FILE
      your model on your questions: JSON Lines, CSV or Parquet with problem and answer
  $ run model=qwen3-4b,limo-v2 dataset=aime24,aime25
      every combination, one after the other; a failure does not stop the rest"""
_PREVIEW = _flag("--dry-run", "show the first prompt, what is owed and its cost; write nothing")
VERBS = {
    "run": Verb(
        "bayes_at_n.pipeline.cli.stages:run_stages",
        "every stage of `stages`, in order, each doing only what is owed",
        flags=(_PREVIEW,),
        examples=f"""\
{EXAMPLES}
  $ run model=qwen3-30b dataset=aime25 track=wandb
      show it in Weights & Biases (or mlflow, trackio) while it is made
sample until the result is settled, then run the other stages (settings of `settle`):
  $ run model=qwen3-30b dataset=aime25 until=width:0.02
      block by block until the interval is narrow enough
  $ run model=qwen3-4b,limo-v2 dataset=aime25 until=best
      until it is settled which one is better""",
    ),
    "prepare": Verb(
        "bayes_at_n.pipeline.prepare.stage:prepare",
        "read and check questions and gold answers, and render the prompts",
        keys=_PROTOCOL,
        flags=(_PREVIEW,),
        examples="""\
  $ prepare model=qwen3-30b dataset=aime25 --dry-run
      the first prompt as the model sees it, what is owed and what that costs
  $ prepare runs/aime25/qwen3-30b sampling.max_tokens=65536
      raise the limit: truncated attempts will be continued""",
    ),
    "generate": Verb(
        "bayes_at_n.pipeline.generate.stage:generate",
        "sample every attempt that is owed, alone or with other workers; Ctrl-C keeps what is done",
        keys=f"{_PROTOCOL} budget track trust_parts",
        flags=(_PREVIEW,),
        examples="""\
  $ generate RUN_FOLDER
      what is owed; run it on several nodes to share the work
  $ generate RUN_FOLDER sampling.trials=160 budget.gpu_hours=8
      more trials, 160 of every question, within eight GPU-hours""",
    ),
    "grade": Verb(
        "bayes_at_n.pipeline.cli.runs:grade",
        "compare every boxed answer with its gold answer",
        keys="dataset.answer dataset.boxes dataset.pattern dataset.conventions grading",
        flags=(
            _flag("--file", "JSON Lines to grade instead of a run", metavar="IN"),
            _flag("--out", "where its graded lines go", metavar="OUT"),
            _flag("--complete", "fail if attempts are owed and the budget is not spent"),
            _flag("--review", "also list disagreements with plain math_verify in review.jsonl"),
        ),
        examples="""\
grade completions from elsewhere, without a run:
  $ grade --file in.jsonl --out out.jsonl
      each line in is {"completion": ..., "gold": ...}, with "truncated": true or "finish_reason":
      "length" (or "repetition") where it was cut off; the same line comes out with answer, outcome,
      layer and reason
  $ grade --file in.jsonl --out out.jsonl model=gpt-oss-20b-high
      the model sets where reasoning ends (default </think>); dataset.conventions.KEY=VALUE sets
      what counts as equal
see why a score differs from another harness's:
  $ grade RUN_FOLDER grading.compat=math_verify
  $ grade RUN_FOLDER --review""",
    ),
    "verify": Verb(
        "bayes_at_n.pipeline.verify.stage:verify",
        "a verifier's calibrated label probabilities for every attempt; verifier=none: left out",
        keys="verifier labels dataset.judge",
        examples="""\
correct the score with labels by people:
  $ verify RUN_FOLDER labels.sample=60
      write 60 random attempts for labelling to labels.jsonl
  $ verify RUN_FOLDER labels=RUN_FOLDER/labels.jsonl
      how often grader and verifier err, and the score without their errors""",
    ),
    "categorize": Verb(
        "bayes_at_n.pipeline.rubrics.categorize:categorize",
        "map every attempt into each rubric; rubric=NAME or FILE.yaml, thresholds=FILE freezes",
        keys="rubric thresholds",
        examples="""\
  $ categorize RUN_FOLDER rubric=exact-match,format-aware
  $ categorize RUN_FOLDER rubric=FILE.yaml thresholds=OTHER_RUN_FOLDER/thresholds.json""",
    ),
    "score": Verb(
        "bayes_at_n.pipeline.score.stage:score",
        "Bayes@N, avg@N and Pass@k with intervals; prior=RUN prior.trials=D adds a prior",
        keys="scoring prior",
        words=("rubrics",),
        examples="""\
score a run, in different ways:
  $ score RUN_FOLDER
      Bayes@N, avg@N and Pass@k with intervals
  $ score RUN_FOLDER rubrics
      every rubric, with the shares of its categories
  $ score RUN_FOLDER sampling.trials=40
      only the first 40 trials of every question
  $ score RUN_FOLDER scoring.metrics=[bayes,pass@8,g-pass@8:0.5]
      these metrics; all names are below
  $ score RUN_FOLDER prior=OTHER_RUN_FOLDER prior.trials=4
      the first four trials of an earlier run of the same questions as the prior
  $ score RUN_FOLDER caps=2048,4096,8192
      what the run would have scored under smaller max_tokens; caps=auto: powers of two
  $ score RUN_FOLDER plots=true
      with pictures: shares of every rubric's categories by question, the curve of caps
  $ score RUN_FOLDER forecast=65536
      a forecast of the score at a larger max_tokens, with its interval""",
    ),
    "status": Verb(
        "bayes_at_n.pipeline.cli.runs:status",
        "where runs stand: every trial, workers, cost, score so far; --watch follows the workers",
        keys="",
        load="builtins:list",
        flags=(
            _flag("--watch", "go on until nothing is owed and no worker is left, or until Ctrl-C"),
            _flag(
                "--every",
                "between two reports of --watch without a terminal (default 30)",
                metavar="SECONDS",
                type=float,
            ),
            _flag("--check", "read everything and name damaged files; exit 1 if there are any"),
        ),
        examples="""\
one run, or all runs in a folder; once, or as a display that follows the workers:
  $ status RUN_FOLDER
  $ status runs/aime25
  $ status runs --watch
  $ status runs/aime25/_settle/best --watch
      a race of `settle`: its leaderboard and open models, above its runs
  $ status runs --json
      for programs: a JSON object a run
  $ status runs --check
      check every file: checksums of all columns, digests of texts""",
    ),
    "prefetch": Verb(
        "bayes_at_n.pipeline.prepare.prefetch:prefetch",
        "download model, data set and verifier for machines without a network",
        keys="model dataset verifier prompt.shots_from",
        examples="""\
  $ prefetch model=qwen3-30b dataset=aime25
      the model, the questions and the verifier with its prompt, into HF_HOME""",
    ),
    "submit": Verb(
        "bayes_at_n.pipeline.cli.runs:submit",
        "queue runs on a Slurm cluster: one array over models and data sets, then the other stages",
        keys="cluster",
        runs_too=True,
        load="builtins:list",
        flags=(_flag("--dry-run", "show the scripts; write nothing"),),
        examples="""\
  $ submit model=qwen3-4b,limo-v2 dataset=aime24,aime25 cluster=h200-8
      four runs, one array of workers; then grades, verdicts, scores and a report
  $ submit model=qwen3-4b dataset=aime25 cluster.gpus=4 --dry-run
      show the scripts; nothing is written or submitted
  $ submit model=a,b,c dataset=aime25 until=best cluster=h200-8
      sample until it is settled, as `settle`; then the same jobs
  $ submit runs/aime25
      what these runs owe, with their own settings; safe at any time""",
    ),
    "compare": Verb(
        "bayes_at_n.pipeline.cohorts.compare:compare",
        "compare models: scores, ranks with ties, which orders are settled",
        keys=f"{_MANY} ranking",
        settings=_ANALYSIS,
        examples="""\
  $ compare dataset=aime25
      all runs in runs/aime25; tables also as CSV, JSON, LaTeX and Markdown in runs/aime25/_compare
  $ compare dataset=aime25,aime24,hmmt25,brumo25
      the form of the paper's Table 2, and a pooled column
  $ compare runs/aime25/qwen3-30b runs/aime25/limo-v2 rule=overlap
      two runs; ranks are shared where intervals overlap
  $ compare dataset=aime25 ranking=bradley_terry,rasch,borda ranking.replicates=200
      ranks by methods of the library scorio, too, with how often trials drawn again change them""",
    ),
    "report": Verb(
        "bayes_at_n.pipeline.report.build:report",
        "one HTML file to explore: leaderboard, plots, every attempt",
        keys=f"{_MANY} report",
        settings=_ANALYSIS,
        flags=(_flag("--open", "open it in the browser"),),
        examples="""\
  $ report dataset=aime25 --open
      runs/_report/index.html in the browser; no server and no network needed
  $ report dataset=aime25 single=true
      one file to mail, report.html, with as many texts as fit into 10 MB
  $ report dataset=aime25 report.texts=false out=~/aime25
      numbers and plots only""",
    ),
    "import": Verb(
        "bayes_at_n.pipeline.imports.importing:import_records",
        "make run folders of other tools' records: scorio-trace, lm_eval, inspect, CSV and more",
        settings="bayes_at_n.pipeline.config.records:RecordsConfig",
        folders=False,
        examples="""\
  $ import source=harimo/scorio-trace/meta revision=COMMIT
      the authors' 192,000 records, one run folder a model and task; FOLDER of a bucket likewise
  $ import source=results/ kind=lm_eval
      sample logs of lm-evaluation-harness (--log_samples)
  $ import source=logs/ metric=match
      logs of inspect_ai, .eval and JSON: an epoch is a trial
  $ import source=MathArena/aime_2025_outputs dataset=aime25
      what MathArena publishes, one run folder a model
  $ import source=eval-results/ model=mine
      output-rs*.jsonl of NeMo-Skills: a random seed is a trial
  $ import source=batch/ dataset=aime25 questions=aime25.jsonl
      requests and answers of OpenAI's interface, as of `vllm run-batch`: a choice is a trial
  $ import source=/mnt/other/runs
      run folders of this program from another machine, checked; trials that are new are added
  $ import source=labels.csv dataset=summaries category_names=[bad,fair,good]
      labels in categories; then `compare`, `score`, `report`""",
    ),
    "export": Verb(
        "bayes_at_n.pipeline.exports.verb:export",
        "write runs in formats that others read: to=csv, parquet, hf, eee, ..., or in a tracker",
        keys="to texts logprobs push project dataset model folders runs out scoring",
        settings="bayes_at_n.pipeline.config.records:ExportConfig",
        examples="""\
  $ export runs/aime25/qwen3-30b to=csv
      one row an attempt; `import` takes it back
  $ export dataset=aime25 to=parquet logprobs=true out=FOLDER
      all runs in runs/aime25, with token ids and log-probs (logprobs= is of parquet and hub)
  $ export dataset=aime25,hmmt25 to=hub push=OWNER/NAME
      a data set with a card: texts, grades, leaderboard (scoring.* and push= are of hub alone)
  $ export runs/gpqa/qwen3-30b to=hf
      scores with intervals for the model's page on the hub
  $ export dataset=aime25 to=eee
      Every Eval Ever: scores with intervals, attempts; other logs: to=inspect, to=lm_eval
  $ export runs/aime25/qwen3-30b to=wandb project=NAME
      settings, scores with intervals, avg@n by trials; mlflow and trackio, too, take project=""",
    ),
    "study": Verb(
        "bayes_at_n.pipeline.research.studies.reproduce:study",
        "one or several of the paper's experiments, from your runs or from simulation",
        keys=f"{_MANY} study ranking",
        settings=_ANALYSIS,
        examples="""\
  $ study name=coins,separation,priors
      what the paper simulated
  $ study name=tau,convergence dataset=aime25 preset=quick
      from your runs, with few replicates (configs/study/quick.yaml)
  $ study name=rankings ranking=borda,bradley_terry_map dataset=aime25
      other methods against the gold ranking; without ranking= all of scorio's""",
    ),
    "reproduce": Verb(
        "bayes_at_n.pipeline.research.studies.reproduce:reproduce",
        "all tables and figures of the paper, each printed number beside ours",
        keys=f"{_MANY} study",
        settings=_ANALYSIS,
        examples="""\
  $ reproduce dataset=aime25,aime24,hmmt25,brumo25
      all studies at the paper's replicate counts, into paper/
  $ reproduce preset=quick out=draft""",
    ),
    "merge": Verb(
        "bayes_at_n.pipeline.research.checkpoints.merging:run",
        "the mean of the weights of a training's last checkpoints, as a checkpoint of its own",
        settings="bayes_at_n.pipeline.config.trajectory:MergeConfig",
        folders=False,
        examples="""\
  $ merge checkpoints=run/step-3700,run/step-3800,run/step-3900 out=merged
      the mean of three, in the dtype and the shards of the last
  $ merge checkpoints=run last=4 out=merged
      of all checkpoints in a folder the last four
checkpoints are local Hugging Face folders with safetensors, folders that hold them, or globs in
quotes. `out` gets weights, what the newest has beside them, and merge.yaml with the hashes of all
sources. Nothing is overwritten, and `out` appears whole or not at all.""",
    ),
    "trajectory": Verb(
        "bayes_at_n.pipeline.research.trajectory.verb:run",
        "how steadily scores rise during training: every checkpoint, merged window and protocol",
        settings="bayes_at_n.pipeline.config.trajectory:TrajectoryConfig",
        runs_too=True,
        folders=False,
        load="bayes_at_n.pipeline.config.trajectory:load",
        flags=(_flag("--dry-run", "show the runs; write nothing"),),
        examples="""\
  $ trajectory model=demo checkpoints=demo/models merge=4 dataset=demo
      the demo's eighteen checkpoints, and the mean of every four in a row
  $ trajectory model=custom checkpoints=run merge=4,8,12 dataset=aime24,aime25
      several windows and data sets; the same command again continues where it stopped
  $ trajectory model=custom checkpoints.math=a checkpoints.code=b dataset=aime25
      two trainings side by side: where their curves cross, and which one is ahead
  $ trajectory model=custom checkpoints=run merge=4 dataset=aime25 --dry-run
      which runs that takes; any setting of `run` may follow, such as sampling.trials=16
merge=4,8      windows of this many checkpoints, each evaluated like a checkpoint; [] for none
merge.keep     false: delete merged weights when their runs are finished
greedy         also one greedy attempt of every question
metrics        such as pass@8,maj@8; avg and bayes are always included
replicates     of the bootstrap over trials; seed: its seed; confidence: of all intervals
prices.*       per million tokens: a prompt the first time, the same prompt again, output""",
    ),
    "prr": Verb(
        "bayes_at_n.pipeline.research.prr.verb:run",
        "how often the order of two models reverses between two sets of runs, such as by tuning",
        settings="bayes_at_n.pipeline.config.trajectory:ReversalConfig",
        folders=False,
        examples="""\
  $ prr 'before=runs/aime25/*-base' 'after=runs/aime25/*-sft'
      runs are paired in the order of their names; the table of ranks shows the pairs
  $ prr before=runs/d/a,runs/d/b,runs/d/c after=runs/d/x,runs/d/y,runs/d/z out=sft
      or in the order given
metrics        such as pass@8,maj@8; avg and bayes are always included
draws, seed    posterior draws for the intervals
greedy scores come from runs named like each run with "-greedy", if all of them have one""",
    ),
    "settle": Verb(
        "bayes_at_n.pipeline.settle.verb:run",
        "sample until it is settled which model is best, and no longer",
        settings="bayes_at_n.pipeline.config.settle:SettleConfig",
        runs_too=True,
        load="bayes_at_n.pipeline.config.settle:load",
        flags=(_flag("--dry-run", "simulate what it decides and takes; write nothing"),),
        examples="""\
  $ settle model=qwen3-30b,qwen3-4b,limo-v2 dataset=aime25 until=best
      rounds of eight trials; a model that can no longer be the best is not sampled further
  $ settle model=a,b dataset=aime25,hmmt25 until=order confidence=0.99
      the mean over all questions of both data sets
  $ settle model=a,b,c dataset=aime25 assume=[0.7,0.66,0.5] --dry-run
      what to expect of such models, or of their runs so far; nothing is written
  $ settle replay=runs/aime25 until=top:3 --json
      what complete runs would have taken, trial by trial; nothing is written
until          best, top:K, order, above:MODEL, or width:W of each model's interval
margin         points of accuracy that make no difference: models closer than that are tied
method         anytime: the error holds however often one looks; looks: planned looks, asymptotic
block          trials between two looks (8; of a replay 1); the most trials are sampling.trials
permutations   of a replay: number of random orders of the trials to try as well
budget         of all runs: .tokens, .gpu_hours, .money or .until; no block beyond it is begun
assume         of --dry-run: accuracies, or assume.folders=RUNS; also .tokens of an attempt, .speed
out            a folder for looks and results (default _settle/UNTIL beside the runs)""",
    ),
    "plan": Verb(
        "bayes_at_n.pipeline.settle.preview:plan",
        "simulate what a budget can settle, and its tokens and GPU-hours, before anything is spent",
        settings="bayes_at_n.pipeline.config.settle:PlanConfig",
        examples="""\
  $ plan accuracies=[.74,.7,.66,.61] questions=60 tokens=15000 speed=2500 \\
      until=order budget.gpu_hours=40
      models like these on 60 questions, 15,000 tokens an attempt, 2,500 tokens a second on a GPU
  $ plan runs/aime25 until=best budget.tokens=5e7
      models as their graded runs show them
tokens, speed  one value, or one a model; of runs they are measured, as is their price
budget.*       one of gpu_hours, tokens and money; without it, all of `trials` may be used""",
    ),
    "equivalence": Verb(
        "bayes_at_n.pipeline.cohorts.equivalence:run",
        "test whether two ways of sampling a model are equivalent: engine, version, precision",
        settings="bayes_at_n.pipeline.config.analysis:EquivalenceConfig",
        examples="""\
  $ equivalence runs/aime25/qwen3-4b runs/aime25/qwen3-4b-int8
      equivalent, different or undecided within a point of accuracy; the second run's engine
      also gives the log-probs of the first one's tokens
  $ equivalence runs/demo/a runs/demo/b margin=2
      within two points; if undecided, it says how many trials would decide
  $ equivalence runs/demo/a runs/demo/b replay=0
      without an engine: accuracy and stored tokens only
A and B       two run folders of the same questions (by hash)
margin        points of accuracy that make no difference to you; choose it before you look
replay        number of A's attempts given to B's engine (B's config.yaml); it needs B's model
out           a folder for tables, JSON and picture (default _equivalence/A-B beside A)""",
    ),
}
