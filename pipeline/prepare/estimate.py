"""Estimate the cost of sampling in advance: `--dry-run`, `submit`, races.

In each step an engine samples one token per sequence. It reads the weights and all caches once, and
computes two operations per parameter and sequence; the longer of the two counts, plus some time of
the processor. So memory bandwidth limits the sampling of reasoning models. If a run has sessions,
their measured rate is used instead. Every assumption is printed.
"""

import re
import statistics
import textwrap
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.console import duration, mode, plural, results, si
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import NotHere, kind
from bayes_at_n.pipeline.config import card
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.resources import ClusterConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.prepare import models, questions_table, sizing
from bayes_at_n.pipeline.prepare.sizing import EngineMemory, Rows, gib
from bayes_at_n.pipeline.store import outcomes, runfolder
from bayes_at_n.pipeline.store.runfolder import Run, Totals
from bayes_at_n.pipeline.workers import devices, spent

# Of attempts/ on disk; measured on random ids, log-probs and text, which hardly compress.
BYTES_PER_TOKEN = 7.6
SHARE = 0.46  # of max_tokens: the mean attempt of the paper's models, 2,926 M of 6,291 M tokens
_EFFICIENCY = 0.6  # of a GPU's bandwidth and arithmetic
# Overhead per step, and per sequence in it, measured on an H100: see docs/benchmarks.md.
_STEP_S, _SEQUENCE_S = 1.2e-3, 2e-5
_CORE_S = 3e-4  # per sequence on a CPU core: measured with the demo on two cores
_CORE = 5e9, 3e10  # bytes/s and operations/s of a core
_START_S = {True: 80.0, False: 20.0}  # to start an engine, on GPUs or not, plus 1 s per GB
_ASSUMED_QUESTIONS = 30  # if the dataset is not available, with prompts of 200 tokens

# GB of memory, TB/s and dense 16-bit TFLOP/s from data sheets; the first name that matches counts.
_GPUS = {
    "B200": (180, 8.0, 2250),
    "GH200": (96, 4.0, 989),
    "H200": (141, 4.8, 989),
    "H100 PCIe": (80, 2.0, 756),
    "H100": (80, 3.35, 989),
    "A100": (80, 2.0, 312),
    "L40S": (48, 0.86, 362),
    "L4": (24, 0.3, 121),
    "A10": (24, 0.6, 125),
    "4090": (24, 1.0, 165),
    "MI300X": (192, 5.3, 1307),
}


class Hardware(NamedTuple):
    """The devices that a run may use."""

    name: str
    gpus: int  # 0: CPU cores
    memory: int | None  # bytes per GPU
    bandwidth: float  # bytes/s, of a GPU or of all cores
    speed: float  # 16-bit operations/s


class Cost(NamedTuple):
    """Expected cost of sampling pending attempts."""

    tokens: float  # of completions
    most: float  # upper bound of `tokens`
    basis: str  # of the number of tokens
    seconds: float | None = None  # None: not known, see `how`
    how: str = ""  # basis of `seconds`, or why it is not known


class Estimate(NamedTuple):
    """What is pending in a run, and its cost."""

    planned: int  # attempts
    pending: int
    prompts: float  # prompt tokens of pending attempts
    cost: Cost
    paid: float | None  # price of the most tokens; None: no prices are set


def gpu_hardware(text: str, number: int, where: str, memory: int | None = None) -> Hardware:
    """Return hardware with GPUs of the first kind that a text names, by default H100s.

    >>> gpu_hardware("NVIDIA H200, 143771 MiB", 1, "here", 150754820096)[:3]
    ('1 GPU (H200) here', 1, 150754820096)
    """
    named = [name for name in _GPUS if re.search(rf"(?<![a-z0-9]){name}(?![0-9])", text, re.I)]
    name = named[0] if named else "H100"
    size, bandwidth, speed = _GPUS[name]
    which = name if named else f"assumed: {name}"
    label = f"{plural(number, 'GPU')} ({which}) {where}"
    return Hardware(label, number, memory or size * 10**9, bandwidth * 1e12, speed * 1e12)


