"""Side files of the report: numbers of every attempt of a dataset, and texts in small files.

`D-q0.js`, `D-q1.js`, … hold the attempts on some questions each of dataset D, about `ROWS` of them,
in the order of questions, models, trials. `D-M-p.js` has problems and prompts of model M;
`D-M-0.js`, `D-M-1.js`, … the texts of some attempts each, about half a megabyte, so that opening
one attempt reads little. Each file is a script with one call with a JSON value: a page opened from
disk may load scripts, but fetch nothing. Each run's texts are written by a process of its own:
reading tables and writing JSON takes most of the time.

The page draws a heat map behind texts, so it needs the length of every token's piece. These come
from the model's own tokenizer.json, in a local folder or the hub's cache; nothing is downloaded,
and no code of a model is run.
"""

import contextlib
import itertools
import json
import math
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic, children, program
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import find_local
from bayes_at_n.pipeline.compare.rubrics import ByRubric
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare import models
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.store import outcomes, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, cut_off
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.numerics.inputs import Ints
from bayes_at_n.verifiers import LETTERS

LONGEST = 2_000  # characters of an answer or a reason
ROWS = 4096  # attempts per file, or those on one question if these are more
_LOGS = {"log_a": "logprob_a", "log_b": "logprob_b", "log_c": "logprob_c"}
_SIGNALS = {"bits": "completion_bpt", "prompt_bits": "prompt_bpt"}
FILE_BYTES = 1 << 19
SMALL = 32 << 20  # bytes of attempts that are written before further processes have started
MOST_PROCESSES = 8  # each takes some 150 MB, and the disk limits the speed
_COLUMNS = ("question_id", "trial", "text", "token_ids", "logprobs")


class Decoder(NamedTuple):
    """A tokenizer, and the text of each of its V ids alone; id V is any other."""

    tokenizer: Any  # a ``tokenizers.Tokenizer``
    pieces: pa.Array  # V + 1 texts, "" for special tokens
    units: Ints  # their lengths in UTF-16


@lru_cache(maxsize=4)
def decoder(model_id: str, revision: str | None) -> Decoder | None:
    """Load the tokenizer of a model if it is on this machine; else None."""
    from huggingface_hub import try_to_load_from_cache
    from tokenizers import Tokenizer

    try:
        own, name = find_local(model_id), "tokenizer.json"
        path = own / name if own else try_to_load_from_cache(model_id, name, revision=revision)
        return of_tokenizer(Tokenizer.from_file(str(path)))
    except Exception:  # the libraries raise this type; the page then has no token heat
        return None


def of_tokenizer(tokenizer: Any) -> Decoder:
    """Decode every id of a ``tokenizers.Tokenizer`` alone."""
    ids = range(1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1))
    pieces = [*tokenizer.decode_batch([[i] for i in ids], skip_special_tokens=True), ""]
    return Decoder(tokenizer, pa.array(pieces), np.array([*map(utf16, pieces)], np.int64))


def token_lengths(text: str, token_ids: npt.ArrayLike, decoder: Decoder) -> Ints | None:
    """Return the length of each token's part of `text` in UTF-16; None if they do not match.

    Special tokens and those of a stop string, which are not in the text, get 0. A character of
    several tokens counts for the last one. After the last token only white space may follow.

    `token_ids` are T tokens, at least one. Returns T lengths that add up to at most the text's.
    """
    ids, unknown = np.asarray(token_ids, np.int64), len(decoder.units) - 1
    ids = np.where((ids < 0) | (ids > unknown), unknown, ids)
    try:
        whole = str(decoder.pieces.take(pa.array(ids)).buffers()[2] or b"", "utf-8")
        if whole.startswith(text) and "\ufffd" not in whole:  # as most do
            ends = np.minimum(np.cumsum(decoder.units[ids]), utf16(text))
            return np.diff(ends, prepend=0)
        return _streamed(text, ids.tolist(), decoder)
    except Exception:  # the library raises this type if a decoder revises its output
        return None


