"""Bytes on disk per generated token.

    python -m benchmarks.disk runs/demo/demo-step-3900        a run folder that is there
    python -m benchmarks.disk                                 a fresh run of the demo model

Of token ids and log-probs together, before compression, three counts:

  values        the numbers alone: an int32 id and a float32 log-prob, 4 + 4 bytes
  Arrow         with what makes them lists: two offsets of 4 bytes an attempt, and null bitmaps
  Parquet       as laid out in the files, before zstd: pages with their headers, definition and
                repetition levels

The target, at most 8, is for the values: the structure is shown beside them and shrinks with the
length of an attempt. Then what is on disk after compression, column by column, and the journal's
overhead: the same attempts as the frames that the writer appends, if each went out alone.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import journal
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from benchmarks import common

MOST = 8.0  # the target: bytes per token of ids and log-probs
PER_TOKEN = ("token_ids", "logprobs")


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="a run folder (default: makes one)")
    common.add_work(parser)
    args = parser.parse_args()
    if args.folder is not None and "=" in str(args.folder):  # a setting, not a folder
        args.settings, args.folder = [str(args.folder), *args.settings], None
    if args.folder is not None:
        record = _report(Run(load_folder(args.folder, [])))
    else:
        with common.workdir(args) as folder:
            run = Run(common.run_config(args, folder / "run"))
            common.prepare(run)
            common.generate(run)
            record = _report(run)
    common.finish(args, record)


def _report(run: Run) -> dict[str, Any]:
    arrow = _arrow(run.attempts)
    if not arrow["tokens"]:
        raise common.UserError(f"{run.path}: holds no attempts yet")
    if arrow["without_logprobs"]:
        raise common.UserError(f"{run.path}: {arrow['without_logprobs']} attempts lack log-probs")
    columns = _parquet(run.attempts)
    tokens = arrow["tokens"]
    plain, packed = (sum(columns.get(n, (0, 0))[i] for n in PER_TOKEN) for i in (0, 1))
    files = sum(path.stat().st_size for path in run.attempts.iterdir() if path.is_file())
    rest = arrow["frames"] - arrow["all_columns"]
    figures = {
        "ids and log-probs, values": arrow["values"] / tokens,
        "ids and log-probs, Arrow lists": arrow["lists"] / tokens,
        "ids and log-probs, Parquet before compression": plain / tokens,
        "ids and log-probs, Parquet on disk": packed / tokens,
        "everything on disk, attempts/": files / tokens,
        "journal frames, one attempt each": arrow["frames"] / tokens,
    }
    mean = tokens / arrow["attempts"]
    title = f"{arrow['attempts']} attempts, {tokens} tokens, {mean:.1f} each: bytes per token"
    common.table(title, ["", "bytes"], [[k, v] for k, v in figures.items()])
    rows = [[n, a / tokens, b / tokens] for n, (a, b) in columns.items()]
    common.table("Parquet columns, bytes per token", ["", "before zstd", "on disk"], rows)
    common.out.print(
        f"journal overhead: {rest / arrow['attempts']:.0f} bytes an attempt (frame head, Arrow"
        " metadata, padding) beyond the columns themselves, until the journal is sealed"
    )
    value = figures["ids and log-probs, values"]
    met = "met" if value <= MOST else "NOT met"
    common.out.print(f"ids and log-probs: {value:.3f} bytes a token; target {MOST:g}: {met}")
    return {
        "run": str(run.path),
        "attempts": arrow["attempts"],
        "tokens": tokens,
        "bytes_per_token": figures,
        "journal_overhead_bytes_per_attempt": rest / arrow["attempts"],
        "parquet_columns": columns,
    }


def _arrow(folder: Path) -> dict[str, int]:
    """Sizes in memory, over all attempts: values, lists, all columns, and journal frames."""
    names = ("attempts", "tokens", "values", "lists", "all_columns", "frames", "without_logprobs")
    found = dict.fromkeys(names, 0)
    for batch in shards.batches(folder, ATTEMPTS, ATTEMPTS.names, shards.Damage()):
        columns = {name: batch[name] for name in PER_TOKEN}
        found["attempts"] += batch.num_rows
        found["tokens"] += len(columns["token_ids"].flatten())
        found["values"] += sum(column.flatten().nbytes for column in columns.values())
        found["lists"] += sum(column.nbytes for column in columns.values())
        found["all_columns"] += batch.nbytes
        found["without_logprobs"] += columns["logprobs"].null_count
        rows = (pa.RecordBatch.from_pylist([r], schema=ATTEMPTS) for r in batch.to_pylist())
        found["frames"] += sum(len(journal.framed(row.serialize())) for row in rows)
    return found


def _parquet(folder: Path) -> dict[str, tuple[int, int]]:
    """Per column of the sealed parts: bytes before and after compression."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(folder.glob("*.parquet")):
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            for i in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(i)
                name = chunk.path_in_schema.split(".")[0]
                plain, packed = found.get(name, (0, 0))
                found[name] = (
                    plain + chunk.total_uncompressed_size,
                    packed + chunk.total_compressed_size,
                )
    return found


if __name__ == "__main__":
    common.main(main)
