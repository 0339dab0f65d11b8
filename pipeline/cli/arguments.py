"""What the command line takes, and its help: every verb with its flags, examples and settings."""

import argparse
import json
import textwrap
from dataclasses import asdict
from typing import Any, NoReturn

from pipeline.base.console import clean
from pipeline.cli.verbs import EXAMPLES, VERBS, Verb
from pipeline.config import compose
from pipeline.config.settings import RunConfig
from scoring.metrics.table import FAMILIES


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        super().error(clean(message))  # a name that a shell has put in for a star


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    command_line = _Parser(
        prog="python -m pipeline",
        description="Evaluate reasoning models: N trials of every question, graded and scored with"
        " credible intervals.",
        epilog=f"examples:\n{EXAMPLES}\n\n{_settings_help()}\n\n{_metrics_help()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = command_line.add_subparsers(dest="verb", metavar="VERB SETTINGS", title="verbs")
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
        for flag, options in verb.flags:
            sub.add_argument(flag, **options)
    return command_line


def _epilog(verb: Verb) -> str:
    """Examples, then the keys of every kind of settings that the verb takes."""
    own = verb.examples
    parts = [f"examples:\n{own}"] if own.startswith(" ") else [own, f"examples:\n{EXAMPLES}"]
    parts += [_settings_help() if kind is RunConfig else _keys_help(kind) for kind in verb.settings]
    return "\n\n".join(filter(None, [*parts, _metrics_help()]))


def _metrics_help() -> str:
    """How metrics are named."""
    names = ", ".join(name + "8" * (name[-1] in "@^") for name in FAMILIES)
    head = "metrics, for [scoring.]metrics=[...], 8 or any k (docs/scoring.md): "
    return _filled(head, names, "  ")


def _keys_help(kind: type[Any]) -> str:
    """Every key of a settings dataclass with its default."""
    lines = [
        "settings, KEY=VALUE, with their defaults (a key that only one group has may be short):"
    ]
    for name, value in asdict(kind()).items():
        if name == "folders":  # positional
            continue
        shown = {name: value}
        if isinstance(value, dict) and value:
            shown = {f"{name}.{key}": part for key, part in value.items()}
        lines.append(
            _filled("  ", "  ".join(f"{key}={_default(part)}" for key, part in shown.items()))
        )
    return "\n".join(lines)


def _default(value: object) -> str:
    """As it would be written after KEY=."""
    if isinstance(value, list | dict):
        return f"[{','.join(map(str, value))}]"
    return str(value) if not isinstance(value, bool | None) else json.dumps(value)


def _settings_help() -> str:
    lines = ["settings, GROUP=CHOICE (each a file in configs/GROUP/):"]
    for group in compose.groups():
        lines.append(_filled(f"  {group}=", ", ".join(compose.choices(group))))
    lines += [
        "settings, KEY=VALUE (any key of those files; an unknown key is an error):",
        "  sampling.trials=80  sampling.max_tokens=32768  sampling.temperature=0.6",
        "  prompt.kind=plain  prompt.stop=[TEXT]  prompt.prefix=TEXT  prompt.shots=4",
        "  prompt.shots_from=FILE_OR_SPLIT     solved examples (docs/prompts.md)",
        "  dataset.answer=choice|exact|number|regex|python:FILE.py:function    (docs/grading.md)",
        "  dataset.fields.choices=COLUMN  prompt=choice  prompt.shuffle=trial  multiple choice",
        "  engine.batch_size=256  engine.tensor_parallel_size=1  dataset.limit=5",
        "  verifier.engine.name=transformers  verifier.engine.tensor_parallel_size=1",
        "                the verifier's own; also .device, .gpu_memory_utilization and .args.KEY",
        "  tag=NAME      a run folder of its own for other settings of one model and data set",
        "  run_dir=DIR   the run folder (default runs/DATASET/MODEL[-TAG])",
    ]
    return "\n".join(lines)


def _filled(head: str, words: str, indent: str = " " * 6) -> str:
    """Lines of at most 96 letters, of which the first begins with the head."""
    return textwrap.fill(
        words,
        96,
        initial_indent=head,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