def _streamed(text: str, token_ids: list[int], decoder: Decoder) -> Ints | None:
    """Return :func:`token_lengths` token by token, fifty times as slow: tokens share characters."""
    from tokenizers.decoders import DecodeStream

    tokenizer, stream = decoder.tokenizer, DecodeStream(skip_special_tokens=False)
    known = {token for token in token_ids if token < len(decoder.units) - 1}
    special = {token for token in known if not tokenizer.decode([token])}
    units, at = [], 0
    for token in token_ids:
        piece = (stream.step(tokenizer, token) or "") if token in known else ""
        if token in special and not text.startswith(piece, at):
            piece = piece.removesuffix(tokenizer.id_to_token(token))
        if not text.startswith(piece, at):
            if not piece.startswith(text[at:]):
                return None
            piece = text[at:]  # a stop string begins
        units.append(utf16(piece))
        at += len(piece)
    rest = text[at:].rstrip()
    units[-1] += utf16(rest)  # a character that the end of the completion cut off
    return None if rest.strip("\ufffd") else np.array(units)


def surprisal(logprobs: npt.ArrayLike) -> Ints:
    """Convert log-probs of T tokens to surprisal in hundredths of a bit, -1 for none.

    `logprobs`: in nats, shape (T,); NaN or infinite for none.

    >>> surprisal([0.0, -0.6931472, float("nan")]).tolist()
    [0, 100, -1]
    """
    nats = np.asarray(logprobs, np.float64)
    known = np.isfinite(nats)
    bits = np.where(known, np.maximum(-nats, 0.0), 0.0) / math.log(2)
    return np.where(known, np.rint(100 * bits), -1).astype(np.int64)


def utf16(text: str) -> int:
    r"""Return the length of a text in JavaScript, where some characters count twice.

    >>> utf16("a\U0001d465b")
    4
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


class Indexed(NamedTuple):
    """The attempts of one run."""

    keys: Ints  # of `tables.encode` for the M questions compared; ascending
    table: pa.Table  # a row per key, without the number of its `file`
    without: str | None  # why there are no texts; None: there are


def index(
    run: Run, question_ids: list[str], texts: bool, model: int = 0, codes: Sequence[Any] = ()
) -> Indexed:
    """Read all numbers of a run's attempts, by which the page lists and filters them.

    `question_ids` are the M of the comparison, in which the run is number `model`; `texts`: include
    answers, which the model has written; `codes` are categories under each rubric, (M, N), -1 for
    none. Unknown values are null.
    """
    ids = pa.array(question_ids, pa.string())
    names = ["outcome", "box", "layer", "reason", *(["answer"] if texts else [])]
    grades = outcomes.graded(run, names)
    sampled = ["finish_reason", "completion_tokens", "started", "finished"]
    attempts = tables.streamed(run, "attempts", sampled)
    labels = outcomes.read_verdicts(run, [*_LOGS.values()], "warn").table
    known = np.union1d(tables.encode(grades, ids), tables.encode(attempts, ids))
    kept, (questions, trials) = tables.cells(known, run.cfg.sampling.trials)
    keys = known[kept]

    def align(table: pa.Table) -> dict[str, pa.Array]:
        return tables.in_order(table, tables.encode(table, ids), table.column_names, keys)

    grade, attempt, verdict = map(align, (grades, attempts, labels))
    try:
        signal = align(signals.read(run))
    except UserError:  # nothing was measured yet
        signal = dict.fromkeys([*_SIGNALS.values(), *"abc"], pa.nulls(keys.size, pa.float32()))
    assigned = np.full((keys.size, len(codes)), -1, np.int8)
    for column, code in zip(assigned.T, codes, strict=True):
        compared = trials < code.shape[1]
        column[compared] = code[questions[compared], trials[compared]]
    columns = {
        "m": pa.array(np.full(keys.size, model, np.int32)),
        "q": pa.array(questions, pa.int32()),
        "t": pa.array(trials, pa.int32()),
        "categories": pa.array([*assigned], pa.list_(pa.int8())),
        "answer": pa.nulls(trials.size, pa.string()),
        **{name: pc.utf8_slice_codeunits(grade[name], 0, LONGEST) for name in names},
        "cut": pc.cast(cut_off(attempt["finish_reason"]), pa.int8()),
        "tokens": attempt["completion_tokens"],
        "seconds": pc.round(pc.subtract(attempt["finished"], attempt["started"]), 2),
        **{name: verdict[source] for name, source in _LOGS.items()},
        **{name: signal[source] for name, source in _SIGNALS.items()},
        **{label: signal[label] for label in "abc"},
    }
    without = None if texts else "The report was made without texts (report.texts=false)."
    if texts and not any(run.attempts.glob("*")):
        without = "This run was imported without texts."
    return Indexed(keys, pa.table(columns), without)


def write_numbers(stem: Path, tables: list[pa.Table], rubrics: ByRubric, golds: list[str]) -> Any:
    """Write the numbers of all attempts of a dataset with M questions, and their `golds`.

    `tables` are those of the models, with the number of each attempt's `file`. Returns `per_file`,
    the number of questions per file, `rubrics` with names and weights of categories, and `differ`:
    the number of attempts on which grader and verifier disagree, and of those that both judged.
    """
    rows = pa.concat_tables(tables)
    rows = rows.take(pa.array(np.argsort(rows["q"].to_numpy(), kind="stable")))
    rows = rows.append_column("gold", pa.array(golds, pa.string()).take(rows["q"].combine_chunks()))
    per_file = max(1, ROWS * len(golds) // max(rows.num_rows, 1))
    ends = np.searchsorted(rows["q"].to_numpy(), np.arange(0, len(golds) + per_file, per_file))
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        part = rows.slice(start, end - start)
        write_file(stem, f"-q{number}", {name: _plain(part[name]) for name in part.column_names})
    largest = pc.max_element_wise(rows["a"], rows["b"], rows["c"], skip_nulls=False)
    right = pc.equal(rows["outcome"], "correct")
    differs = pc.xor(pc.equal(rows["a"], largest), right)
    return {
        "per_file": per_file,
        "rubrics": [
            {"title": rubric.name, "categories": [(c.name, c.weight) for c in rubric.categories]}
            for rubric, _ in rubrics.values()
        ],
        "differ": [pc.sum(differs).as_py() or 0, len(differs) - differs.null_count],
    }


def write_file(stem: Path, ending: str, value: Any) -> None:
    """Write the side file STEM + ENDING.js, in ASCII, so that no character in it ends a line.

    It is not synced to disk: after a power cut the same command writes it again.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    name = f"{stem.name}{ending}"
    script = f"bayesReport({json.dumps(name)},{text});\n"
    atomic.write_text(stem.with_name(f"{name}.js"), script, sync=False)


