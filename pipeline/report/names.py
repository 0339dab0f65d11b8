"""Names of models, data sets and questions as the page shows them: none can turn the text round."""

import re
from dataclasses import replace

from markupsafe import Markup

from bayes_at_n.pipeline.compare.cohort import Cohort

_DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""A text with its controls of writing direction written out.

    >>> visible("a\u202eb")
    'a⟨U+202E⟩b'
    """
    return _DIRECTIONS.sub(lambda mark: f"⟨U+{ord(mark[0]):04X}⟩", text)


def bdi(text: str) -> Markup:
    """A name as an element of its own direction, for names in right-to-left scripts."""
    return Markup("<bdi>{}</bdi>").format(visible(text))


def shown(cohort: Cohort) -> Cohort:
    """A cohort whose names are all visible; its runs and their own question ids stay."""
    return replace(
        cohort,
        dataset=visible(cohort.dataset),
        question_ids=[visible(qid) for qid in cohort.question_ids],
        names=[visible(name) for name in cohort.names],
        members=[replace(member, name=visible(member.name)) for member in cohort.members],
        differences=[visible(line) for line in cohort.differences],
        warnings=[visible(line) for line in cohort.warnings],
    )