def cpu_hardware(cores: int, where: str) -> Hardware:
    """Return hardware with CPU cores only."""
    return Hardware(f"{plural(cores, 'core')} {where}", 0, None, *(cores * x for x in _CORE))


def cluster_hardware(cluster: ClusterConfig) -> Hardware:
    """Return the hardware of all tasks of a run; the cluster's settings may name the kind of GPU.

    >>> cluster_hardware(ClusterConfig(gpus=4, workers=2, options=["--constraint=a100"])).name
    '8 GPUs (A100) of cluster=default'
    >>> cluster_hardware(ClusterConfig()).name
    '1 GPU (assumed: H100) of cluster=default'
    """
    where = f"of cluster={cluster.name}"
    if not cluster.gpus:
        return cpu_hardware(cluster.cpus * cluster.workers, where)
    text = " ".join([cluster.name, cluster.partition or "", *cluster.options])
    return gpu_hardware(text, cluster.gpus * cluster.workers, where)


def hardware_of(cfg: RunConfig, on_cluster: bool) -> Hardware:
    """Return the hardware of a run's engine, on its cluster or on this machine."""
    if on_cluster:
        return cluster_hardware(cfg.cluster)
    if gpus := devices.visible_gpus() if devices.on_gpus(cfg) else []:
        names = program.hardware()["gpus"] or [""]  # empty for MIG instances
        return gpu_hardware(names[0], len(gpus), "here", devices.memory(gpus))
    return cpu_hardware(program.cores(), "here")


def step_s(hardware: Hardware, weights: float, active: float, caches: float, batch: int) -> float:
    """Return the seconds of a step; `weights`, `active` (weights per token), `caches` in bytes.

    A 4 B model with 71 sequences of 1.6 GB on an H200 samples about 1,600 tokens/s:

    >>> round(71 / step_s(gpu_hardware("H200", 1, "here"), 8e9, 8e9, 71 * 1.6e9, 71))
    1583
    """
    read = (weights + caches) / hardware.bandwidth
    computed = active * batch / hardware.speed  # two bytes and two operations per parameter
    processor = _STEP_S + _SEQUENCE_S * batch if hardware.gpus else _CORE_S * batch
    return processor + max(read, computed) / _EFFICIENCY


def sampling_cost(
    cfg: RunConfig,
    rows: Rows,
    pending: int,
    hardware: Hardware,
    mean: float | None = None,
    totals: Totals | None = None,
) -> Cost:
    """Estimate the cost of pending attempts.

    Args:
        cfg: the run's configuration.
        rows: the questions; if empty, every limit is `sampling.max_tokens`.
        pending: how many attempts.
        hardware: where they are sampled.
        mean: mean tokens of finished attempts, if any.
        totals: of the run's sessions, whose measured rate is used if they sampled anything.
    """
    limits = [row["max_tokens"] for row in rows] or [cfg.sampling.max_tokens]
    most = pending * sum(limits) / len(limits)
    if mean:
        cost = Cost(pending * mean, pending * mean, "the mean of those so far")
    else:
        cost = Cost(SHARE * most, most, f"a guess; {SHARE:.0%} of the limit, as in the paper")
    if kind(cfg.engine.name).served:
        return cost._replace(how="a server's GPUs are unknown")
    if totals and totals.completion_tokens and (taken := totals.gpu_s or totals.wall_s):
        rate = totals.completion_tokens / taken
        how = f"measured so far: {si(rate)} tokens/s per device"
        return cost._replace(seconds=cost.tokens / (rate * max(1, hardware.gpus)), how=how)
    try:
        seconds, how = _time_by_size(cfg, rows, pending, cost.tokens, hardware)
    except UserError as error:
        return cost._replace(how=str(error))
    return cost._replace(seconds=seconds, how=how)


