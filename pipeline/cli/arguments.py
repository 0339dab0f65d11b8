"""What the command line takes, and its help: every verb with its flags, examples and settings."""

import argparse
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pipeline.cli.verbs import ANALYSES, CHECKPOINTS, EXAMPLES_OF, VERBS, submit
from pipeline.config import analysis, compose
from pipeline.config.merge import MergeConfig
from pipeline.config.prr import ReversalConfig
from pipeline.config.trajectory import TrajectoryConfig

EXAMPLES = """\
  python -m pipeline run
      the demo: a tiny embedded model, 30 questions, 80 trials each, on this machine
  python -m pipeline run model=qwen3-30b dataset=aime25
      a real evaluation on a GPU; the same command again continues where it stopped
  python -m pipeline run model=custom model.id=FOLDER_OR_HUB_ID dataset=jsonl dataset.path=FILE
      your model on your questions: one JSON object a line with id, problem and answer
  python -m pipeline run model=qwen3-4b,limo-v2 dataset=aime24,aime25
      every combination, one after the other; a failure does not stop the rest"""


_SUBMIT_HELP = """\
examples:
  python -m pipeline submit model=qwen3-4b,limo-v2 dataset=aime24,aime25 cluster=h200-8
      four runs, one array of workers; then grades, verdicts, scores and a report
  python -m pipeline submit model=qwen3-4b dataset=aime25 cluster.gpus=4 --dry-run
      show the scripts; nothing is written or submitted
  python -m pipeline submit runs/aime25
      what these runs owe, with the settings they have; safe at any time"""
_DRY = ("run", "prepare", "generate")
_KINDS = {"merge": MergeConfig, "trajectory": TrajectoryConfig, "prr": ReversalConfig}
_GRADE_HELP = """\
grade completions from elsewhere, without a run:
  python -m pipeline grade --file in.jsonl --out out.jsonl
      each line in is {"completion": ..., "gold": ...}, with "truncated": true or "finish_reason":
      "length" where it was cut off; the same line comes out with answer, outcome, layer and reason
  python -m pipeline grade --file in.jsonl --out out.jsonl model=gpt-oss-20b-high
      a model says where its reasoning ends (default </think>); dataset.conventions.KEY=VALUE says
      what counts as the same
see why a number differs from another harness's, and what to look at:
  python -m pipeline grade RUN_FOLDER grading.compat=math_verify
  python -m pipeline grade RUN_FOLDER --review

"""
_STATUS_HELP = """\
one run, or all runs in a folder; once, or as a display that follows the workers:
  python -m pipeline status RUN_FOLDER
  python -m pipeline status runs/aime25
  python -m pipeline status runs --watch
  python -m pipeline status runs --json
      for programs: a JSON object a run

"""


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    settings, of_analyses = _settings_help(), _keys_help(analysis.AnalysisConfig)
    whole = argparse.ArgumentParser(
        prog="python -m pipeline",
        description="Evaluate reasoning models: N trials of every question, graded and scored with"
        " credible intervals.",
        epilog=f"examples:\n{EXAMPLES}\n\n{settings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = whole.add_subparsers(dest="verb", metavar="VERB SETTING", title="verbs")
    for name, function in VERBS.items():
        more = {"grade": _GRADE_HELP, "status": _STATUS_HELP}.get(name, "")
        sub = _add(verbs, name, function, f"{more}examples:\n{EXAMPLES}\n\n{settings}")
        sub.add_argument(
            "settings",
            nargs="*",
            metavar="SETTING",
            help="GROUP=CHOICE or KEY=VALUE, or one existing run folder to take the settings from",
        )
        if name in _DRY:
            sub.add_argument(
                "--dry-run",
                action="store_true",
                help="show the first prompt, what is owed and what it may cost; write nothing",
            )
        if name == "status":
            sub.add_argument(
                "--watch",
                action="store_true",
                help="go on until nothing is owed and nobody works on it, or until Ctrl-C",
            )
            sub.add_argument(
                "--every",
                type=float,
                metavar="SECONDS",
                help="between two reports of --watch where there is no terminal (default 30)",
            )
            sub.add_argument(
                "--json", action="store_true", help="one JSON object a run, on one line"
            )
        if name == "grade":
            sub.add_argument("--file", metavar="IN", help="JSON Lines to grade instead of a run")
            sub.add_argument("--out", metavar="OUT", help="where its graded lines go")
            sub.add_argument(
                "--review",
                action="store_true",
                help="list disagreements with plain math_verify in the run's review.jsonl, too",
            )
    sub = _add(verbs, "submit", submit, f"{_SUBMIT_HELP}\n\n{settings}")
    sub.add_argument("settings", nargs="*", metavar="SETTING", help="as of run, or folders of runs")
    sub.add_argument("--dry-run", action="store_true", help="show the scripts; write nothing")
    for name, analyse in ANALYSES.items():
        sub = _add(verbs, name, analyse, f"{EXAMPLES_OF[name]}\n\n{of_analyses}")
        sub.add_argument("settings", nargs="*", metavar="SETTING", help="KEY=VALUE, or run folders")
    for name, work in CHECKPOINTS.items():
        epilog = f"{EXAMPLES_OF[name]}\n\n{_keys_help(_KINDS[name])}"
        if name == "trajectory":
            epilog += f"\n\nand those of every run:\n{settings}"
        sub = _add(verbs, name, work, epilog)
        sub.add_argument("settings", nargs="*", metavar="SETTING", help="KEY=VALUE")
        if name == "trajectory":
            sub.add_argument("--dry-run", action="store_true", help="show the runs; write nothing")
    return whole


def _add(
    verbs: Any, name: str, function: Callable[..., object], epilog: str
) -> argparse.ArgumentParser:
    """The parser of a verb, whose help is its function's docstring."""
    summary = (function.__doc__ or "").strip()
    added: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


def _keys_help(kind: type[Any]) -> str:
    """Every key of a settings dataclass with its default."""
    lines = [
        "settings, KEY=VALUE, with their defaults (a key that only one group has may be short):"
    ]
    for name, value in asdict(kind()).items():
        if name == "folders":
            continue
        group = value if isinstance(value, dict) and value else None
        shown = (
            [f"{name}={_default(value)}"]
            if group is None
            else [f"{name}.{key}={_default(part)}" for key, part in group.items()]
        )
        lines.append(
            textwrap.fill(
                "  ".join(shown),
                96,
                initial_indent="  ",
                subsequent_indent="      ",
                break_on_hyphens=False,
                break_long_words=False,
            )
        )
    return "\n".join(lines)


def _default(value: object) -> str:
    if isinstance(value, list | dict):
        return f"[{','.join(map(str, value))}]"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _settings_help() -> str:
    lines = ["settings, GROUP=CHOICE (each a file in configs/GROUP/):"]
    for group in compose.groups():
        names = ", ".join(compose.choices(group))
        lines.append(
            textwrap.fill(
                names,
                96,
                initial_indent=f"  {group}=",
                subsequent_indent="      ",
                break_on_hyphens=False,
            )
        )
    lines += [
        "settings, KEY=VALUE (any key of those files; an unknown key is an error):",
        "  sampling.trials=80  sampling.max_tokens=32768  sampling.temperature=0.6",
        "  engine.batch_size=256  engine.tensor_parallel_size=1  dataset.limit=5",
        "  tag=NAME      a run folder of its own for other settings of one model and data set",
        "  run_dir=DIR   the run folder (default runs/DATASET/MODEL[-TAG])",
    ]
    return "\n".join(lines)
