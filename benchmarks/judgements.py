"""Labels that are read from recorded texts of judges, against the labels recorded beside them.

    python -m benchmarks.judgements FOLDER

FOLDER holds JSON Lines of public repositories, which are not part of this project: MT-bench's
``model_judgment/gpt-4_single.jsonl`` (in forks of lm-sys/FastChat), and JudgeBench's
``outputs/*judge_name=arena_hard*.jsonl`` (ScalerLab/JudgeBench). Prints for each file how many
texts are read as recorded, not read (a run would sample these again), and read otherwise, which
are listed; of some the record has no label.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.verifiers.judge.judgement import Form, read

_PAIRS = {"a>>b": "A>B", "a>b": "A>B", "a=b": "A=B", "b>a": "B>A", "b>>a": "B>A"}
FORMS = {
    "rating": Form({f"{n / 2:g}": f"{n / 2:g}" for n in range(21)}, r"\[\[(\d+\.?\d*)\]\]"),
    "pair": Form(_PAIRS, r"\[\[([AB<>=]+)\]\]"),
}


class Recorded(NamedTuple):
    """A judge's text, its form, and the label recorded beside it; None: it had none."""

    form: str
    text: str
    label: str | None


def recorded(row: dict[str, Any]) -> Iterator[Recorded]:
    """Yield the judgements of a row: one of MT-bench, or both orders of JudgeBench.

    >>> [*recorded({"judgment": "Good. [[7]]", "score": 7})]
    [Recorded(form='rating', text='Good. [[7]]', label='7')]
    """
    if "judgments" in row:
        for one in row["judgments"]:
            yield Recorded("pair", one["judgment"]["response"], one["decision"])
    elif "score" in row:
        label = None if row["score"] == -1 else f"{row['score']:g}"
        yield Recorded("rating", row["judgment"], label)


def main() -> None:
    """Compare all files of a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="JSON Lines of judges' texts")
    whole = Counter[str]()
    for path in sorted(parser.parse_args().folder.glob("*.jsonl")):
        counts = Counter[str]()
        for line in path.read_text(encoding="utf-8").splitlines():
            for one in recorded(json.loads(line)):
                found = read(one.text, FORMS[one.form])
                fate = "not read" if found is None else "otherwise"
                fate = "as recorded" if found == one.label else fate
                fate = "nothing recorded" if one.label is None else fate
                counts[fate] += 1
                if fate == "otherwise":
                    print(
                        f"{path.name}: {fate}: {found}, recorded {one.label}: {one.text[-160:]!r}"
                    )
        print(f"{path.name}: {dict(counts)}")
        whole += counts
    print(f"all {whole.total():,}: {dict(whole)}")


if __name__ == "__main__":
    main()
