"""Judges that write their judgement (`verifier.kind=generate`): sample, read and count votes.

The votes are attempts of a run of their own, `RUN/judgements/HASH/`: HASH identifies the judge
(weights, prompt, engine, sampling), and a question's id is the hash of the judged text. So votes
have all that attempts have: seeds, log-probs, several workers, resumption, budgets. Other settings
of `verifier.judgement` read the same votes anew. An unreadable vote is sampled again twice, with
other seeds; an attempt without any readable vote is undecided: it has no outcome, and is not wrong.
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base import atomic, untrusted
from bayes_at_n.pipeline.base.console import note, note_alone, plural, results, si, substep, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import settings
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_as_model
from bayes_at_n.pipeline.config.verifier import JudgementConfig, VerifierConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.generate.stage import generate
from bayes_at_n.pipeline.prepare import estimate, models, questions_table
from bayes_at_n.pipeline.prepare import stage as prepare
from bayes_at_n.pipeline.prepare.estimate import Estimate
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, QUESTIONS, VERDICTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import calibrate, prompts
from bayes_at_n.prompts import turns
from bayes_at_n.verifiers.judge import judgement, quality
from bayes_at_n.verifiers.maths.boxed import final_part

TRIES = 3  # samples of a vote at most; with temperature 0 one, since all are equal
_AT_ONCE = 1024  # prompts rendered together
_LABEL = {"correct": "A", "wrong": "B", "no_answer": "C"}
UNDECIDED, _SAYS = "U", "judge.json"  # a file with name and JudgementConfig
_LONGEST = 1 << 20  # bytes of a prompt
_TEXTS = pa.schema([ATTEMPTS.field(name) for name in (*KEY, "text")])
_SLACK = 3  # characters per token, where only a server knows the tokens
Meaning = str | int | None  # of a vote: outcome or points; None: unreadable
Votes = dict[str, dict[int, Meaning]]  # by text and trial
Judge = tuple[Run, JudgementConfig]  # the run of its votes, and how they are read


def verify(original: Run, run: Run, template: str, made_from: dict[str, Any]) -> None:
    """Sample the votes that are pending, derive verdicts from all, and report on them.

    `original` has the settings to save, `run` a prompt that is on this machine; `made_from`: all
    that decides verdicts but the votes. Raises: as `generate`; UserError: see `_others`.
    """
    judge = judge_of(run, made_from["verifier"])
    panel = [(judge, run.cfg.verifier.judgement), *_others(run, judge)]
    if outcomes.VERDICTS_TABLE.pending(run, made_from | _marks(panel)):
        parts = tables.parts(run.attempts)  # before they are read: a journal may grow
        attempts = prompts.texts_to_judge(run, template)
        with engines.keeping():
            _prepare(run, judge, template, attempts)
            runfolder.save_verifier(original)  # so that `verify RUN` continues
            own, unjudged = _sample(run, judge, attempts)
        made_from |= _marks(panel) | ({"unjudged": unjudged} if unjudged else {})
        others = [read(*other, Votes(), set()) for other in panel[1:]]
        _derive(run, [own, *others], attempts, made_from, parts)
    else:
        note_alone("verify: nothing pending, all attempts are judged")
    report(run, judge)


def _marks(panel: Sequence[Judge]) -> dict[str, Any]:
    return {"judgements": [tables.marks(judge.path, "attempts") for judge, _ in panel]}


def judge_of(run: Run, made_by: Mapping[str, Any]) -> Run:
    """Return the run whose attempts are the judge's votes."""
    v, cfg = run.cfg.verifier, verifier_as_model(run.cfg)
    sampling = replace(v.sampling)
    if v.judgement.key and cfg.engine.name in settings.STRUCTURED:
        sampling.json_schema = v.judgement.schema
        sampling.logprobs = False  # they would be those of tokens that the schema allows
    model = replace(cfg.model, chat_template_kwargs=dict(v.chat_template_kwargs))
    protocol = {key: value for key, value in vars(sampling).items() if key != "trials"}
    reading = ("judgement", "labels", "panel")  # the same votes can be read anew
    made = {k: w for k, w in made_by.items() if k not in reading} | {"sampling": str(protocol)}
    folder = run.path / "judgements" / provenance.short_hash(json.dumps(made, sort_keys=True))
    blank = RunConfig(model=model, engine=cfg.engine, sampling=sampling, cluster=cfg.cluster)
    blank.dataset.name = blank.dataset.path = "judged"
    blank.dataset.answer, blank.dataset.pattern = "regex", v.judgement.pattern
    blank.prompt.name, blank.prompt.template = Path(v.prompt).stem, "{problem}"
    blank.verifier = VerifierConfig(name="none", id=None)
    blank.budget, blank.trust, blank.run_dir = v.budget, run.cfg.trust, str(folder)
    return Run(blank)


