"""The command line: verbs, their help, and errors as one readable line."""

import argparse
import os
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline import analysis, config, sweep
from pipeline.console import count, fail, results
from pipeline.errors import DamagedData, Interrupted, UserError
from pipeline.runfolder import Run
from pipeline.schema import RunConfig
from pipeline.verbs import ANALYSES, ANALYSIS_HELP, VERBS, submit

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


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 done, 1 damaged data set aside, 2 an error of the user's, 128 + n
        stopped by signal n.
    """
    parser = _parser()
    args = parser.parse_args(arguments)
    if args.verb is None:
        parser.print_help()
        return 0
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported
    try:
        if args.verb in ANALYSES:
            ANALYSES[args.verb](analysis.load(args.settings))
            return 0
        if args.verb == "submit":
            submit(args.settings, args.dry_run)
            return 0
        combinations = sweep.expand(args.settings)
        if args.verb == "status":
            _status(args, combinations)
            return 0
        if len(combinations) > 1:
            return _several(args, combinations)
        run = Run(_load(args.settings))
        if getattr(args, "dry_run", False):
            _preview(run)
        elif args.verb == "grade":
            _grade_as(run, args)
        else:
            VERBS[args.verb](run)
    except (UserError, Interrupted) as error:
        fail(str(error))
        return error.exit_code
    except DamagedData as error:
        fail(str(error))
        return 1
    except OSError as error:
        fail(f"{error}; mend the disk (free space, permissions), then the same command continues")
        return 1
    except KeyboardInterrupt:
        fail("quit at once; finished attempts that were written are kept")
        return 130
    return 0


def _several(args: argparse.Namespace, combinations: list[list[str]]) -> int:
    """model=a,b and the like: one process after the other."""
    if vars(args).get("file") or vars(args).get("out"):
        raise UserError("--file and --out grade one file: give every setting one value")
    if len(combinations) > sweep.MOST:
        raise UserError(f"these settings make more than {sweep.MOST} runs; name fewer values")
    for settings in combinations:
        _load(settings)  # a misspelt last model is no surprise for tomorrow
    flags = [
        f"--{name.replace('_', '-')}" for name in ("dry_run", "review") if vars(args).get(name)
    ]
    return sweep.run_all(args.verb, combinations, flags)


def _load(settings: list[str]) -> RunConfig:
    folders = [s for s in settings if "=" not in s]
    overrides = [s for s in settings if "=" in s]
    if not folders:
        return config.load(overrides)
    if len(folders) > 1:
        raise UserError(f"{' '.join(folders)}: name one run folder, or KEY=VALUE settings")
    if not Path(folders[0]).is_dir():
        raise UserError(
            f"{folders[0]}: neither a run folder nor a setting; settings are KEY=VALUE, such as"
            " model=qwen3-30b"
        )
    return config.load_folder(Path(folders[0]), overrides)


def _status(args: argparse.Namespace, combinations: list[list[str]]) -> None:
    """status of one run, or of several: those in folders, or every combination of settings."""
    from pipeline.cohorts import whichruns
    from pipeline.status import watch

    if args.every is not None and (not args.watch or not 0.5 <= args.every <= 86400):
        raise UserError("--every: is for --watch, and takes seconds from 0.5 on")
    folders = [Path(setting).expanduser() for setting in args.settings]
    sources: list[Path | RunConfig] = [*folders]
    if not folders or not all(folder.is_dir() for folder in folders):
        sources = [_load(settings) for settings in combinations]
    first = sources[0]
    alone = len(sources) == 1 and (isinstance(first, RunConfig) or whichruns.is_run(first))
    if args.watch:
        watch.watch(sources, args.every or watch.EVERY_S, args.json)
    elif args.json or not alone:
        watch.show(sources, args.json)
    else:
        VERBS["status"](Run(_load(args.settings)))


def _grade_as(run: Run, args: argparse.Namespace) -> None:
    """grade with its flags: a file instead of a run, or a longer review list."""
    if args.file is None and args.out is None:
        from pipeline.grade import grade

        grade(run, ask_math_verify=args.review)
        return
    for flag, value in (("--file", args.file), ("--out", args.out)):
        if not value:
            raise UserError(f"{flag}: is missing; name both, as in --file in.jsonl --out out.jsonl")
    if args.review:
        raise UserError("--review: is for a run folder; leave it out with --file")
    from pipeline.gradefile import grade_file

    grade_file(run.cfg, Path(args.file), Path(args.out))


def _preview(run: Run) -> None:
    """--dry-run: the first prompt, what is owed, and what that may cost; writes nothing."""
    from pipeline import prepare, runfolder, shards
    from pipeline.generate.stage import mean_tokens
    from pipeline.tables import ATTEMPTS

    rows = prepare.build(run)
    runfolder.check_same(run, prepare.identity_of(run, rows))
    done = shards.keys(run.attempts, ATTEMPTS, shards.Damage())
    wanted = [(r["question_id"], t) for r in rows for t in range(run.cfg.sampling.trials)]
    owed = sum(key not in done for key in wanted)
    mean = mean_tokens(run.attempts)
    cost = prepare.estimate(rows, owed, mean)
    basis = f"mean of {len(done)} attempts so far" if mean else "upper limit, sampling.max_tokens"
    results.print(f"first prompt ({rows[0]['question_id']}, gold answer {rows[0]['gold']}):")
    results.print(textwrap.indent(rows[0]["prompt"], "  | ", lambda line: True), markup=False)
    longest = max(len(row["prompt_token_ids"]) for row in rows)
    results.print(f"questions: {len(rows)}, prompts of up to {longest} tokens")
    results.print(f"owed: {owed} of {len(wanted)} attempts, into {run.path}", markup=False)
    results.print(
        f"estimate: {count(cost['tokens'])} tokens ({basis}), {count(cost['bytes'])}B on disk"
        " before compression"
    )


def _parser() -> argparse.ArgumentParser:
    settings, of_analyses = _settings_help(), _analysis_help()
    parser = argparse.ArgumentParser(
        prog="python -m pipeline",
        description="Evaluate reasoning models: N trials of every question, graded and scored with"
        " credible intervals.",
        epilog=f"examples:\n{EXAMPLES}\n\n{settings}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB SETTING", title="verbs")
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
        sub = _add(verbs, name, analyse, f"{ANALYSIS_HELP[name]}\n\n{of_analyses}")
        sub.add_argument("settings", nargs="*", metavar="SETTING", help="KEY=VALUE, or run folders")
    return parser


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


def _analysis_help() -> str:
    """Every key of the verbs that look at many runs, with its default."""
    lines = [
        "settings, KEY=VALUE, with their defaults (a key that only one group has may be short):"
    ]
    for name, value in asdict(analysis.AnalysisConfig()).items():
        if name == "folders":
            continue
        group = value if isinstance(value, dict) else None
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
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def _settings_help() -> str:
    lines = ["settings, GROUP=CHOICE (each a file in configs/GROUP/):"]
    for group in config.groups():
        names = ", ".join(config.choices(group))
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
