"""The columns of every table in a run folder; rows are keyed on (question_id, trial)."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

KEY = ("question_id", "trial")
_KEY_FIELDS = [("question_id", pa.string()), ("trial", pa.int32())]

PROMPT = [("prompt", pa.string()), ("prompt_token_ids", pa.list_(pa.int32()))]
QUESTIONS = pa.schema(
    [
        ("question_id", pa.string()),
        ("problem", pa.string()),
        ("gold", pa.string()),
        ("question_hash", pa.string()),  # SHA-256 of problem and gold, first 16 hex digits
        *PROMPT,  # the exact text that the model gets, chat turns as JSON; ids null for turns
        ("prompt_logprobs", pa.list_(pa.float32())),  # null until generated; NaN at position 0
        ("max_tokens", pa.int32()),  # sampling.max_tokens, clamped to the model's context
        # The options of multiple choice, else null; the gold answer is a letter in this order.
        ("choices", pa.list_(pa.string())),
        ("form", pa.string()),  # "strict" if the answer must have the form of the gold answer
        ("cluster", pa.string()),  # which questions it was drawn with; null: it was drawn alone
        # The values in each column of dataset.fields.category, in that order; null without any.
        ("category", pa.list_(pa.list_(pa.string()))),
        ("date", pa.string()),  # when it was published, YYYY-MM-DD; null: not known
        # The prompts of prompt.variants, which trials use in turn after `prompt`; null without any.
        ("variants", pa.list_(pa.struct(PROMPT))),
    ]
)
# Columns that folders of before 2026-11-28 lack: null there.
LATER = {"cluster", "category", "date", "variants", "options"}

# Why an attempt ended; with any other reason (abort, error) it is not stored and stays pending.
# CUT: by the token limit, vLLM's repetition detector, or a server's content filter.
FILTERED = "content_filter"
CUT = ("length", "repetition", FILTERED)
FINISHED = ("stop", *CUT)

# Of a text that `sampling.likelihood` scores: natural log-probs, summed over its tokens.
OPTIONS = pa.struct(
    [
        ("logprob", pa.float32()),  # given the prompt
        ("tokens", pa.int32()),
        ("bytes", pa.int32()),
        ("unconditional", pa.float32()),  # without the prompt, after BOS or EOS
    ]
)
ATTEMPTS = pa.schema(
    [
        *_KEY_FIELDS,
        ("seed", pa.int64()),
        ("text", pa.string()),
        ("finish_reason", pa.string()),  # one of FINISHED; of imported attempts any
        ("prompt_tokens", pa.int32()),
        ("completion_tokens", pa.int32()),
        ("token_ids", pa.list_(pa.int32())),  # null if a server does not return them
        ("logprobs", pa.list_(pa.float32())),  # of the sampled tokens, natural log
        ("started", pa.float64()),  # Unix seconds, when the engine got the request
        ("first_token", pa.float64()),  # null if a server returns whole answers
        # Continued attempts have `started` and `first_token` shifted by the pause.
        ("finished", pa.float64()),
        # Number of tokens before the last continuation under a raised cap; null: not continued.
        ("continued_from", pa.int32()),
        ("options", pa.list_(OPTIONS)),  # in the order of the prompt; null: the text was sampled
    ]
)


def cut_off(finish_reasons: Any) -> Any:
    """Return which attempts did not end by themselves: bool, null if not known."""
    cut = pc.is_in(finish_reasons, value_set=pa.array(CUT))
    return pc.if_else(pc.is_valid(finish_reasons), cut, None)


def below(limits: Any, finish_reasons: Any, tokens: Any) -> Any:
    """Return which attempts ended at a token limit lower than the present one: bool."""
    short = pc.and_(pc.equal(finish_reasons, "length"), pc.less(tokens, pa.array(limits)))
    return pc.fill_null(short, False)


GRADES = pa.schema(
    [
        *_KEY_FIELDS,
        ("has_box", pa.bool_()),  # whether there is an answer, in a box if its kind needs one
        ("box", pa.string()),  # boxed, no_box, unclosed, truncated, timeout or error
        ("answer", pa.string()),  # the extracted answer, null without one
        ("outcome", pa.string()),  # correct, wrong, no_answer, unparsable, timeout or error
        ("layer", pa.string()),  # what decided it, see verifiers.Grade
        ("reason", pa.string()),  # why, in a few words
        ("grader", pa.string()),  # the kind of answer, see verifiers.Grade; null if imported
    ]
)


# A verifier's labels: a correct, b incorrect, c invalid. Log-probs are natural, of the label's
# token as the next one, over the full vocabulary.
_LOGPROBS = [(f"logprob_{label}", pa.float32()) for label in "abc"]
LABEL_LOGPROBS = pa.schema(
    [
        ("judged", pa.string()),  # hash of what was judged: question, gold, response and answer
        *_LOGPROBS,
        ("tokens", pa.int32()),  # of the verifier's prompt
        ("cut", pa.bool_()),  # the middle of the response was left out
    ]
)
# For each label: base, what calibration subtracts (verify/calibrate.py); raw, exp(logprob); direct,
# the softmax over the three labels; and the calibrated softmax((logprob - base) / T).
_KINDS = ("base_", "raw_", "direct_", "")
VERDICTS = pa.schema(
    [
        *_KEY_FIELDS,
        *_LOGPROBS,
        *((f"{kind}{label}", pa.float32()) for kind in _KINDS for label in "abc"),
        ("mass", pa.float32()),  # raw_a + raw_b + raw_c
        ("label", pa.string()),  # A, B or C, the largest of the calibrated; U: undecided
        ("tokens", pa.int32()),
        ("cut", pa.bool_()),
        # Of a judge that writes, which has only a, b, c (shares of its votes), label and these.
        ("points", pa.int16()),  # position of its score in `VerifierConfig.scores`
        ("votes", pa.list_(pa.string())),  # outcomes or points, in the order of trials
    ]
)

# The paper's nine base signals. Bits per token are -mean log2 p over the finite log-probs, null
# without any.
SIGNALS = pa.schema(
    [
        *_KEY_FIELDS,
        ("has_box", pa.bool_()),  # null until graded, as is_correct
        ("is_correct", pa.bool_()),
        ("token_ratio", pa.float32()),  # completion tokens / 32,768
        ("repeated_pattern", pa.bool_()),  # the completion did not end by itself
        ("prompt_bpt", pa.float32()),  # without position 0, which has no log-prob
        ("completion_bpt", pa.float32()),
        ("tests_passed", pa.float32()),  # share of a program's tests; null of other answers
        ("a", pa.float32()),  # the verifier's calibrated probabilities, null without a verdict
        ("b", pa.float32()),
        ("c", pa.float32()),
    ]
)

# Mean log-probs of imported attempts that have no list of them. Natural log per token; a prompt's
# mean is over n - 1 positions, since the first has no log-prob.
MEANS = pa.schema(
    [
        *_KEY_FIELDS,
        ("prompt_mean_logprob", pa.float32()),  # null where it is not finite or not known
        ("completion_mean_logprob", pa.float32()),
    ]
)
