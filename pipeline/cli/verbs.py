"""What the command line can do: one function a verb, whose docstring is its help.

Verbs of `VERBS` work on one run, those of `ANALYSES` on many, those of `CHECKPOINTS` on checkpoints
of a training. Modules are imported when they are needed: `--help` should not wait for an engine.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.base.console import note
from pipeline.base.errors import DamagedData, UserError
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.imports import RecordsConfig
from pipeline.store.runfolder import Run


def _run(run: Run) -> None:
    """every stage of `stages`, in order, each doing only what is owed"""
    prior = run.cfg.prior.run
    if prior is not None and not Path(prior).expanduser().is_dir():  # not after hours of sampling
        raise UserError(f"prior={prior}: no such folder; name the folder of an earlier run")
    try:
        _stages(run)
    except DamagedData as error:
        note(f"{error} - doing so now")
        _stages(run)


def _stages(run: Run) -> None:
    for stage in run.cfg.stages:
        if VERBS[stage](Run(run.cfg)) is False:
            note(f"the last of them does what comes after {stage}; or give the same command later")
            return


def _prepare(run: Run) -> None:
    """questions and gold answers become checked, rendered prompts"""
    from pipeline.prepare.stage import prepare

    prepare(run)


def _generate(run: Run) -> bool:
    """sample every attempt that is owed, beside other workers too; Ctrl-C keeps what is done"""
    from pipeline.generate.stage import generate

    return generate(run)


def _grade(run: Run) -> None:
    """compare every boxed answer with its gold answer"""
    from pipeline.grade.stage import grade

    grade(run)


def _verify(run: Run) -> None:
    """a verifier's calibrated label probabilities for every attempt; verifier=none: left out"""
    from pipeline.verify.stage import verify

    verify(run)


def _signals(run: Run) -> None:
    """nine base signals of every attempt: box, correctness, length, bits per token, verifier"""
    from pipeline.rubrics.signals import signals

    signals(run)


def _categorize(run: Run) -> None:
    """map every attempt into each rubric; rubric=NAME or FILE.yaml, thresholds=FILE freezes"""
    from pipeline.rubrics.categorize import categorize

    categorize(run)


def _score(run: Run) -> None:
    """Bayes@N, avg@N and Pass@k with intervals; prior=RUN prior.trials=D adds a prior"""
    from pipeline.score.stage import score

    score(run)


def _status(run: Run) -> None:
    """where runs stand: every trial, workers, cost, score so far; --watch follows the workers"""
    from pipeline.status.page import status

    status(run)


def _prefetch(run: Run) -> None:
    """download model, data set and verifier for machines without a network"""
    from pipeline.prepare.prefetch import prefetch

    prefetch(run)


def _compare(cfg: AnalysisConfig) -> None:
    """models side by side: scores, ranks with honest ties, which orders are settled"""
    from pipeline.cohorts.compare import compare

    compare(cfg)


def _import(cfg: RecordsConfig) -> None:
    """make run folders of other people's records: scorio-trace, NPZ, lm-evaluation-harness, CSV"""
    from pipeline.imports.importing import import_records

    import_records(cfg)


def _study(cfg: AnalysisConfig) -> None:
    """one or several of the paper's experiments, from your runs or from simulation"""
    from pipeline.research.studies.reproduce import study

    study(cfg)


def _reproduce(cfg: AnalysisConfig) -> None:
    """all tables and figures of the paper, each printed number beside ours"""
    from pipeline.research.studies.reproduce import reproduce

    reproduce(cfg)


def _report(cfg: AnalysisConfig) -> None:
    """one HTML file to explore: leaderboard, plots, every attempt"""
    from pipeline.report.build import report

    report(cfg)


def submit(settings: list[str], dry_run: bool) -> None:
    """queue all of it on a Slurm cluster: one array over models and data sets, then the rest"""
    from pipeline.cluster import submit

    submit.submit(settings, dry_run)


def _merge(settings: list[str]) -> None:
    """the mean of the weights of a training's last checkpoints, as a checkpoint of its own"""
    from pipeline.research.checkpoints import merging

    merging.run(settings)


def trajectory(settings: list[str], dry_run: bool = False) -> None:
    """how steadily scores follow a training: every checkpoint, merged window and protocol"""
    from pipeline.research.trajectory import verb

    verb.run(settings, dry_run)


def _prr(settings: list[str]) -> None:
    """how often the order of two models reverses from one set of runs to another, as by tuning"""
    from pipeline.research.prr import verb

    verb.run(settings)


