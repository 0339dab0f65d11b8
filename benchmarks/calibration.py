"""Which calibration of a verifier can be trusted: synthetic verifiers with known truth.

    python -m benchmarks.calibration                       1,000 settings, about half a minute
    python -m benchmarks.calibration --figure FILE.png     the picture of docs/verifier.md

A setting is a verifier and questions. The truth y of an attempt is drawn from its question's shares
of A, B and C; evidence is z = a e_y + noise of variance 1 in three directions, so that a z is its
log-likelihood; the verifier says softmax(o a z + bias + bias of the question). Sharpness a is .8
(weak) to 4 (never wrong), over-confidence o is 1 to 2, half of the verifiers are biased (by 1.5
nats a label), shares are random, from hard to easy datasets. The grader misses up to 3 % of what
is right. Without content a verifier shows its bias and noise; and, since such a prompt may have a
right label, it may also say it, the surer the sharper it is: C with only the response replaced
(question), C, A, B or nothing with all fields replaced (contextual), B, C or nothing of random
words (domain). Baselines are made on half of the questions, log-loss is measured on the other half,
against none at the same T = 1.5. Clipped, those without content move A against B only; without a
clip they are the printed formula's, of all three labels.

Then one verifier of known bias, of 50,000 attempts: labels gained and turned wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.verifiers.judge.calibration import (
    CLIP,
    Floats,
    Ints,
    a_against_b,
    baseline,
    calibrate,
    clipped,
    direct,
    log_softmax,
    lowers_loss,
    of_attempts,
)
from bayes_at_n.verifiers.judge.quality import nll
from benchmarks import common

KINDS = ("graded", "contextual", "question", "domain", "batch")
CLIPS = (CLIP, None)
TRIALS = 16
CONTENT_FREE = ("contextual", "question", "domain")


def turned(logprobs: Floats, bases: Floats) -> float:
    """Return the share of attempts whose label a baseline changes."""
    return float((direct(logprobs).argmax(1) != calibrate(logprobs, bases, 1.0).argmax(1)).mean())


def main() -> None:
    """Simulate, and report."""
    parser = common.parser(__doc__, settings=1000)
    parser.add_argument("--figure", type=Path, metavar="FILE.png")
    args = parser.parse_args()
    rng = np.random.default_rng(20261122)
    settings = [one_setting(rng) for _ in range(args.settings)]
    biased = np.array([setting["biased"] for setting in settings])
    found = {(kind, clip): judged(settings, kind, clip) for kind in KINDS for clip in CLIPS}
    rows = [_row(kind, clip, *found[kind, clip], biased) for kind, clip in found]
    heads = ["calibration", "clip", "worse", "> .001", "better", "turned", "biased", "unbiased"]
    common.table(
        f"log-loss against none, {args.settings} settings; better: of {biased.sum()} biased",
        heads,
        rows,
    )
    _known_bias()
    if args.figure:
        _draw(args.figure, {kind: found[kind, CLIP] for kind in KINDS}, biased)
    common.finish(args, {"rows": [dict(zip(heads, row, strict=True)) for row in rows]})


def one_setting(rng: np.random.Generator) -> dict[str, Any]:
    """A verifier, what it says of attempts, and what it says without content."""
    sharp, over, biased = rng.uniform(0.8, 4), rng.uniform(1, 2), rng.random() < 0.5
    bias = rng.normal(0, 1.5, 3) * biased
    questions, shares = int(rng.choice([30, 60, 120])), rng.dirichlet([2, 2, 0.7])
    of_question = np.array([rng.dirichlet(4 * shares + 0.05) for _ in range(questions)])
    drawn = rng.random((questions, TRIALS, 1)) > of_question.cumsum(axis=1)[:, None, :2]
    truth = drawn.sum(axis=-1)
    tilt = rng.normal(0, 0.3, (questions, 1, 3))
    evidence = rng.normal(0, 1, (questions, TRIALS, 3)) + sharp * np.eye(3)[truth]
    missed = (truth == 0) & (rng.random(truth.shape) < rng.uniform(0, 0.03))

    def without(label: int | None, share: float, shape: tuple[int, ...], own: Any = 0.0) -> Floats:
        """Content-free log-probs; `label`: the verdict on such a prompt, at a share of evidence."""
        said = bias + own + rng.normal(0, 0.5, shape)
        more = 0 if label is None else over * sharp**2 * share * np.eye(3)[label]
        return log_softmax(said + more)

    alone = rng.choice([None, 2, 0, 1], p=[0.4, 0.3, 0.2, 0.1])
    words = rng.choice([None, 1, 2], p=[0.4, 0.3, 0.3])
    blank = (3, questions, 1, 3)
    return {
        "biased": biased,
        "truth": truth,
        "graded": np.where(missed, 1, truth),
        "logprobs": log_softmax(over * sharp * evidence + bias + tilt),
        "contextual": baseline(without(alone, rng.uniform(0.2, 1), (3, 3))),
        "domain": baseline(without(words, rng.uniform(0.1, 0.6), (20, 3))),
        "question": baseline(without(2, rng.uniform(0.2, 1), blank, tilt)),
    }


def judged(settings: list[dict[str, Any]], kind: str, clip: float | None) -> tuple[Any, Any]:
    """Of every setting: change of held-out log-loss, labels changed."""
    found = []
    for setting in settings:
        half = len(setting["truth"]) // 2
        logprobs, truth = setting["logprobs"][half:], setting["truth"][half:].ravel()
        raw = raw_baseline(setting, kind, half, clip)
        base = np.broadcast_to(bounded(raw, kind, clip), logprobs.shape)
        flat, bases = logprobs.reshape(-1, 3), base.reshape(-1, 3)
        found.append((_gain(flat, bases, truth), turned(flat, bases)))
    change, changed = np.array(found).T
    return change, changed


def bounded(raw: Floats, kind: str, clip: float | None = CLIP) -> Floats:
    """As the verify stage does: content-free baselines of A against B only, unless as printed."""
    of_two = kind in CONTENT_FREE and clip is not None
    return clipped(a_against_b(raw) if of_two else raw, clip)


def graded(logprobs: Floats, truth: Ints, questions: Ints, clip: float | None = CLIP) -> Floats:
    """As the verify stage does: zeros where it does not lower the loss of what it is made of."""
    base = clipped(of_attempts(logprobs, truth), clip)
    return base * lowers_loss(logprobs, base, truth, questions)


def raw_baseline(setting: dict[str, Any], kind: str, half: int, clip: float | None) -> Floats:
    """The baseline of a kind: of the first half of the questions, or without content."""
    seen = setting["logprobs"][:half].reshape(-1, 3)
    if kind == "graded":
        return graded(seen, setting["graded"][:half].ravel(), np.arange(len(seen)) // TRIALS, clip)
    if kind == "batch":
        return of_attempts(seen)
    found: Floats = setting[kind][half:] if kind == "question" else setting[kind]
    return found


def _gain(logprobs: Floats, bases: Floats, truth: Ints) -> float:
    none = calibrate(logprobs, np.zeros(3))
    return nll(calibrate(logprobs, bases), truth) - nll(none, truth)


def _known_bias() -> None:
    """A verifier that is biased by so many nats: what each calibration makes of its labels."""
    rng, n, sharp = np.random.default_rng(31), 50_000, 2.0

    def said(right: float, bias: Floats) -> tuple[Ints, Floats]:
        truth = rng.choice(3, n, p=[right, 0.9 * (1 - right), 0.1 * (1 - right)])
        evidence = rng.normal(0, 1, (n, 3)) + sharp * np.eye(3)[truth]
        return truth, log_softmax(1.3 * sharp * evidence + bias)

    def baselines(truth: Ints, logprobs: Floats, bias: Floats, verdict: int) -> dict[str, Floats]:
        free = log_softmax(bias + 6 * np.eye(3)[verdict])  # sure of what it reads, too
        bases = {"none": np.zeros(3), "contextual": bounded(free, "contextual")}
        return bases | {"printed": free, "graded": clipped(of_attempts(logprobs, truth))}

    rows = list[list[str]]()
    for nats, verdict in (*((nats, 2) for nats in (-4, -2, 0, 2, 4, 6)), (0, 0)):
        bias = nats * np.eye(3)[0]
        truth, logprobs = said(0.5, bias)
        before = logprobs.argmax(axis=1) == truth
        for kind, base in baselines(truth, logprobs, bias, verdict).items():
            after = calibrate(logprobs, base).argmax(axis=1) == truth
            shares = after, after & ~before, before & ~after, after[truth == 2]
            row = [f"A {nats:+d}", "ABC"[verdict], kind]
            rows.append([*row, *(f"{share.mean():.3f}" for share in shares)])
    heads = ["bias, nats", "says of nothing", "calibration", "right", "gained", "turned wrong"]
    common.table("labels of a biased verifier", [*heads, "right of C"], rows)


def _row(kind: str, clip: float | None, change: Any, changed: Any, biased: Any) -> list[Any]:
    return [
        kind,
        "-" if clip is None else f"{clip:g}",
        f"{(change > 0).mean():.1%}",
        f"{(change > 0.001).mean():.1%}",
        f"{(change < 0)[biased].mean():.1%}",
        f"{changed.max():.0%}",
        f"{change[biased].mean():+.3f}",
        f"{change[~biased].mean():+.3f}",
    ]


def _draw(path: Path, found: dict[str, tuple[Any, Any]], biased: Any) -> None:
    """Settings in the order of their change of log-loss, biased and unbiased verifiers apart."""
    from bayes_at_n.pipeline.display import style

    looks = style.palette(len(found))

    @style.styled
    def figure() -> Any:
        made, panels = style.panels(
            7.2, 4.0, "Calibrations of 1,000 synthetic verifiers", columns=2
        )
        for axes, which, name in zip(
            panels, (biased, ~biased), ("biased", "unbiased"), strict=True
        ):
            for look, (kind, (change, _)) in zip(looks, found.items(), strict=True):
                shown = np.sort(change[which])
                axes.plot(np.linspace(0, 100, shown.size), shown, label=kind, **look, markevery=0.2)
            axes.axhline(0, color=style.GREY, linewidth=1)
            axes.set(ylim=(-0.5, 0.5), xlabel=f"% of {which.sum()} {name} verifiers")
        panels[0].set_ylabel("log-loss above that of none, nats")
        style.legend(made, *panels[0].get_legend_handles_labels(), columns=5)
        return made

    figure().savefig(path, dpi=120)


if __name__ == "__main__":
    common.main(main)
