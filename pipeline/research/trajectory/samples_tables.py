"""The tables of stability by number of trials."""

from collections.abc import Sequence
from dataclasses import asdict

from pipeline.base.console import percent
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.display.table import Column, Table
from pipeline.research.trajectory import protocols
from pipeline.research.trajectory.stability import Row, names

_SHARE = "{:.3f}"
_GAIN = "{:+.3f}"


def samples_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """Stability and cost by number of trials."""
    columns = [
        *names(rows),
        Column("n", "n"),
        *_own("tau", "τ", r"$\tau$"),
        Column("tau_mean", "mean", format=_SHARE, group="boot τ"),
        Column("tau_low", "low", format=_SHARE, group="boot τ"),
        Column("tau_high", "high", format=_SHARE, group="boot τ"),
        Column("tau_b_mean", "τ_b", r"$\tau_b$", _SHARE, group="boot"),
        Column("down_mean", "down", format=_SHARE, group="boot"),
        Column("flat_mean", "flat", format=_SHARE, group="boot"),
        *(
            Column(key, key, format=_SHARE, wide=True)
            for key in ("tau_b_low", "tau_b_high", "tau_b_undefined")
        ),
        Column("cost", "model", format="{:.4g}", group="cost"),
        Column("cost_trajectory", "trajectory", format="{:.4g}", group="cost"),
        Column("cost_ratio", "to n = 1", format="{:.3g}", group="cost"),
        *(Column(key, key, wide=True) for key in ("points", "window", "metric", "k")),
    ]
    points = sorted({row["points"] for row in rows})
    prices = ", ".join(f"{name} {price:g}" for name, price in asdict(cfg.prices).items())
    notes = [
        f"boot: n trials of every question, mean and {percent(cfg.confidence)} interval"
        f" of {cfg.replicates} replicates drawn from all trials, seed {cfg.seed}, over the"
        f" {' or '.join(map(str, points))} steps that all windows share. τ counts ties as"
        " discordant; τ_b counts them neither way (mean over replicates that have one); down, flat:"
        " shares of the steps that go down, and neither up nor down",
        protocols.TIES,
        protocols.DRAWN,
        "avg@n and Pass@1 order checkpoints as Bayes@n does, at the same n: their τ is the same",
        f"cost: MaP's appendix C with measured tokens, prices per million tokens ({prices}); of one"
        f" model, and of the models at those {' or '.join(map(str, points))} steps",
        "own: of the attempts as they are, not of replicates: greedy, which has one attempt and"
        " nothing to draw, and all trials",
    ]
    return Table("stability and cost by number of trials", columns, rows, notes)


def pairs_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """Bayes@n against Pass@k on the same draws."""
    notes = [
        f"share of {cfg.replicates} replicates with n trials in which τ of Bayes@n is above, equal"
        " to or below that of Pass@k on the very same trials; gain: mean difference; τ_b: over the"
        " replicates in which both have one",
        protocols.TIES,
        protocols.DRAWN,
    ]
    return _against("Bayes@n against Pass@k, the same samples", "Bayes@n", (), rows, notes)


def gains_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """Merged windows against single checkpoints."""
    notes = [
        f"share of {cfg.replicates} replicates with n trials in which τ of merged windows is"
        " above, equal to or below that of single checkpoints, over the steps that all windows"
        f" share; gain: mean and {percent(cfg.confidence)} interval of the difference;"
        " τ_b: over the replicates in which both have one",
        protocols.TIES,
        f"{protocols.DRAWN}. Where none is missing merged and single are thus drawn jointly",
    ]
    title = "merged against single, the same number of samples"
    return _against(title, "merged", ("low", "high"), rows, notes)


def _against(
    title: str, of: str, ends: Sequence[str], rows: Sequence[Row], notes: list[str]
) -> Table:
    columns = [
        *names(rows),
        Column("n", "n"),
        *_compared(f"τ of {of}", "", *ends),
        *_compared(f"τ_b of {of}", "_b", *ends),
        *(Column(key, key, wide=True) for key in ("window", "metric", "k")),
    ]
    return Table(title, columns, rows, notes)


def _own(key: str, title: str, latex: str) -> list[Column]:
    """What attempts are like as they are, not drawn again."""
    more = (("tau_b", "own τ_b"), ("down", "own down"), ("flat", "own flat"))
    wide = [Column(name, head, format=_SHARE, wide=True) for name, head in more]
    return [Column(key, title, latex, _SHARE, group="own"), *wide]


def _compared(group: str, end: str, *ends: str) -> list[Column]:
    """Above, equal and below, the mean difference, and the ends of its interval."""
    shares = [
        Column(f"{key}{end}", key, format=_SHARE, group=group)
        for key in ("above", "equal", "below")
    ]
    gain = {"difference": "gain"} | {name: name for name in ends}
    return shares + [
        Column(f"{key}{end}", head, format=_GAIN, group=group) for key, head in gain.items()
    ]