def dry_run(run: Run, judge: Run, template: str, attempts: Estimate, on_cluster: bool) -> None:
    """Print how many votes are pending, and their cost; write nothing.

    Of the pending `attempts` as large a share will be new texts as of those stored, if any are.
    """
    v, number, size = run.cfg.verifier, attempts.pending, attempts.prompts + attempts.cost.tokens
    pending, about = number * (votes := v.sampling.trials), "at most "
    if stored := attempts.planned - attempts.pending:
        known = prompts.distinct(prompts.texts_to_judge(run, template), [""])
        share, about = len(known) / stored, "about " if number else ""
        new = math.ceil(number * share)
        number, size = new + len(known), size * share + (pc.sum(known["bytes"]).as_py() or 0) / 4
        pending = new * votes
        given = Counter(name for name, _ in shards.keys(judge.attempts, ATTEMPTS, shards.Damage()))
        pending += sum(max(0, votes - given[name]) for name in known["judged"].to_pylist())
    used = outcomes.usage(judge, None if judge.path.exists() else [])
    tokens = pending * (used.prompt_mean or len(template) / 4 + size / max(1, number))
    hardware = estimate.hardware_of(judge.cfg, on_cluster)
    known_so_far = (used.completion_mean, used.spent)
    cost = estimate.sampling_cost(judge.cfg, (), pending, hardware, *known_so_far)
    paid = outcomes.price(judge.cfg.engine, tokens, cost.most)
    expected = Estimate(number * votes, pending, tokens, cost, paid)
    print_json({"judge": v.name, **expected._asdict(), "cost": cost._asdict()})
    of = f"{about}{pending} of {number * votes} judgements, {plural(votes, 'vote')} on each answer"
    results.print(f"pending for {v.name}: {of}")
    for line in estimate.lines(judge, expected, hardware) if pending else ():
        results.print(f"  {line}")


def _sample(run: Run, judge: Run, attempts: pa.Table) -> tuple[Votes, int]:
    """Sample votes until each text has enough; return them, and how many a budget left out."""
    names = [name for name in dict.fromkeys(attempts["judged"].to_pylist()) if name]
    votes, before = judge.cfg.sampling.trials, -1
    tries = TRIES if judge.cfg.sampling.temperature else 1
    found, parts = Votes(), set[Path]()
    while True:
        read(judge, run.cfg.verifier.judgement, found, parts)
        limits = {name: wanted(found.get(name, {}), votes, tries) for name in names}
        keys = ((name, trial) for name in names for trial in range(limits[name]))
        missing = sum(trial not in found.get(name, {}) for name, trial in keys)
        stored = sum(map(len, found.values()))
        if not missing or stored == before:
            return found, missing
        before = stored
        most, file = max(limits.values()), judge.path / "wanted.json"
        runfolder.write_json(file, {str(judge.path): [most, most, limits]})
        sampling = replace(judge.cfg.sampling, trials=most)
        note(f"verify: {plural(missing, 'judgement')} to sample, {votes} per text")
        with substep():
            generate(Run(replace(judge.cfg, sampling=sampling, race=str(file))))


def wanted(read: Mapping[int, Meaning], votes: int, tries: int = TRIES) -> int:
    """Return the number of trials that a text needs: `votes`, and one for each unreadable vote.

    It is at most `tries * votes`.

    >>> wanted({}, 1), wanted({0: "wrong"}, 1), wanted({0: None}, 1), wanted({0: None, 1: 7}, 1)
    (1, 1, 2, 2)
    >>> wanted(dict.fromkeys(range(9)), 1), wanted({0: 7, 1: None, 2: 7, 3: None}, 3)
    (3, 5)
    """
    most, lost = votes, 0
    while (now := sum(read.get(trial, 0) is None for trial in range(most))) > lost:
        most, lost = votes + now, now
    return min(most, tries * votes)


