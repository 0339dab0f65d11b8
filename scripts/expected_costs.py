"""What the paper's cohort is expected to cost: the table of docs/cluster.md, as Markdown.

    python scripts/expected_costs.py
    python scripts/expected_costs.py --tokens-per-s 3500 --lost-minutes 10

Attempts, tokens and the paper's GPU-hours are its printed numbers (configs/paper/printed.yaml):
appendix F.3 and Table 7, which give tokens by data set but not by model. The rest is arithmetic:

    GPU-hours = completion tokens / tokens per second / 3600 + runs x lost minutes / 60
    disk      = completion tokens x bytes per token

The rate and the lost minutes are assumptions, not measurements: put in your own. `status` shows the
tokens per second of your workers. The rate is a mean over the cohort by time, all tokens over all
GPU-seconds: the slow models weigh most, one 32 B model more than five small ones.
"""

import argparse

from pipeline.display.table import Column, Table, to_markdown
from pipeline.prepare import costs
from pipeline.research.studies import paper, shared

TOKENS_PER_S = 2000.0  # of one GPU, see docs/cluster.md for where this comes from
# Loading the model, and the last long attempts, which leave most of the GPU idle; of a whole run.
LOST_MINUTES = 15.0
NODE = 8  # GPUs

_COLUMNS = (
    shared.text("what", ""),
    Column("runs", "runs", format="{:,}"),
    Column("attempts", "attempts", format="{:,.0f}"),
    Column("tokens", "completion tokens (M)", format="{:,.1f}"),
    Column("paper", "the paper's GPU-hours, batch size 1", format="{:,.1f}"),
    Column("disk", "disk (GB)", format="{:.1f}"),
    Column("gpu", "GPU-hours, batched", format="{:.0f}"),
    Column("one", f"hours, one {NODE}-GPU node", format="{:.0f}"),
    Column("four", "hours, four nodes", format="{:.0f}"),
)


def table(tokens_per_s: float, lost_minutes: float, bytes_per_token: float) -> Table:
    """Costs by data set, in total, of a mean run, and of the two models that the paper names.

    `tokens_per_s` are completion tokens of one GPU with a full batch, `lost_minutes` those of a run
    that make no or few tokens, and `bytes_per_token` of everything in `attempts/`, compressed.

    >>> rows = table(1000, 0, 10).rows
    >>> [(r["what"], r["tokens"], round(r["gpu"]), r["disk"]) for r in rows if r["what"] == "total"]
    [('total', 2926.4, 813, 29.264)]
    """
    [attempts] = paper.values(["cost.attempts"])
    tasks, models = len(paper.TASKS), len(paper.TWENTY)

    def row(what: str, runs: int, tokens: float, hours: float) -> dict[str, object]:
        gpu = costs.seconds(1e6 * tokens, tokens_per_s, runs * lost_minutes * 60) / 3600
        return {
            "what": what,
            "runs": runs,
            "attempts": attempts * runs / (tasks * models),
            "tokens": tokens,
            "paper": hours,
            "disk": tokens * bytes_per_token / 1000,
            "gpu": gpu,
            "one": gpu / NODE,
            "four": gpu / NODE / 4,
        }

    rows: list[dict[str, object]] = [
        row(title, models, *paper.values([f"cost.completion.{task}", f"cost.hours.{task}"]))
        for task, title in paper.TASKS.items()
    ]
    tokens, hours = paper.values(["cost.completion.total", "cost.hours.total"])
    rows.append(row("total", tasks * models, tokens, hours))
    mean = row("a run, in the mean", 1, tokens / tasks / models, hours / tasks / models)
    rows.append(mean | {"one": None, "four": None})  # a run has a GPU of its own
    for name in ("gpt-oss-low", "LIMO-v2"):
        [hours] = paper.values([f"cost.model_hours.{name}"])
        rows.append({"what": name, "runs": tasks, "attempts": attempts / models, "paper": hours})
    title = (
        f"The paper's cohort: {models} models × {tasks} data sets"
        f" × {attempts / tasks / models:,.0f} attempts"
    )
    notes = [
        f"Assumed, not measured: {tokens_per_s:,.0f} tokens/s a GPU, and {lost_minutes:g}"
        " GPU-minutes a run lost to loading and to the last long attempts. On disk:"
        f" {bytes_per_token:g} bytes a token, a ceiling. Hours on nodes are at best: every GPU busy"
        " to the end. The paper prints no tokens by model, and GPU-hours of these two alone."
    ]
    return Table(title, _COLUMNS, rows, notes)


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for flag, default, what in (
        ("--tokens-per-s", TOKENS_PER_S, "of one GPU, in the mean over the cohort"),
        ("--lost-minutes", LOST_MINUTES, "GPU-minutes of a run without a full batch"),
        ("--bytes-per-token", costs.BYTES_PER_TOKEN, "on disk"),
    ):
        parser.add_argument(flag, type=float, default=default, help=f"{what}; default %(default)s")
    args = parser.parse_args()
    if args.tokens_per_s <= 0:
        parser.error("--tokens-per-s: must be above 0")
    print(to_markdown(table(args.tokens_per_s, args.lost_minutes, args.bytes_per_token)), end="")


if __name__ == "__main__":
    main()
