"""The options of multiple choice as an attempt saw them."""

from collections.abc import Mapping
from typing import Any

from bayes_at_n.pipeline.config.seeds import option_order
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.verifiers import LETTERS


def order(cfg: RunConfig, row: Mapping[str, Any], trial: int) -> tuple[int, ...]:
    """Return which option stood at each place in a trial's prompt; empty: as in the table."""
    if cfg.prompt.shuffle != "trial" or row.get("choices") is None:
        return ()
    return option_order(cfg, row["question_id"], len(row["choices"]), trial)


def as_shown(cfg: RunConfig, row: Mapping[str, Any], trial: int) -> dict[str, Any]:
    """Return a row of the questions table with options and gold letter as a trial saw them."""
    shown = dict(row)
    if places := order(cfg, row, trial):
        shown |= {"order": places, "choices": [row["choices"][place] for place in places]}
        shown["gold"] = letter(shown, row["gold"])
    return shown


def letter(shown: Mapping[str, Any], answer: str) -> str:
    """Return the letter that an attempt saw at an option; what is no letter stays."""
    places = shown.get("order", ())
    known = LETTERS[: len(places)]
    return LETTERS[places.index(known.index(answer))] if answer and answer in known else answer