def _time_by_size(
    cfg: RunConfig, rows: Rows, pending: int, tokens: float, hardware: Hardware
) -> tuple[float | None, str]:
    """Return the seconds by the sizes of model and hardware, and the arithmetic in words."""
    memory = (
        EngineMemory(cfg, rows, hardware.memory or 1) if models.local_folder(cfg.model) else None
    )
    if memory is None or not memory.weights or not memory.attempt:  # or only its config.json
        if not (weights := sizing.weight_bytes_by_name(cfg.model.id)):
            return None, "the weights are not on this machine yet"
        step = step_s(hardware, weights, weights, weights, 32)  # caches as large as the weights
        how = "by the size in the model's name; its weights are not on this machine yet"
        return tokens * step / (32 * max(1, hardware.gpus)), how
    size, batch = cfg.engine.tensor_parallel_size, cfg.engine.batch_size
    if size == AUTO:
        size = memory.gpus(hardware.gpus) if hardware.gpus else 1
    if batch == AUTO:
        batch = sizing.MAX_BATCH if hardware.gpus else sizing.DEFAULT_BATCH
    if hardware.gpus:
        batch = min(batch, memory.left(size) // memory.on_gpus(memory.attempt, size))
    if batch < 1:
        return None, f"the model does not fit in {gib(hardware.memory or 0)} of GPU memory"
    engines = max(1, hardware.gpus // size)
    batch = min(batch, -(-pending // engines))
    one = hardware._replace(bandwidth=hardware.bandwidth * size, speed=hardware.speed * size)
    own = models.read_config(cfg.model).get_text_config()
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = next(filter(None, (getattr(own, name, None) for name in names)), 1)
    used = (getattr(own, "num_experts_per_tok", None) or 1) if experts > 1 else 1
    active = memory.weights * min(1.0, used / experts)
    caches = batch * memory.on_gpus(memory.attempt, size)
    step = step_s(one, memory.weights, active, caches, batch)
    alone = step_s(one, memory.weights, active, memory.attempt, 1)
    longest = max((row["max_tokens"] for row in rows), default=cfg.sampling.max_tokens)
    # The last long attempts run alone.
    lost = _START_S[bool(hardware.gpus)] + memory.weights / 1e9 + alone * longest / 2
    return tokens * step / (batch * engines) + lost, (
        f"from the sizes of model and hardware; {_EFFICIENCY:.0%} of the bandwidth,"
        f" {batch} sequences of {gib(memory.attempt)} and {gib(memory.weights)} of weights,"
        f" so {si(batch / step)} tokens/s per engine, and {duration(lost)} to start and"
        " for the last attempts"
    )


def estimate(run: Run, rows: Rows, hardware: Hardware) -> Estimate:
    """Estimate a run's cost from its attempts so far, or from assumptions if there are none."""
    cfg, prompt = run.cfg, statistics.fmean(_prompt_lengths(rows))
    planned = len(rows) * cfg.sampling.trials
    usage = outcomes.usage(run, [row["question_id"] for row in rows])
    pending, mean = planned - usage.attempts, usage.completion_mean
    cost = sampling_cost(cfg, rows, pending, hardware, mean, usage.spent)
    paid = outcomes.price(cfg.engine, pending * prompt, cost.most)
    return Estimate(planned, pending, pending * prompt, cost, paid)


def _prompt_lengths(rows: Rows) -> list[int]:
    """Return the tokens of prompts; for chat turns, an estimate of four bytes per token."""
    return [len(row["prompt_token_ids"] or row["prompt"].encode()[::4]) for row in rows]


def dry_run(run: Run, on_cluster: bool = False) -> Estimate:
    """Print the first prompt, what is pending and its estimated cost, without writing anything.

    `on_cluster`: for all tasks of a run there, not this machine. Raises UserError: whatever
    `prepare` would raise.
    """
    cut: questions_table.Cut = {}
    try:
        built = questions_table.build(run)
    except NotHere as error:
        results.print(f"{error}; assuming {_ASSUMED_QUESTIONS} questions:")
        one: dict[str, Any] = {"prompt": " " * 800, "prompt_token_ids": None, "question_id": ""}
        rows = [one | {"max_tokens": run.cfg.sampling.max_tokens}] * _ASSUMED_QUESTIONS
    else:
        rows = built.rows()
        runfolder.check_same(run, built.identity, raising=True)
        cut = questions_table.check_raised(run, built)
        results.print(f"first prompt ({rows[0]['question_id']}, gold answer {rows[0]['gold']}):")
        results.print(textwrap.indent(rows[0]["prompt"], "  | ", lambda line: True))
        longest = max(_prompt_lengths(rows))
        results.print(f"questions: {len(rows)}, prompts of up to {longest} tokens")
    for line in card.lines(run.cfg):
        results.print(line)
    hardware = hardware_of(run.cfg, on_cluster)
    expected = estimate(run, rows, hardware)
    results.print(f"pending: {expected.pending} of {expected.planned} attempts, into {run.path}")
    parts: dict[str, Any] = expected._asdict() | {"cost": expected.cost._asdict()}
    parts |= {"protocol": card.protocol(run.cfg), "card": card.known(run.cfg.model)}
    print_json({"run": run.path, "questions": len(rows), **parts})
    if cut:
        limits = {row["question_id"]: row["max_tokens"] for row in rows}
        most = si(sum(limits[key[0]] - tokens for key, tokens in cut.items()))
        words = sizing.continued_in_words(run.cfg, cut.values())
        results.print(f"{words}, at most {most} tokens in addition to the estimate")
    if expected.pending or cut:
        for line in lines(run, expected, hardware):
            results.print(line)
    return expected


def lines(run: Run, expected: Estimate, hardware: Hardware) -> Iterator[str]:
    """Yield lines on tokens, disk, time, budget and price."""
    cost, cfg, prompts = expected.cost, run.cfg, si(expected.prompts)
    most = f"; at most {si(cost.most)}" * (cost.most > cost.tokens)
    yield f"tokens: about {si(cost.tokens)} ({_short(cost.basis)}){most}; prompts {prompts}"
    yield f"disk: about {si(BYTES_PER_TOKEN * cost.tokens)}B"
    how, taken = f" ({_short(cost.how)})" * bool(cost.how), "not known"
    if cost.seconds is not None:
        hours = f", {cost.seconds * hardware.gpus / 3600:.2g} GPU-hours" * bool(hardware.gpus)
        taken = f"about {duration(cost.seconds)}{hours} on {hardware.name}"
    yield f"time: {taken}{how}"
    if cfg.budget.given:
        yield spent.in_words(spent.account(cfg, spent.spent([run])))
    if expected.paid is not None:
        bound = "at most" if most else "about"
        yield f"price: {bound} {expected.paid:,.2f}, including {prompts} prompt tokens"


def _short(basis: str) -> str:
    """Drop the calculation, which follows the first ";", unless --verbose."""
    return basis if mode("verbose") else basis.partition(";")[0]


def summary(estimates: Mapping[str, Estimate], hardware: Hardware) -> Iterator[str]:
    """Yield a line on the cost of each run, and one on all of them, for `submit --dry-run`."""

    def in_words(parts: Collection[Estimate]) -> str:
        attempts, tokens = sum(one.pending for one in parts), sum(one.cost.tokens for one in parts)
        hours = sum(one.cost.seconds or 0 for one in parts) * max(1, hardware.gpus) / 3600
        size = si(BYTES_PER_TOKEN * tokens)
        return f"{attempts:,} attempts, {si(tokens)} tokens, {size}B, {hours:.2g} GPU-hours"

    for name, one in estimates.items():
        yield f"{name}: {in_words([one])} ({_short(one.cost.basis)}; {_short(one.cost.how)})"
    yield f"about {in_words(estimates.values())} on {hardware.name}"