def read(judge: Run, said: JudgementConfig, found: Votes, known: set[Path]) -> Votes:
    """Read a judge's votes; one that was cut off is unreadable, even with a judgement in it.

    They are added to `found`, but for those of the parts `known`, which gets those that are read.
    """
    form, damage, now = said.form, shards.Damage(), {*shards.files(judge.attempts)}
    end, names = judge.cfg.model.reasoning_end, [*KEY, "text", "finish_reason"]
    fresh = shards.batches(judge.attempts, ATTEMPTS, names, damage, only=lambda p: p not in known)
    for row in itertools.chain.from_iterable(batch.to_pylist() for batch in fresh):
        start = final_part(row["text"], end) if row["finish_reason"] == "stop" else None
        name = row["question_id"]
        said_last = "" if start is None else row["text"][start:]
        means = judgement.read(said_last, form, prompts.tag(name))
        found.setdefault(name, {}).setdefault(row["trial"], means)
    known |= {path for path in now if path.suffix == ".parquet"}
    if damage.lines:
        warn(f"{judge.path}: {damage}; set aside, so these texts are judged again")
        shards.set_aside(damage, ATTEMPTS)
    return found


def written(run: Run) -> dict[tuple[str, int], list[str]]:
    """Return what the judge that made the verdicts wrote of each attempt, by question and trial."""
    if not (made_by := outcomes.verdicts_made_of(run).get("verifier", {})).get("judgement"):
        return {}
    judge, by_text = judge_of(run, made_by), dict[str, list[str]]()
    try:
        template = untrusted.read_text(judge.path / "prompt.txt", _LONGEST)
        attempts = prompts.texts_to_judge(run, template)
    except (OSError, ValueError, UserError):
        return {}
    columns, damage = [*KEY, "text"], shards.Damage()
    rows = pa.Table.from_batches(shards.batches(judge.attempts, ATTEMPTS, columns, damage), _TEXTS)
    for row in rows.sort_by("trial").to_pylist():
        by_text.setdefault(row["question_id"], []).append(row["text"] or "")
    ids = tables.question_ids(run).to_pylist()
    pairs = zip(attempts["key"].to_pylist(), attempts["judged"].to_pylist(), strict=True)
    return {(ids[key >> 32], key & 0xFFFFFFFF): by_text.get(name, []) for key, name in pairs}


def _prepare(run: Run, judge: Run, template: str, attempts: pa.Table) -> None:
    """Add the texts that have no prompt yet to the judge's questions."""
    path, earlier = judge.path / "questions.parquet", QUESTIONS.empty_table()
    if path.exists():
        earlier = shards.read_whole(path, QUESTIONS)
    new = prompts.distinct(attempts, ["", *earlier["question_id"].to_pylist()])
    if not len(new):
        return
    tokenizer = models.tokenizer_of(judge.cfg)
    server = models.server_facts(judge, tokenizer)
    rows = _rows(run, judge, template, new, tokenizer, server)
    whole = pa.concat_tables([earlier, *rows])
    described = None if tokenizer is None else models.describe_tokenizer(judge.cfg.model, tokenizer)
    weights = models.weights(judge.cfg, server)
    identity = questions_table.identity_of(judge.cfg, whole, [], weights)
    built = questions_table.Built(whole, identity, server, described)
    judge.path.mkdir(parents=True, exist_ok=True)
    atomic.write_text(judge.path / "prompt.txt", template)
    v = run.cfg.verifier
    runfolder.write_json(judge.path / _SAYS, {"name": v.name, "judgement": asdict(v.judgement)})
    runfolder.claim(judge, identity)
    with runfolder.locked_settings(judge):
        prepare.save(judge, built)


