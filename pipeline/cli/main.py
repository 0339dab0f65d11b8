"""The command line: what a command does, and errors as one readable line."""

import argparse
import os
import textwrap
from pathlib import Path

from pipeline.base.console import count, fail, results
from pipeline.base.errors import DamagedData, Interrupted, UserError
from pipeline.cli.arguments import parser
from pipeline.cli.verbs import ANALYSES, CHECKPOINTS, VERBS, submit, trajectory
from pipeline.config import analysis, compose, imports, overrides, sweep
from pipeline.config.settings import RunConfig
from pipeline.store.runfolder import Run


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 done, 1 damaged data set aside or a failure that may not come again, 2
        an error of the user's, 85 saved and to be started again, 86 the engine hung, 128 + n
        stopped by signal n.
    """
    whole = parser()
    args, more = whole.parse_known_args(arguments)  # settings may stand on both sides of a flag
    if wrong := [argument for argument in more if argument.startswith("-")]:
        whole.error(f"unrecognized arguments: {' '.join(wrong)}")
    if more:
        args.settings += more
    if args.verb is None:
        whole.print_help()
        return 0
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported
    try:
        if args.verb in ANALYSES:
            of = imports if args.verb == "import" else analysis
            ANALYSES[args.verb](of.load(args.settings))
            return 0
        if args.verb == "trajectory":
            trajectory(args.settings, args.dry_run)
            return 0
        if args.verb in CHECKPOINTS:
            CHECKPOINTS[args.verb](args.settings)
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
    single = [s for s in settings if "=" in s]
    if not folders:
        return compose.load(single)
    if len(folders) > 1:
        raise UserError(f"{' '.join(folders)}: name one run folder, or KEY=VALUE settings")
    return compose.load_folder(overrides.check_folder(folders[0]), single)


def _status(args: argparse.Namespace, combinations: list[list[str]]) -> None:
    """status of one run, or of several: those in folders, or every combination of settings."""
    from pipeline.status import watch
    from pipeline.store import find

    if args.every is not None and (not args.watch or not 0.5 <= args.every <= 86400):
        raise UserError("--every: is for --watch, and takes seconds from 0.5 on")
    folders = [Path(setting).expanduser() for setting in args.settings]
    sources: list[Path | RunConfig] = [*folders]
    if not folders or not all(folder.is_dir() for folder in folders):
        sources = [_load(settings) for settings in combinations]
    first = sources[0]
    alone = len(sources) == 1 and (isinstance(first, RunConfig) or find.is_run(first))
    if args.watch:
        watch.watch(sources, args.every or watch.EVERY_S, args.json)
    elif args.json or not alone:
        watch.show(sources, args.json)
    else:
        VERBS["status"](Run(_load(args.settings)))


def _grade_as(run: Run, args: argparse.Namespace) -> None:
    """grade with its flags: a file instead of a run, or a longer review list."""
    if args.file is None and args.out is None:
        from pipeline.grade.stage import grade

        grade(run, ask_math_verify=args.review)
        return
    for flag, value in (("--file", args.file), ("--out", args.out)):
        if not value:
            raise UserError(f"{flag}: is missing; name both, as in --file in.jsonl --out out.jsonl")
    if args.review:
        raise UserError("--review: is for a run folder; leave it out with --file")
    from pipeline.grade.file import grade_file

    grade_file(run.cfg, Path(args.file), Path(args.out))


def _preview(run: Run) -> None:
    """--dry-run: the first prompt, what is owed, and what that may cost; writes nothing."""
    from pipeline.generate.stage import mean_tokens
    from pipeline.prepare import stage
    from pipeline.store import runfolder, shards
    from pipeline.store.columns import ATTEMPTS

    rows = stage.build(run)
    runfolder.check_same(run, stage.identity_of(run, rows))
    done = shards.keys(run.attempts, ATTEMPTS, shards.Damage())
    wanted = [(r["question_id"], t) for r in rows for t in range(run.cfg.sampling.trials)]
    owed = sum(key not in done for key in wanted)
    mean = mean_tokens(run.attempts)
    cost = stage.estimate(rows, owed, mean)
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