def _plain(column: Any) -> Any:
    """Convert a column for JSON, with None for missing and infinite values; None if it is empty."""
    if pa.types.is_floating(column.type):
        column = pc.round(pc.cast(column, pa.float64()), 4)
        column = pc.if_else(pc.is_finite(column), column, None)
    if column.null_count == len(column):
        return None
    if not pa.types.is_string(column.type):
        return column.to_pylist()
    coded = column.combine_chunks().dictionary_encode()  # which a browser reads twice as fast
    codes = pc.fill_null(coded.indices, -1).to_pylist()
    return {"values": coded.dictionary.to_pylist(), "codes": codes}


class Job(NamedTuple):
    """The texts of a run that a process writes."""

    cfg: RunConfig
    ids: list[str]  # of the M questions compared, as in the run
    keys: Ints  # of `tables.encode`, K attempts
    stem: Path  # of the side files, without number and ending
    trials: int | None  # per question, that have texts; None: all; 0: no prompts either


def write_all(jobs: Sequence[Job]) -> Iterator[Ints]:
    """Write prompts and responses of runs in a process per core, or in this one if they are few.

    Yields per job the numbers of its K attempts' files, -1 for none.
    """
    context = multiprocessing.get_context("spawn")  # this process has threads
    workers = max(1, min(program.cores(), MOST_PROCESSES, len(jobs)))
    alone = workers == 1 or stored(Run(job.cfg) for job in jobs) < SMALL
    light = shards.without_pandas  # pandas takes a third of the start of a process
    with children.dying_with_parent(), ProcessPoolExecutor(workers, context, light) as pool:
        try:
            for files, damage in map(write_texts, jobs) if alone else pool.map(write_texts, jobs):
                if damage:
                    warn(f"attempts: {damage}; run `generate` to make them again")
                yield files
        except BrokenProcessPool:
            raise UserError(
                "report: a process that wrote side files was killed, perhaps for lack of memory;"
                " repeat the command"
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def stored(runs: Iterable[Run]) -> int:
    """Return the bytes of the runs' attempts on disk."""
    size = 0
    for path in (path for run in runs for path in shards.files(run.attempts)):
        with contextlib.suppress(OSError):  # sealed meanwhile, as a part of another name
            size += path.stat().st_size
    return size


def write_texts(job: Job) -> tuple[Ints, str]:
    """Write prompts and responses of one run.

    Returns the numbers of the K attempts' files, -1 for none, and what was unreadable.
    """
    files, damage = np.full(job.keys.size, -1), shards.Damage()
    if job.trials == 0:
        return files, ""
    run, model = Run(job.cfg), models.tokenizer_source(job.cfg.model)
    tokenizer = decoder(model.id, model.revision)
    by_id = {row["question_id"]: row for row in run.questions}
    _write_prompts(job, [by_id[qid] for qid in job.ids], tokenizer)
    rows, size, number, judged = dict[str, Any](), 0, 0, dict[tuple[str, int], list[str]]()
    if job.cfg.verifier.kind == "generate":
        from bayes_at_n.pipeline.verify import generated  # with all that samples

        judged = generated.written(run)
    for attempt, qid, trial, text, ids, logprobs in _responses(run, job, damage):
        order = runfolder.as_presented(job.cfg, by_id[qid], trial).get("order", ())
        rows[f"{job.keys[attempt] >> 32}/{trial}"] = {
            "order": " ".join(LETTERS[place] for place in order),
            "text": text,
            "judged": (written := judged.get((qid, trial), [])),
            **of_tokens(tokenizer, text, ids, logprobs, job.cfg.prompt.prefix),
        }
        files[attempt] = number
        size += len(text) + 5 * len(ids) + sum(map(len, written))
        if size >= FILE_BYTES:
            write_file(job.stem, f"-{number}", {"rows": rows})
            rows, size, number = {}, 0, number + 1
    if rows:
        write_file(job.stem, f"-{number}", {"rows": rows})
    return files, str(damage)


def _write_prompts(job: Job, questions: list[Any], tokenizer: Decoder | None) -> None:
    """Write the questions' problems and exact prompts with their surprisal."""
    rows = {}
    for number, row in enumerate(questions):
        logprobs = np.array(row["prompt_logprobs"] or (), float)  # None becomes NaN
        prompt, ids = row["prompt"] or "", np.array(row["prompt_token_ids"] or (), np.int64)
        known = of_tokens(tokenizer, prompt, ids, logprobs)
        of_row = {"problem": row["problem"] or "", "choices": row.get("choices")}
        rows[number] = of_row | {"prompt": prompt, **known}
    write_file(job.stem, "-p", {"rows": rows})


def _responses(
    run: Run, job: Job, damage: shards.Damage
) -> Iterator[tuple[int, str, int, str, Any, Any]]:
    """Yield number, question, trial, text, tokens and log-probs of attempts."""
    known, order = pa.array(job.ids, pa.string()), np.argsort(job.keys)
    for batch in shards.batches(run.attempts, ATTEMPTS, _COLUMNS, damage):
        rows = tables.rows_of(tables.encode(batch, known), job.keys, order)
        if job.trials is not None:
            rows[batch["trial"].to_numpy() >= job.trials] = -1
        for i in np.flatnonzero(rows >= 0).tolist():
            token_ids, logprobs = (
                values.values.to_numpy(zero_copy_only=False) if values.is_valid else np.empty(0)
                for values in (batch["token_ids"][i], batch["logprobs"][i])
            )
            question, trial, text = (batch[name][i].as_py() for name in _COLUMNS[:3])
            yield int(rows[i]), question, trial, text or "", token_ids, logprobs


def of_tokens(
    tokenizer: Decoder | None, text: str, ids: Any, logprobs: Any, prefix: str = ""
) -> dict[str, list[int] | None]:
    """Return `lengths` of tokens in UTF-16 and their `bits`, in hundredths; None if unknown.

    A `prefix` of the response that was in the prompt becomes one token of unknown surprisal.
    """
    lengths = None
    if tokenizer is not None and len(ids) and len(logprobs) == len(ids):
        lengths = token_lengths(text.removeprefix(prefix), ids, tokenizer)
    if lengths is None:
        return {"lengths": None, "bits": None}
    bits = surprisal(logprobs)
    if prefix:
        lengths, bits = np.insert(lengths, 0, utf16(prefix)), np.insert(bits, 0, -1)
    return {"lengths": lengths.tolist(), "bits": bits.tolist()}
