"""What `score` found, as people read it: a line, a table and what to beware of."""

from collections.abc import Mapping, Sequence
from typing import Any

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import clock, count, counted, results, warn
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.score import stopped
from bayes_at_n.pipeline.score.headline import apart, intervals, ordered, shared_luck
from bayes_at_n.scoring.metrics.table import Metric, parse

Parts = Mapping[str, Any]


def line(scores: Parts) -> str:
    """The score in a line: the headline and, beside it, the other of avg@N and Bayes@N.

    Such as "a on d: avg@8 0.510 (95%: 0.496 to 0.524), Bayes@8 0.510 (0.497 to 0.523)".
    """
    uniform, level = scores["uniform_prior"], f"{scores['confidence']:.0%}: "
    told: list[str] = []
    for name in (n for n in ordered(scores.get("headline", "avg")) if n in uniform):
        value, sigma, low, high = [*uniform[name].values()][:4]
        form, title = f".{display.decimals([sigma])}f", parse(name).title(scores["trials"])
        ends = f"{level * (not told)}{low:{form}} to {high:{form}}"
        told.append(f"{title} {value:{form}} ({ends})")
    return f"{scores['model']} on {scores['dataset']}: {', '.join(told)}"


def show(scores: Parts, metrics: Sequence[Metric]) -> None:
    """Print the table of scores, the outcomes and the cost."""
    cost = scores["cost"]
    columns = [
        Column("metric", "metric", align="left"),
        Column("value", "value", sigma="sigma"),
        Column("sigma", "σ", sigma="sigma"),
        Column("interval", f"{scores['confidence']:.0%} interval", sigma="sigma"),
    ]
    title = f"{scores['model']} on {scores['dataset']}"
    fitted = scores["uniform_prior"].get("avg", {}).get("fitted", False)
    notes = [f"intervals: {intervals({scores['model']: fitted})}"]
    display.show(Table(title, columns, rows(scores, metrics), notes))
    shares = ", ".join(f"{name} {share:.1%}" for name, share in scores["shares"].items() if share)
    size = f"{counted(scores['questions'], 'question')}, {counted(scores['attempts'], 'attempt')}"
    results.print(f"{size}: {shares}")
    places = scores.get("gold_places", {}).items()
    if parts := [f"{k} {v['mean']:.3f} ({v['low']:.3f} to {v['high']:.3f})" for k, v in places]:
        results.print(f"accuracy by the gold answer's place: {', '.join(parts)}")
    rate = f", {count(cost['tokens_per_s'])} tokens/s" if cost["tokens_per_s"] else ""
    paid = f", at a price of {cost['price']:,.2f}" if "price" in cost else ""
    if sampled := cost["completion_tokens"]:
        took = f" in {clock(cost['wall_s'])}" if cost["wall_s"] else ""  # no import says
        results.print(f"{count(sampled)} tokens sampled{took}{rate}{paid}")
    if rubrics := scores.get("rubrics"):
        results.print(f"{len(rubrics)} rubrics: {PROGRAM} score {scores['run']} rubrics")


def beware(scores: Parts) -> None:
    """Warn of what makes an interval say more than it knows."""
    uniform = scores["uniform_prior"]
    if luck := uniform.get("avg", {}).get("inflation"):
        found, name = [luck[key] for key in scoring.Inflation._fields], f"avg@{scores['trials']}"
        sigma = uniform["avg"]["sigma"]
        for text in shared_luck([name], scoring.Inflation(*found), sigma, scores["confidence"]):
            warn(text)
    if how := scores.get("stopped"):
        texts = stopped.lines({scores["model"]: how}, scores["confidence"])
    else:
        texts = apart({scores["model"]: uniform["bayes"].get("shrinkage", 0.0)})
    for text in texts:
        warn(text)


def rows(scores: Parts, metrics: Sequence[Metric]) -> list[dict[str, Any]]:
    """A row for each metric; below Bayes@N and avg@N what stands beside them."""
    uniform, found = scores["uniform_prior"], []

    def add(name: str, parts: Parts | None) -> None:
        if parts is not None:
            value, sigma, low, high = list(parts.values())[:4]
            found.append({"metric": name, "value": value, "sigma": sigma, "interval": (low, high)})

    for metric in metrics:
        title = metric.title(scores["trials"])
        if title == "Pass@1" and "avg" in scores["metrics"]:
            continue  # the same number
        prior_said = " (uniform prior)" * (metric.name == "bayes")
        add(f"{title}{prior_said}", scores["metrics"][metric.name])
        if metric.name == "bayes":
            if prior := scores.get("prior"):
                weighed = f" as {prior['weight']:g}" if "weight" in prior else ""
                add(f"{title} (prior: {prior['trials']} trials{weighed})", scores["with_prior"])
            add("  were all undecided correct", uniform.get("bayes_if_undecided_were_correct"))
        elif metric.name == "avg" and "stderr_over_questions" in uniform["avg"]:
            error = uniform["avg"]["stderr_over_questions"]
            found.append({"metric": "  questions as a sample", "sigma": error})
        if error := scores["metrics"][metric.name].get("error"):
            found.append({"metric": "  of it by random subsets", "sigma": error})
    if how := scores.get("stopped"):
        interval = (how["low"], how["high"])
        found.append({"metric": "mean of rounds", "value": how["mean"], "interval": interval})
    return found
