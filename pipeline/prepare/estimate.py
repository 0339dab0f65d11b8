"""What sampling and judging take, before anything is spent: one estimate for all who ask for it.

A step of an engine makes a token of every sequence. For that it reads the weights and all caches
once and computes two operations a parameter and a sequence, whichever takes longer; some time goes
to the processor beside. So memory bandwidth says how fast reasoning models are sampled. Where a run
has sessions, their measured rate counts instead. Every number that is assumed is named.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base import environment
from bayes_at_n.pipeline.base.console import clock, count, counted
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.resources import ClusterConfig
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.prepare import models, sizing
from bayes_at_n.pipeline.prepare.sizing import Room, gib
from bayes_at_n.pipeline.store.sessions import Totals
from bayes_at_n.pipeline.workers import devices

# Of attempts/ on the disk; measured on random ids, log-probs and text, which hardly compress.
BYTES_PER_TOKEN = 7.6
SHARE = 0.46  # of max_tokens, the mean attempt of the paper's cohort: 2,926 M tokens of 6,291 M
_REACHED = 0.6  # of a GPU's bandwidth and arithmetic
# Beside a GPU's work, of a step and of each sequence in it; from an H100, see docs/benchmarks.md.
_STEP_S, _SEQUENCE_S = 1.2e-3, 2e-5
_CORE_S = 3e-4  # the same of a sequence where a core does all: the demo on two cores
_CORE = 5e9, 3e10  # bytes and operations a second of a core
_START_S = {True: 80.0, False: 20.0}  # until an engine samples, on GPUs or not, and a GB a second
_ASKED = 300  # tokens of a verifier's question around the attempt

# GB of memory, TB/s and dense 16-bit TFLOP/s, by the makers' data sheets; the first that fits.
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
    """What a run may use."""

    told: str
    gpus: int  # 0: the processor
    memory: int | None  # bytes of a GPU
    bandwidth: float  # bytes a second, of a GPU or of all cores
    speed: float  # operations a second in 16 bits


class Cost(NamedTuple):
    """What the attempts that are owed are expected to take."""

    tokens: float  # of completions
    most: float  # at most so many
    basis: str  # what that rests on
    seconds: float | None = None  # None: not known, and `how` says why
    how: str = ""


class Judging(NamedTuple):
    """What a verifier needs."""

    attempts: int
    tokens: float  # to read
    seconds: float | None = None  # None: not known
    memory: int = 0  # bytes of its engine's weights and of the longest attempt
    how: str = ""  # what keeps it from being known well


def seen(names: Sequence[str], memory: int | None, cores: int) -> Hardware:
    """This machine: its GPUs, by the names that their driver has for them, or its cores.

    >>> seen(["NVIDIA H200, 143771 MiB"], 150754820096, 8)[:3]
    ('1 GPU (H200) here', 1, 150754820096)
    >>> seen([], None, 2).told
    '2 cores here'
    """
    if not names:
        return Hardware(f"{counted(cores, 'core')} here", 0, None, *(cores * x for x in _CORE))
    return _of(names[0], len(names), "here", memory)


def of_cluster(cluster: ClusterConfig) -> Hardware:
    """What all tasks of a run have on a cluster; which GPUs these are its settings may tell.

    >>> of_cluster(ClusterConfig(gpus=4, workers=2, options=["--constraint=a100"])).told
    '8 GPUs (A100) of cluster=default'
    >>> of_cluster(ClusterConfig()).told
    '1 GPU (which is not said: as an H100) of cluster=default'
    """
    where = f"of cluster={cluster.name}"
    if not cluster.gpus:
        cores = cluster.cpus * cluster.workers
        return seen([], None, cores)._replace(told=f"{counted(cores, 'core')} {where}")
    words = " ".join([cluster.name, cluster.partition or "", *cluster.options])
    return _of(words, cluster.gpus * cluster.workers, where, None)


def here(cfg: RunConfig) -> Hardware:
    """Return what the engine of a run has on this machine."""
    gpus = devices.visible_gpus() if devices.on_gpus(cfg) else []
    names = environment.hardware()["gpus"][: len(gpus)]
    names += ["GPU"] * (len(gpus) - len(names))  # parts of one
    return seen(names, devices.memory(gpus), environment.cores())


def _of(words: str, number: int, where: str, memory: int | None) -> Hardware:
    known = [name for name in _GPUS if re.search(rf"(?<![a-z0-9]){name}(?![0-9])", words, re.I)]
    name = known[0] if known else "H100"
    size, bandwidth, speed = _GPUS[name]
    which = name if known else f"which is not said: as an {name}"
    told = f"{counted(number, 'GPU')} ({which}) {where}"
    return Hardware(told, number, memory or size * 10**9, bandwidth * 1e12, speed * 1e12)


def step_s(used: Hardware, weights: float, active: float, caches: float, batch: int) -> float:
    """Seconds of a step; `weights`, `active` (what a token uses of them) and `caches` in bytes.

    A 4 B model with 71 sequences of 1.6 GB on an H200 makes about 1,600 tokens a second:

    >>> h200 = seen(["H200"], None, 1)
    >>> round(71 / step_s(h200, 8e9, 8e9, 71 * 1.6e9, 71))
    1583
    """
    read = (weights + caches) / used.bandwidth
    reckoned = active * batch / used.speed  # two bytes a parameter, two operations
    beside = _STEP_S + _SEQUENCE_S * batch if used.gpus else _CORE_S * batch
    return beside + max(read, reckoned) / _REACHED


def expected(
    cfg: RunConfig,
    rows: Sequence[Mapping[str, Any]],
    owed: int,
    used: Hardware,
    mean: float | None = None,
    spent: Totals | None = None,
) -> Cost:
    """What `owed` attempts take: `mean` tokens each, if that is known, at the rate of `spent`."""
    limits = [row["max_tokens"] for row in rows] or [cfg.sampling.max_tokens]
    most = owed * sum(limits) / len(limits)
    if mean:
        cost = Cost(owed * mean, owed * mean, "the mean of those so far")
    else:
        cost = Cost(SHARE * most, most, f"assumed: {SHARE:.0%} of the limit, as in the paper")
    if kind(cfg.engine.name).served:
        return cost._replace(how="a server's GPUs are not known here")
    if spent and spent.completion_tokens and (taken := spent.gpu_s or spent.wall_s):
        rate = spent.completion_tokens / taken
        taken_s = cost.tokens / (rate * max(1, used.gpus))
        return cost._replace(seconds=taken_s, how=f"measured so far: {count(rate)} tokens/s each")
    try:
        return _reckoned(cost, cfg, rows, owed, used)
    except UserError as error:
        return cost._replace(how=str(error))


def _reckoned(
    cost: Cost, cfg: RunConfig, rows: Sequence[Mapping[str, Any]], owed: int, used: Hardware
) -> Cost:
    """With the time that the sizes of model and hardware allow."""
    if not sizing.is_here(cfg.model):
        size = sizing.by_name(cfg.model.id) or 0  # and as much again the caches of 32 sequences
        rate = size and 32 / step_s(used, size, size, size, 32) * max(1, used.gpus)
        how = "the model is not here yet" + ", and goes by its name" * bool(size)
        return cost._replace(seconds=cost.tokens / rate if rate else None, how=how)
    room = Room(cfg, rows, used.memory or 1)
    if not room.weights or not room.attempt:
        return cost._replace(how="the size of the model is not known")
    size = cfg.engine.tensor_parallel_size
    if size == AUTO:
        size = room.gpus(used.gpus) if used.gpus else 1
    engines = max(1, used.gpus // size)
    auto = sizing.MOST if used.gpus else sizing.USUAL
    batch = auto if cfg.engine.batch_size == AUTO else cfg.engine.batch_size
    if used.gpus:
        batch = min(batch, room.left(size) // room.each(room.attempt, size))
    if batch < 1:
        return cost._replace(how=f"the model does not fit {gib(used.memory or 0)} of a GPU")
    batch = min(batch, -(-owed // engines))
    one = used._replace(bandwidth=used.bandwidth * size, speed=used.speed * size)
    active = room.weights * _active(cfg)
    step = step_s(one, room.weights, active, batch * room.each(room.attempt, size), batch)
    alone = step_s(one, room.weights, active, room.attempt, 1)
    longest = max((row["max_tokens"] for row in rows), default=cfg.sampling.max_tokens)
    # The last long attempts run by themselves.
    lost = _START_S[bool(used.gpus)] + room.weights / 1e9 + alone * longest / 2
    taken_s = cost.tokens * step / (batch * engines) + lost
    told = (
        f"assumed: {_REACHED:.0%} of its bandwidth; {batch} sequences of {gib(room.attempt)} beside"
        f" {gib(room.weights)} of weights, so {count(batch / step)} tokens/s an engine, and"
        f" {clock(lost)} to start and for the last ones"
    )
    return cost._replace(seconds=taken_s, how=told)


def _active(cfg: RunConfig) -> float:
    """The share of the weights that a token uses: of experts those that are asked."""
    own = models.read_config(cfg.model).get_text_config()
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    experts = next(filter(None, (getattr(own, name, None) for name in names)), None)
    return min(1.0, (getattr(own, "num_experts_per_tok", 1) or 1) / experts) if experts else 1.0


def judging(cfg: RunConfig, attempts: int, tokens: float, used: Hardware) -> Judging | None:
    """What the verifier needs for so many attempts of so many tokens each; None: there is none."""
    if cfg.verifier.id is None or "verify" not in cfg.stages:
        return None
    model, engine = (judge := verifier_as_model(cfg)).model, judge.engine
    each, attended = tokens + _ASKED, 0.0
    need = Judging(attempts, attempts * each)
    if kind(engine.name).served:
        return need._replace(how="by a server")
    if not sizing.is_here(model):  # nobody is asked: where there is no network, that takes long
        weights, cache = sizing.by_name(model.id), 0
        need = need._replace(how="it is not here yet" + ", and goes by its name" * bool(weights))
    else:
        limit, weights = models.context(model), sizing.weights(model)
        each, own = min(each, limit), models.read_config(model).get_text_config()
        # Four operations for every number of a layer and each token before: half of its prompt.
        attended = 2 * each * own.num_hidden_layers * own.hidden_size
        cache = sizing.cache(model, min(cfg.sampling.max_tokens + _ASKED, limit)) or 0
    if weights is None:
        return need._replace(how=need.how or "its size is not known")
    rate = used.speed * _REACHED * max(1, used.gpus) / (weights + attended)
    taken_s = attempts * each / rate + _START_S[bool(used.gpus)] + weights / 1e9
    need = need._replace(seconds=taken_s, tokens=attempts * each)
    return need._replace(memory=weights + cache + sizing.BESIDE * bool(used.gpus))
