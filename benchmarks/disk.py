"""Bytes per generated token of token ids and log-probs: in memory, and on disk.

    python -m benchmarks.disk runs/demo/demo-step-3900        a run folder that is there
    python -m benchmarks.disk                                 a fresh run of the demo model

In memory they are the numbers alone: an int32 id and a float32 log-prob, 4 + 4 bytes. On disk they
are Parquet pages after compression; beside them everything else that an attempt has there.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

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
    attempts = tokens = values = 0
    for batch in shards.batches(run.attempts, ATTEMPTS, PER_TOKEN, shards.Damage()):
        if batch["logprobs"].null_count:
            raise common.UserError(f"{run.path}: some attempts lack log-probs")
        attempts += batch.num_rows
        tokens += len(batch["token_ids"].flatten())
        values += sum(batch[name].flatten().nbytes for name in PER_TOKEN)
    if not tokens:
        raise common.UserError(f"{run.path}: holds no attempts yet")
    columns = _parquet(run.attempts)
    files = sum(path.stat().st_size for path in run.attempts.iterdir() if path.is_file())
    figures = {
        "ids and log-probs, values": values / tokens,
        "ids and log-probs, on disk": sum(columns[name] for name in PER_TOKEN) / tokens,
        "everything on disk": files / tokens,
    }
    title = f"{attempts} attempts, {tokens / attempts:.1f} tokens each: bytes per token"
    common.table(title, ["", "bytes"], [[*pair] for pair in figures.items()])
    value = figures["ids and log-probs, values"]
    met = "met" if value <= MOST else "NOT met"
    common.out.print(f"ids and log-probs: {value:.3f} bytes a token; target {MOST:g}: {met}")
    return {"run": str(run.path), "attempts": attempts, "tokens": tokens, "bytes": figures}


def _parquet(folder: Path) -> Counter[str]:
    """Compressed bytes of the sealed parts, by column."""
    found = Counter[str]()
    for path in folder.glob("*.parquet"):
        metadata = pq.read_metadata(path)
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            for chunk in map(group.column, range(metadata.num_columns)):
                found[chunk.path_in_schema.split(".")[0]] += chunk.total_compressed_size
    return found


if __name__ == "__main__":
    common.main(main)