# What returns False has left work to other processes: what comes after must wait for them.
VERBS: dict[str, Callable[[Run], bool | None]] = {
    "run": _run,
    "prepare": _prepare,
    "generate": _generate,
    "grade": _grade,
    "verify": _verify,
    "signals": _signals,
    "categorize": _categorize,
    "score": _score,
    "status": _status,
    "prefetch": _prefetch,
}
ANALYSES: dict[str, Callable[[Any], None]] = {
    "compare": _compare,
    "report": _report,
    "import": _import,
    "study": _study,
    "reproduce": _reproduce,
}
CHECKPOINTS: dict[str, Callable[[list[str]], None]] = {
    "merge": _merge,
    "trajectory": trajectory,
    "prr": _prr,
}
EXAMPLES_OF = {
    "compare": """\
examples:
  python -m pipeline compare dataset=aime25
      all runs in runs/aime25; tables also as CSV, JSON, LaTeX and Markdown in runs/aime25/_compare
  python -m pipeline compare dataset=aime25,aime24,hmmt25,brumo25
      the form of the paper's Table 2, and a pooled column
  python -m pipeline compare runs/aime25/qwen3-30b runs/aime25/limo-v2 rule=overlap
      two runs; ranks are shared where intervals overlap""",
    "report": """\
examples:
  python -m pipeline report dataset=aime25
      runs/_report/index.html; open it in a browser, no server and no network needed
  python -m pipeline report dataset=aime25 report.texts=false out=~/aime25
      numbers and plots only""",
    "import": """\
examples:
  python -m pipeline import source=harimo/scorio-trace revision=COMMIT
      the authors' 192,000 records, one run folder a model and task
  python -m pipeline import source=results/ kind=lm_eval
      sample logs of lm-evaluation-harness (--log_samples)
  python -m pipeline import source=labels.csv dataset=summaries category_names=[bad,fair,good]
      anybody's categories; then `compare`, `score`, `report`""",
    "study": """\
examples:
  python -m pipeline study name=coins,separation,priors
      what the paper simulated
  python -m pipeline study name=tau,convergence dataset=aime25 preset=quick
      from your runs, with few replicates (configs/study/quick.yaml)""",
    "reproduce": """\
examples:
  python -m pipeline reproduce dataset=aime25,aime24,hmmt25,brumo25
      all studies at the paper's replicate counts, into paper/
  python -m pipeline reproduce preset=quick out=draft""",
    "merge": """\
examples:
  python -m pipeline merge checkpoints=run/step-3700,run/step-3800,run/step-3900 out=merged
      the mean of three, in the dtype and the shards of the last
  python -m pipeline merge checkpoints=run last=4 out=merged
      of all checkpoints in a folder the last four
checkpoints are local Hugging Face folders with safetensors, folders that hold them, or globs in
quotes. `out` gets weights, what the newest has beside them, and merge.yaml with the hashes of all
sources. Nothing is overwritten, and `out` appears whole or not at all.""",
    "trajectory": """\
examples:
  python -m pipeline trajectory model=demo checkpoints=demo/models merge=4 dataset=demo
      the demo's eighteen checkpoints, and the mean of every four in a row
  python -m pipeline trajectory model=custom checkpoints=run merge=4,8,12 dataset=aime24,aime25
      several windows and data sets; the same command again continues where it stopped
  python -m pipeline trajectory model=custom checkpoints.math=a checkpoints.code=b dataset=aime25
      two trainings side by side: where their curves cross, and which one is ahead
  python -m pipeline trajectory model=custom checkpoints=run merge=4 dataset=aime25 --dry-run
      which runs that takes; any setting of `run` may follow, such as sampling.trials=16
merge=4,8      windows of so many checkpoints, each evaluated like a checkpoint; [] for none
merge.keep     false: delete merged weights when their runs are finished
greedy         one greedy attempt of every question, too
metrics        such as pass@8,maj@8; avg and bayes are always there
replicates     of the bootstrap over trials; seed: its seed; confidence: of all intervals
prices.*       per million tokens: a prompt the first time, the same prompt again, output""",
    "prr": """\
examples:
  python -m pipeline prr 'before=runs/aime25/*-base' 'after=runs/aime25/*-sft'
      runs are paired in the order of their names; the table of ranks shows the pairs
  python -m pipeline prr before=runs/d/a,runs/d/b,runs/d/c after=runs/d/x,runs/d/y,runs/d/z out=sft
      or in the order given
metrics        such as pass@8,maj@8; avg and bayes are always there
draws, seed    posterior draws behind the intervals, of this confidence
greedy scores come from runs named like each run with "-greedy", where all of them have one""",
}
