"""compare BASE NEW gate=policy.yaml: may NEW go out? GO, NO-GO or INCONCLUSIVE.

Each dataset is a race of two models that is looked at after every trial; its e-values are about
what the policy requires of NEW - BASE. docs/compare.md has the proof that one may ask every night.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.adaptive import live, looks, race
from bayes_at_n.pipeline.adaptive.plan import Contender, Goal, Plan
from bayes_at_n.pipeline.adaptive.race import Basis, Course, Outcomes, State, upcoming
from bayes_at_n.pipeline.base.console import joined, note, percent, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort, comparison
from bayes_at_n.pipeline.compare.claims import corrected
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config import analysis as config
from bayes_at_n.pipeline.config.analysis import CompareConfig, Policy
from bayes_at_n.pipeline.config.multirun import Decision
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.generate import attempts
from bayes_at_n.pipeline.store import runfolder, selection
from bayes_at_n.pipeline.store.outcomes import Codes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent, stopping
from bayes_at_n.scoring import Comparison
from bayes_at_n.scoring.sequential import Race, Target, claimed

BASE, NEW = 0, 1
VERDICTS = {  # by the fate of datasets that decides, the first first: also the exit status
    "fails": ("NO-GO", 3, "{new} does not meet the requirements on {sets}"),
    "open": ("INCONCLUSIVE", 4, "the requirements on {sets} are undecided"),
    "holds": ("GO", 0, "{new} meets the requirements on {sets}"),
}


class Part(NamedTuple):
    """One dataset of a policy, and what is known of it."""

    bound: float  # what NEW - BASE must exceed
    cohort: Cohort  # BASE and NEW
    state: State  # after the last trial that both have of every question
    basis: Basis  # whether attempts are independent; else bets are on whole trials
    fate: str = "open"  # or holds, or fails
    labels: Comparison | None = None  # of NEW - BASE corrected by human labels, if both have some


def compare(cfg: CompareConfig) -> int:
    """Compare runs; with `gate=FILE` decide whether the second model may replace the first.

    Returns the exit status.
    """
    if cfg.gate.policy is None:
        comparison.compare(cfg)
        return 0
    policy = config.load_policy(cfg.gate.policy)
    parts, why = read(cfg, policy), "settle=true continues sampling"
    folder = selection.results_folder(cfg, "gate", [p.cohort.members[0].run.path for p in parts])
    if cfg.gate.settle:
        folder.mkdir(parents=True, exist_ok=True)
        parts, why = sample(cfg, policy, parts, folder)
    (base, new), fate, board = parts[0].cohort.names, deciding(parts), table(parts, policy)
    verdict, status, words = VERDICTS[fate]
    if any(part.labels and part.state.known.settled and part.fate == "open" for part in parts):
        why = "human labels do not agree, or are too few: `label` more"
    sets = joined(part.cohort.dataset for part in parts if part.fate == fate)
    often = ", at any look" * (not any(part.labels for part in parts))
    rest = f"; {why}" if fate == "open" else f"; {percent(policy.confidence)} sure{often}"
    sentence = f"{verdict}: {words.format(new=new, sets=sets)}, on these questions{rest}"
    record: dict[str, Any] = {"verdict": verdict, "sentence": sentence, "base": base, "new": new}
    record |= {"policy": asdict(policy), "datasets": board.rows, "notes": board.notes}
    display.show(board)
    results.print("\n".join(["", *(row["sentence"] for row in board.rows), "", sentence]))
    display.print_json(record)
    note(f"saved {selection.write_results(folder, 'gate', record, {'gate': board})[-1]}")
    return status


def deciding(parts: Sequence[Part]) -> str:
    """Return the fate of datasets that decides the gate: one that fails, or else is open."""
    return next(fate for fate in VERDICTS if fate in [part.fate for part in parts])


def read(cfg: CompareConfig, policy: Policy) -> list[Part]:
    """Decide from what the runs of BASE and NEW hold by now, in the order of the policy."""
    named = cfg.dataset or ([] if cfg.folders else [*policy.datasets])
    cohorts = {of.dataset: of for of in cohort.load(replace(cfg, dataset=named))}
    if others := [name for name in cohorts if name not in policy.datasets]:
        warn(f"{joined(others)}: not in {cfg.gate.policy}, so not used by the gate")
    parts, level = [], (1 - policy.confidence) / 2
    for name, requires in policy.datasets.items():
        found = cohorts.get(name)
        if found is None or len(found.names) != 2:
            there = f"found {joined(found.names)}" if found else "it has no selected runs"
            raise UserError(
                f"gate={cfg.gate.policy}: datasets.{name}: {there}; name two, model=BASE,NEW"
            )
        codes = scoring.values(found.matrix()).filled(-1)
        if not (whole := int((codes >= 0).all(axis=(0, 1)).cumprod().sum())):
            raise UserError(f"{name}: some question has no graded trial; run `grade` or `run`")
        seeds = looks.seeds_of([member.run for member in found.members])
        known = Outcomes(found.names, codes[:, :, :whole], np.zeros((2, whole), int), seeds, [])
        basis = race.basis(known, np.full(2, whole), None)
        [state] = states(codes, [whole], requires.bound, policy, not basis.dependent)
        parts.append(Part(requires.bound, found, state, basis))
    e = np.array([part.state.known.log_e for part in parts])
    holds, fails = claimed(e[:, NEW, BASE], level), claimed(e[:, BASE, NEW], level)
    sure = 1 - 2 * level / len(parts)
    for i, part in enumerate(parts):
        if by_people := corrected(part.cohort, sure):  # outcomes alone are no proof then
            (base, new), (s_base, s_new), *_ = by_people[1]
            people = scoring.compare_scores(new, s_new, base, s_base, sure)
            holds[i] &= people.lo > part.bound
            fails[i] &= people.hi < part.bound
            parts[i] = part._replace(labels=people)
    fates = np.where(fails, "fails", np.where(holds, "holds", "open")).tolist()
    return [part._replace(fate=fate) for part, fate in zip(parts, fates, strict=True)]


def states(
    codes: Codes, looks: Sequence[int], bound: float, policy: Policy, sound: bool
) -> Iterator[State]:
    """Yield what is known of one dataset after so many trials, as far as outcomes reach.

    `codes` are (2, M, N) of BASE and NEW: 1 correct, 0 not, -1 pending. In `State.known` the log
    e-values are about the bound, each the largest so far: [NEW, BASE] that the difference is above,
    [BASE, NEW] below. Settled is what needs no more trials for a GO, or for a NO-GO by itself.
    `sound`: attempts are independent, and not only trials.
    """
    kind: Any = "attempts" if sound else "trials"
    race = Race(2, codes.shape[1], Target("order"), policy.confidence, independent=kind)
    beyond, ones = np.array([[0.0, -bound], [bound, 0.0]]), np.ones(codes.shape[:2], int)
    needed, log_e, done = np.log(2 / (1 - policy.confidence)), np.zeros((2, 2)), 0
    for number, trials in enumerate(looks, 1):
        if codes.shape[2] < trials or (codes[:, :, done:trials] < 0).any():
            return
        for trial in range(done, trials):
            race.add(codes[:, :, trial], ones)
            log_e = np.maximum(log_e, race.log_e_beyond(beyond))
        done, fails = trials, needed + np.log(len(policy.datasets))
        settled = bool(log_e[NEW, BASE] >= needed or log_e[BASE, NEW] >= fails)
        known = race.look()._replace(log_e=log_e, log_needed=float(needed), settled=settled)
        known = known._replace(open=np.full(2, not settled))
        yield State(number, trials, np.full(2, trials), np.ones(2, bool), known)


def sample(
    cfg: CompareConfig, policy: Policy, parts: list[Part], folder: Path
) -> tuple[list[Part], str]:
    """Sample until it is decided, one dataset after the other; return why it ended otherwise."""
    for i in range(len(parts)):
        if deciding(parts) == "open" and not parts[i].state.known.settled:
            why = _sample(cfg, policy, parts, i, folder)
            parts = read(cfg, policy)
            if why:
                return parts, why
    return parts, f"all {policy.trials} trials are used"


def _sample(cfg: CompareConfig, policy: Policy, parts: list[Part], i: int, folder: Path) -> str:
    """Sample one dataset until it is settled; return what the budget forbids, if it does."""
    bound, of, sound = parts[i].bound, parts[i].cohort, not parts[i].basis.dependent
    others = [m.run for part in parts if part.cohort is not of for m in part.cohort.members]
    runs = [replace(member.run.cfg, budget=cfg.budget) for member in of.members]
    left = replace(cfg.budget, **spent.left(runs[0], spent.spent(others)))
    contenders = [
        Contender(name, [Run(replace(run, budget=left))], [], [run.run_dir])
        for name, run in zip(of.names, runs, strict=True)
    ]
    goal = Goal(Decision(until=f"above:{of.names[BASE]}"), of.names, policy.trials)
    planned, why = Plan(goal, contenders, folder, []), ""
    note(f"{of.dataset}: {' and '.join(of.names)}, up to {policy.trials} trials")
    with stopping.requests() as stop, live.Samplers(planned, stop) as samplers:
        while True:
            known = looks.of_contenders(contenders, policy.trials)
            seen = [*states(known.codes, goal.looks, bound, policy, sound)]
            tokens = np.array([known.tokens[:, : one.trials].sum(axis=1) for one in seen])
            course = Course(goal, seen, tokens, known.codes.shape[1])
            if not upcoming(seen, goal)[0] or (why := samplers.sample(course, known)):
                break
    for contender in contenders:
        attempts.leave(runfolder.open_run(contender.runs[0].path))
    if seen:
        live.mark(planned, seen[-1], np.zeros(2, bool))
    return why


def table(parts: Sequence[Part], policy: Policy) -> Table:
    """Tabulate the datasets: what is required, the difference in points, the evidence."""
    rows = list[dict[str, Any]]()
    for bound, of, state, basis, fate, people in parts:
        (base, new), e = state.known.mean.tolist(), state.known.log_e / np.log(10)
        found = basis.luck
        both_ends = state.known.difference_low, state.known.difference_high
        pair = [100 * end[NEW, BASE] for end in both_ends]
        row = {"dataset": of.dataset, "requires": 100 * bound, "verdict": fate}
        row |= {"trials": state.trials, "questions": len(of.question_ids), "base": base, "new": new}
        row |= {"difference": 100 * (new - base), "low": pair[0], "high": pair[1]}
        row |= {"log10_e_holds": e[NEW, BASE], "log10_e_fails": e[BASE, NEW], "seeds": basis.seeds}
        row |= {"inflation": found.of_pair.value if found.of_pair else 1.0, "p": found.p}
        text = (
            f"{of.dataset}: {fate}: {of.names[NEW]} - {of.names[BASE]} is {100 * (new - base):+.2f}"
            f" points ({pair[0]:+.2f} to {pair[1]:+.2f}), required above {100 * bound:+g}"
        )
        if people:
            value, low, high = (100 * of for of in (people.difference, people.lo, people.hi))
            row |= {"labels": value, "labels_low": low, "labels_high": high}
            text += f"; by human labels {value:+.2f} ({low:+.2f} to {high:+.2f}, at this look)"
        if basis.dependent:
            text += f"; by whole trials, as {basis.dependent}: sampling.seeds=independent needs far"
            text += " fewer"
        elif basis.seeds == "unknown":
            text += "; their seeds are unknown, so attempts are assumed to be independent"
        rows.append(row | {"sentence": text})
    needed = np.log10(2 / (1 - policy.confidence) * np.array([1, len(parts)]))
    enough = f"{needed[0]:.1f} is enough"
    if parts[1:]:
        enough += f" on all datasets at once, {needed[1]:.1f} on one by itself"
    notes = [
        "points of accuracy on these questions; intervals hold at any number of looks",
        f"log10 e: largest evidence so far that the requirement holds, or fails; {enough}",
        *(f"differs: {p.cohort.dataset}: {line}" for p in parts for line in p.cohort.differences),
    ]
    heads = [
        *columns(align="left", dataset="dataset"),
        *columns("{:+g}", requires="above"),
        *columns(trials="trials"),
        *columns("{:.3f}", wide=True, base="BASE", new="NEW"),
        Column("difference", "NEW - BASE", None, "{:+.2f}", short="diff."),
        *columns("{:+.2f}", group=percent(policy.confidence), low="low", high="high"),
        *columns("{:.1f}", group="log10 e", log10_e_holds="holds", log10_e_fails="fails"),
        *columns(align="left", verdict="verdict"),
        *columns("{:.3g}", wide=True, inflation="inflation", p="p", seeds="seeds"),
        *columns(align="left", wide=True, sentence="sentence"),
    ]
    return Table("{}, and {} in its place".format(*parts[0].cohort.names), heads, rows, notes)
