"""The texts of a run that a verifier judges, and their batches.

An attempt takes a few dozen bytes of memory: texts are read once for their hashes, and again when
they are judged.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store import graded, parquet, rowkeys, runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import keys_of, parts
from bayes_at_n.pipeline.verify import calibrate, prompts
from bayes_at_n.pipeline.verify.prompts import Candidate, digest
from bayes_at_n.verifiers.maths.boxed import final_part

ROWS, CHARACTERS = 1024, 1 << 23  # of a batch, which is judged, and lost, as a whole
_EACH = 16  # batches at least for each of several workers, so that they end together
Text = tuple[str, Candidate]  # with its hash


class Plan(NamedTuple):
    """The texts to judge, each once."""

    folder: Path  # of the log-probs
    made_by: dict[str, Any]  # identity of the verifier
    probes: list[Text]  # content-free ones, which come first
    attempts: pa.Table  # of `texts_to_judge`, in the order of their files
    starts: list[int]  # of batches, counted over probes and attempts
    longest: int  # bytes of the longest user turn

    @property
    def work(self) -> Path:
        """Return the folder of the workers' claims and sessions."""
        return work_folder(self.folder)

    @property
    def names(self) -> list[str]:
        """Return the hashes of all texts."""
        return [*(name for name, _ in self.probes), *self.attempts["judged"].to_pylist()]

    def span(self, batch: int) -> range:
        """Return the texts of a batch."""
        total = len(self.probes) + len(self.attempts)
        return range(*[*self.starts, total][batch : batch + 2])


def work_folder(folder: Path) -> Path:
    """Return the workers' folder in a folder of log-probs, which Parquet readers skip."""
    return folder / f"{parquet.HIDDEN}work"


def texts_to_judge(run: Run, template: str) -> pa.Table:
    """Return all attempts, ordered by question and trial, with the hash of what is judged of each.

    Columns: `key` (`rowkeys.encode`), `part` (stem of its file), `judged` (hash of its text; empty:
    unreadable), `bytes` of the text, `place` (its position in the order of files), `truth`
    (`true_labels`), and grades. With judge=unmatched only attempts that the rule grader does not
    accept. Raises UserError: grades are needed and missing.
    """
    judge, listed = run.cfg.dataset.judge, parts(run.attempts)
    with_answer = prompts.uses_answer(template)
    try:
        keys_by_part = [keys_of(run, part) for part in listed]
    except OSError as error:
        if error.errno not in atomic.GONE:
            raise
        return texts_to_judge(run, template)  # a journal was sealed since the listing
    stems = np.repeat([part.stem for part in listed], [*map(len, keys_by_part)])
    keys, first = np.unique(np.concatenate(keys_by_part), return_index=True)
    keys, first = keys[keys >= 0], first[keys >= 0]
    grades = graded.ruled(run, ["outcome", "box", *["answer"] * with_answer])
    grades = rowkeys.aligned(run, grades, keys)
    attempts = pa.table({"key": keys, "part": stems[first]} | grades)
    if (ungraded := attempts["outcome"].null_count) and (judge == "unmatched" or with_answer):
        remedy = "judge=unmatched and prompts with {answer} need grades: run `grade` first"
        raise UserError(f"{run.path}: {ungraded} attempts are not graded; {remedy}")
    if judge == "unmatched":
        decided = graded.decided_by_verifier(judge, attempts["outcome"], attempts["box"])
        attempts = attempts.filter(decided)
    hashes = np.zeros(len(attempts), "S24")
    sizes, positions = np.zeros((2, len(attempts)), np.int64)
    for position, (i, candidate) in enumerate(candidates(run, attempts)):
        hashes[i], positions[i] = digest(candidate), position
        sizes[i] = sum(len(field.encode()) for field in candidate[1:])
    attempts = attempts.append_column("judged", pa.array(hashes).cast(pa.string()))
    attempts = attempts.append_column("bytes", pa.array(sizes))
    attempts = attempts.append_column("place", pa.array(positions))
    return attempts.append_column("truth", calibrate.true_labels(attempts["outcome"], run))


def candidates(run: Run, attempts: pa.Table, few: bool = False) -> Iterator[tuple[int, Candidate]]:
    """Yield the index and the candidate of each attempt, with options in the attempt's order.

    A judge that writes gets the answer after the reasoning. `few`: see `rowkeys.responses`.
    """
    damage, keys = parquet.Damage(), attempts["key"].to_pylist()
    writes, end = run.cfg.verifier.kind == "generate", run.cfg.model.reasoning_end
    answers = attempts["answer"].to_pylist() if "answer" in attempts.column_names else []
    for i, text in rowkeys.responses(run, attempts["key"].to_numpy(), damage, few):
        question, trial = run.questions[keys[i] >> 32], keys[i] & 0xFFFFFFFF
        presented = runfolder.as_presented(run.cfg, question, trial)
        extracted = runfolder.presented_letter(presented, answers[i] or "") if answers else ""
        if writes:
            start = final_part(text, end)
            text = "" if start is None else text[start:].strip()
        yield i, prompts.as_candidate(presented)._replace(response=text, answer=extracted)
    if damage.lines:
        warn(f"attempts: {damage}; they are left out until they are sampled again")


def distinct(attempts: pa.Table, judged: Sequence[str]) -> pa.Table:
    """Return one attempt for each text that is not in `judged`, in the order of files."""
    rest = attempts.filter(pc.invert(pc.is_in(attempts["judged"], value_set=pa.array(judged))))
    first = np.unique(rest["judged"].to_numpy().astype("S"), return_index=True)[1]
    return rest.take(first).sort_by("place")


def batches(sizes: Sequence[int], workers: int) -> list[int]:
    """Divide texts into batches by their bytes; return where each begins.

    >>> batches([10, 10, CHARACTERS, 10], 1), len(batches([10] * 3000, 1))
    ([0, 3], 3)
    """
    most = ROWS if workers == 1 else min(ROWS, 1 + len(sizes) // (_EACH * workers))
    starts, first, size = list[int](), 0, 0
    for i, bytes_ in enumerate(sizes, 1):
        size += bytes_
        if i - first >= most or size >= CHARACTERS or i == len(sizes):
            starts.append(first)
            first, size = i, 0
    return starts


def read(run: Run, plan: Plan, batch: int) -> list[Text]:
    """Read the texts of a batch, sorted by question, without unreadable ones."""
    span, n = plan.span(batch), len(plan.probes)
    texts = plan.probes[span.start : span.stop]
    if span.stop > n:
        first = max(0, span.start - n)
        attempts = plan.attempts.slice(first, span.stop - n - first)
        names = attempts["judged"].to_pylist()
        texts += [(names[i], candidate) for i, candidate in candidates(run, attempts, few=True)]
    return sorted(texts, key=lambda text: text[1].question)  # so that they share cached prefixes