def _rows(
    run: Run, judge: Run, template: str, new: pa.Table, tokenizer: Any, server: Any
) -> Iterator[pa.Table]:
    """Yield rows of the questions table for texts; a long attempt is cut in its middle."""
    v, limit = run.cfg.verifier, judge.cfg.sampling.max_tokens
    context = server.context if server is not None else models.context(judge.cfg.model)
    chat, names = server is not None and server.api == "chat", new["judged"].to_pylist()
    if context is not None and context <= limit:
        limit = context // 2
    render = None if chat else prompts.Prompts(v, tokenizer, context or 1 << 30, limit)
    listed = prompts.candidates(run, new, few=True)
    while chunk := [*itertools.islice(listed, _AT_ONCE)]:
        rows, built = [], [] if render is None else render.build([one for _, one in chunk])
        for i, (at, candidate) in enumerate(chunk):
            turn, start, end = prompts.fill(template, candidate)
            if render is None and context is not None:
                most = max(0, _SLACK * (context - limit) - len(turn) + end - start)
                if end - start > most:
                    turn = turn[: start + most // 2] + prompts.CUT + turn[end - most // 2 :]
            text = json.dumps(turns(turn, None), ensure_ascii=False) if chat else turn
            ids = built[i].token_ids if built else None
            about = {"problem": "", "gold": "", "question_hash": names[at][:16]}
            about |= {"question_id": names[at], "max_tokens": limit}
            rows.append({"prompt": text, "prompt_token_ids": ids, **about})
        yield pa.Table.from_pylist(rows, QUESTIONS)


def _derive(
    run: Run,
    of_judges: Sequence[Votes],
    attempts: pa.Table,
    made_from: Mapping[str, Any],
    parts: Sequence[tables.Part],
) -> None:
    """Write the verdicts of parts of attempts, by the votes of a panel of judges."""
    v, votes, rows = run.cfg.verifier, run.cfg.verifier.sampling.trials, list[dict[str, Any]]()
    attempts = attempts.filter(
        pc.is_in(attempts["judged"], value_set=pa.array([*of_judges[0]], pa.string()))
    )
    for name in attempts["judged"].to_pylist():
        given = ([of for _, of in sorted(votes_of.get(name, {}).items())] for votes_of in of_judges)
        counted = [[one for one in of if one is not None][:votes] for of in given]
        rows.append(verdict(counted, v))
    columns = pa.Table.from_pylist(rows, _OF_VOTES)
    by_name = {name: columns[name] for name in columns.column_names}
    calibrate.write_verdicts(run, attempts, by_name, made_from, parts)
    shared = {"shared_sigma": shared_sigma(attempts, rows)}
    runfolder.write_json(run.path / "verdicts" / "_calibration.json", shared)
    note(f"verify: {len(attempts)} attempts judged, {plural(votes, 'vote')} on each")


def _others(run: Run, judge: Run) -> Iterator[Judge]:
    """Yield the other judges of `verifier.panel`. Raises UserError: one did not judge this run."""
    v, paths = run.cfg.verifier, {*run.path.glob(f"judgements/*/{_SAYS}")}
    for name in v.panel:
        for path in sorted(paths - {judge.path / _SAYS}):
            kept = runfolder.read_json(path)
            form = JudgementConfig(**kept["judgement"])
            if kept["name"] == name and form.points == v.judgement.points:
                yield runfolder.open_run(path.parent), form
                break
        else:
            scale = f"judgement.points={v.judgement.points}".replace("None", "null")
            raise UserError(f"verifier.panel={name}: has not judged {run.path} with {scale} yet")


_OF_VOTES = pa.schema([VERDICTS.field(n) for n in ("a", "b", "c", "label", "points", "votes")])


def verdict(by_judge: Sequence[Sequence[str | int]], v: VerifierConfig) -> dict[str, Any]:
    """Return the verdict of an attempt's readable votes, in order of judges and trials.

    `a`, `b` and `c` are the shares of votes for correct (or all points), wrong, and no answer. The
    label is the most frequent outcome; of equally frequent ones the one with the lowest score.
    Without any vote it is `UNDECIDED`. `points` is the position of the score in `v.scores`: of the
    mean of all votes, or with votes=majority the label's. Where votes are missing, those that are
    there count again in their order, which does not change the expected mean. `variance` is that of
    the mean, by the votes.

    >>> of = VerifierConfig(kind="generate", judgement=JudgementConfig(points=7))
    >>> of.sampling.trials = 3
    >>> found = [verdict([votes], of) for votes in ([7, 2, 2], [7, 0], [])]
    >>> [(one["label"], one.get("points"), len(one["votes"])) for one in found]
    [('B', 11, 3), ('B', 14, 2), ('U', None, 0)]
    """
    most, read = v.judgement.points, [*itertools.chain.from_iterable(by_judge)]
    if not read:
        return {"label": UNDECIDED, "votes": []}
    counts = Counter[Any](read)
    order: list[Any] = ["correct", "wrong", "no_answer"] if most is None else [*range(most, -1, -1)]
    choice: Any = max(counts, key=lambda one: (counts[one], order.index(one)))
    full, none = ("correct", "no_answer") if most is None else (most, None)
    a, c = (counts[one] / len(read) for one in (full, none))
    label = _LABEL[choice] if isinstance(choice, str) else "A" if choice == most else "B"
    points, variance = choice if isinstance(choice, int) else None, 0.0
    if (v.judgement.votes, v.ballots > 1) == ("mean", True):
        worth = dict[Any, float](enumerate(v.judgement.scores or ())) | {"correct": 1.0}
        scored = [[worth.get(one, 0.0) for one in of] for of in by_judge if of]
        if len(read) > 1:
            variance = float(np.var(np.concatenate(scored), ddof=1)) / len(read)
        every = np.concatenate([np.resize(of, v.sampling.trials) for of in scored])
        mean = np.resize(every, v.ballots).mean()
        points = int(np.abs(np.array(v.scores) - mean).argmin())
    found = {"label": label, "points": points, "votes": [*map(str, read)], "variance": variance}
    return {"a": a, "b": 1 - a - c, "c": c} | found


def shared_sigma(attempts: pa.Table, verdicts: Sequence[Mapping[str, Any]]) -> float:
    """Return sigma of the score by the votes that attempts of one text share.

    Of M questions, each text with n of N attempts, and variance v of its votes' mean, adds to its
    square n (n - 1) / (N (N - 1)) v / M^2: unbiased, and 0 where no text is repeated.
    """
    places, names = (attempts["key"].to_numpy() >> 32).tolist(), attempts["judged"].to_pylist()
    trials, of_text, total = Counter(places), dict(zip(names, verdicts, strict=True)), 0.0
    for (place, name), n in Counter(zip(places, names, strict=True)).items():
        pairs = n * (n - 1) / max(1, trials[place] * (trials[place] - 1))
        total += pairs * of_text[name].get("variance", 0.0)
    return float(total**0.5 / max(1, len(trials)))


def report(run: Run, judge: Run) -> None:
    """Print how many attempts are undecided, how far their votes agree, and what these took."""
    rows = outcomes.read_verdicts(run, ["label", "votes"]).table
    undecided = pc.sum(pc.equal(rows["label"], UNDECIDED)).as_py() or 0
    used = outcomes.usage(judge)
    file = run.path / "verdicts" / "_calibration.json"
    measures = runfolder.read_json(file) | {"attempts": len(rows), "undecided": undecided}
    measures |= {"completion_tokens": used.completion_tokens, "price": used.price}
    note_alone(f"verify: judgements took {si(used.completion_tokens)} tokens")
    if undecided:
        share = f"{undecided} of {plural(len(rows), 'attempt')} are undecided"
        warn(f"verify: {share}: their judgements are unreadable; they are left out of scores")
    said, votes = run.cfg.verifier.judgement, rows["votes"].to_pylist()
    if any(len(of) > 1 for of in votes):
        units = votes if said.points is None else [[*map(int, of)] for of in votes]
        scale = "nominal" if said.points is None else "interval"
        found = quality.krippendorff(units, scale, rows["question_id"].to_pylist())
        measures["alpha"] = found._asdict() | {"scale": scale}
        ends = f"{found.alpha:.3f} (95%: {found.low:.3f} to {found.high:.3f})"
        results.print(f"agreement of {found.votes} votes: Krippendorff's alpha {ends}")
    if shared := measures.get("shared_sigma"):
        warn(f"verify: the score's sigma lacks {shared:.3f}, of votes on repeated answers")
    runfolder.write_json(file, measures)
