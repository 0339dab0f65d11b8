"""What the command line takes, and its help: every verb with its flags, examples and settings."""

import argparse
import textwrap
from dataclasses import asdict
from typing import Any

from pipeline.cli.verbs import EXAMPLES, VERBS, Verb
from pipeline.config import compose
from pipeline.config.settings import RunConfig
from scoring.metrics.table import FAMILIES


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    whole = argparse.ArgumentParser(
        prog="python -m pipeline",
        description="Evaluate reasoning models: N trials of every question, graded and scored with"
        " credible intervals.",
        epilog=f"examples:\n{EXAMPLES}\n\n{_settings_help()}\n\n{_metrics_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = whole.add_subparsers(dest="verb", metavar="VERB SETTING", title="verbs")
    for name, verb in VERBS.items():
        sub = verbs.add_parser(
            name,
            help=verb.summary,
            description=verb.summary[0].upper() + verb.summary[1:] + ".",
            epilog=_epilog(verb),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        takes = "KEY=VALUE" if RunConfig not in verb.settings else "GROUP=CHOICE or KEY=VALUE"
        if verb.load is None:
            takes += ", or one existing run folder to take the settings from"
        elif verb.settings[0] is RunConfig or hasattr(verb.settings[0](), "folders"):
            takes += ", or folders of runs"
        sub.add_argument("settings", nargs="*", metavar="SETTING", help=takes)
        for flag in verb.flags:
            value: dict[str, Any] = {"metavar": flag.metavar, "type": flag.kind}
            sub.add_argument(
                flag.name,
                help=flag.help,
                **(value if flag.metavar else {"action": "store_true"}),
            )
    return whole


def _epilog(verb: Verb) -> str:
    """Examples, then the keys of every kind of settings that the verb takes."""
    parts = [verb.examples] if verb.examples else []
    if not verb.examples.startswith("examples:"):
        parts.append(f"examples:\n{EXAMPLES}")
    for kind in verb.settings:
        parts.append(_settings_help() if kind is RunConfig else _keys_help(kind))
    return "\n\n".join([*parts, _metrics_help()])


def _metrics_help() -> str:
    """How metrics are named."""
    names = ", ".join(name + "8" * (name[-1] in "@^") for name in FAMILIES)
    lines = f"metrics, for [scoring.]metrics=[...], 8 or any k (docs/scoring.md): {names}"
    return textwrap.fill(lines, 96, subsequent_indent="  ", break_on_hyphens=False)


def _keys_help(kind: type[Any]) -> str:
    """Every key of a settings dataclass with its default."""
    lines = [
        "settings, KEY=VALUE, with their defaults (a key that only one group has may be short):"
    ]
    for name, value in asdict(kind()).items():
        if name == "folders":  # positional
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
