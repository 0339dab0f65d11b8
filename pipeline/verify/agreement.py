"""After verify: how far verifier and grader agree, and the attempts that a person should read."""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from rich.table import Table

from pipeline.base import atomic
from pipeline.base.console import note, results
from pipeline.store import rowkeys, shards
from pipeline.store.columns import ATTEMPTS, KEY
from pipeline.store.rowkeys import Ints
from pipeline.store.runfolder import Run
from pipeline.verify import store
from pipeline.verify.store import LABELS, folder
from pipeline.verify.survey import views
from verifiers.judge.agreement import Agreement, agreement, disagreements

_END = 600  # characters of a response's end, in the list for a person


def report(run: Run) -> None:
    """Print the 2x3 table of grader against verifier and write the disagreements."""
    verdicts = store.judged(run, ["a", "b", "c", "label", "cut"])
    if cut := int(np.count_nonzero(verdicts["cut"].to_numpy())):
        note(
            f"verify: {cut} of {len(verdicts)} responses were cut in the middle to fit the context"
        )
    view = views(verdicts["outcome"].combine_chunks())
    seen = np.flatnonzero(view >= 0)
    path = folder(run) / "_disagreements.jsonl"
    if not seen.size:
        path.unlink(missing_ok=True)
        note("verify: no grades to compare the verdicts with; run `grade`")
        return
    correct = view[seen] == 1
    prob = np.stack([verdicts[x.lower()].to_numpy()[seen] for x in LABELS], axis=1)
    found = agreement(correct, prob.argmax(axis=1))
    _print(found, seen.size, len(verdicts) - seen.size)
    differ = verdicts.take(pa.array(seen[disagreements(correct, prob.astype(np.float64))]))
    atomic.write_jsonl(path, _for_a_person(run, differ))
    if len(differ):
        note(f"verify: {len(differ)} disagreements, the surest first, are in {path}")


def _for_a_person(run: Run, differ: pa.Table) -> Iterable[dict[str, object]]:
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    ends = _ends(run, rowkeys.encode(differ.combine_chunks(), rowkeys.question_ids(run)))
    for i, end in enumerate(ends):
        [row] = differ.slice(i, 1).to_pylist()
        yield {
            "question_id": row["question_id"],
            "trial": row["trial"],
            "outcome": row["outcome"],
            "label": row["label"],
            **{x.lower(): round(row[x.lower()], 4) for x in LABELS},
            "gold": golds[row["question_id"]],
            "answer": row["answer"],
            "cut": row["cut"],
            "response_end": end,
        }


def _ends(run: Run, wanted: Ints) -> list[str]:
    """The last characters of the responses of some attempts."""
    found, order, ids = [""] * wanted.size, np.argsort(wanted), rowkeys.question_ids(run)
    if wanted.size:
        for batch in shards.batches(run.attempts, ATTEMPTS, [*KEY, "text"], shards.Damage()):
            at = rowkeys.rows_of(rowkeys.encode(batch, ids), wanted, order)
            for i in np.flatnonzero(at >= 0):
                found[at[i]] = (batch["text"][i].as_py() or "")[-_END:]
    return found


def _print(found: Agreement, seen: int, left_out: int) -> None:
    extra = f" ({left_out} on which the grader has no view are left out)" if left_out else ""
    table = Table(title=f"grader and verifier, {seen} attempts{extra}", title_justify="left")
    table.add_column("grader")
    for label, meaning in zip(LABELS, ("correct", "incorrect", "invalid"), strict=True):
        table.add_column(f"{label} {meaning}", justify="right")
    for i, name in enumerate(("correct", "not correct")):
        cells = [
            f"{count}" if np.ma.is_masked(share) else f"{count} ({share:.1f} %)"
            for count, share in zip(found.table[i], found.percent[i], strict=True)
        ]
        table.add_row(name, *cells)
    results.print(table, soft_wrap=False)
    kappa = (
        "undefined, since both know one word only"
        if found.kappa is None
        else f"{found.kappa:.3f} (standard error {found.stderr:.3f})"
    )
    results.print(
        f"agree on {found.observed:.1%}, by chance {found.expected:.1%}; Cohen's kappa {kappa}"
    )
