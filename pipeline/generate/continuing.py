"""Attempts that continue under a raised token cap: the stored part, and the whole."""

from dataclasses import replace
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.seeds import continued_seed
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.prepare import questions_table
from bayes_at_n.pipeline.store import parquet, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, below
from bayes_at_n.pipeline.store.runfolder import Run

_AT_ONCE = 64  # attempts whose tokens are read and kept together
_READ = ["finish_reason", "completion_tokens", "token_ids", "logprobs", "seed"]
_READ += ["started", "first_token", "finished"]

Rows = dict[tuple[str, int], dict[str, Any]]  # of attempts, by key


class Continued:
    """The attempts that a run continues; their stored tokens are read when they are requested."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.cut = list(runfolder.continuing(run))
        self._index = {key: i for i, key in enumerate(self.cut)}
        self._read: Rows = {}

    def __call__(self, request: Request) -> Request:
        """Return the request for the rest of an attempt; unchanged if no part of it is stored."""
        key = request.question_id, request.trial
        if key not in self._index:
            return request
        if key not in self._read:
            first = self._index[key]
            self._read = stored(self.run, set(self.cut[first : first + _AT_ONCE]))
        begun = self._read.pop(key, None)
        if begun is None:  # lost with a damaged part since: sampled from the start
            return request
        n = len(begun["token_ids"])
        seed = continued_seed(begun["seed"], n)
        return replace(request, begun=begun, max_tokens=request.max_tokens - n, seed=seed)


def stored(run: Run, keys: set[tuple[str, int]]) -> Rows:
    """Read the rows of these attempts that were cut below the cap of their question.

    Raises UserError: token ids are not stored.
    """
    questions, rows = {row["question_id"]: row for row in run.questions}, {}
    for batch in shards.batches(
        run.attempts, ATTEMPTS, [*KEY, *_READ], parquet.Damage(), keep=keys
    ):
        limits = [questions[id_]["max_tokens"] for id_ in batch[KEY[0]].to_pylist()]
        short = below(limits, batch["finish_reason"], batch["completion_tokens"])
        for row in batch.filter(short).to_pylist():
            if None in (row["token_ids"], questions[row["question_id"]]["prompt_token_ids"]):
                raise UserError(questions_table.refusal(run, questions_table.NO_TOKENS))
            rows[row["question_id"], row["trial"]] = row
    return rows


def joined(completion: Completion) -> Completion:
    """Return a continued attempt as if sampled in one go, its times without the pause."""
    request, begun = completion.request, completion.request.begun
    assert begun is not None and completion.token_ids is not None
    logprobs = None
    if begun["logprobs"] is not None and completion.logprobs is not None:
        logprobs = begun["logprobs"] + completion.logprobs
    paused = completion.started - begun["finished"]
    return replace(
        completion,
        request=replace(request, seed=begun["seed"], begun=None),
        token_ids=request.so_far(completion.token_ids),
        logprobs=logprobs,
        started=begun["started"] + paused,
        first_token=None if begun["first_token"] is None else begun["first_token"] + paused,
    )
