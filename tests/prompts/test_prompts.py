"""From a problem to the exact tokens, through chat templates of every temper."""

from typing import Any

import pytest
from helpers import CHATML, make_tokenizer
from tokenizers import processors

from bayes_at_n.prompts import PromptError, Rendered, control_tokens, fill, plain, turns
from bayes_at_n.prompts import render as render_all

DATED = "Today is {{ strftime_now('%d %B %Y') }}. " + CHATML
THINKING = CHATML + "{% if add_generation_prompt and enable_thinking %}<think>\n{% endif %}"
HOSTILE = [
    "What is {problem}?",
    "{{ 1/0 }} {% for x in y %} {# comment #} {{ raise_exception('no') }}",
    r"$\frac{1}{2}$ \boxed{} {} {0} %s %(x)s ${x} \1 \g<0>",
    "a\x00b\x1b[31m\u202e",
    "日本語 🙂 \u2028 é",
]


def render(tokenizer: Any, chat: list[dict[str, str]], *kwargs: Any, **options: Any) -> Rendered:
    [rendered] = render_all(tokenizer, [chat], *kwargs, **options)
    return rendered


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return make_tokenizer()


def test_chatml_text_and_ids(tokenizer: Any) -> None:
    chat = turns(fill("{problem}\n\nUse \\boxed{}.", "1+1?"), "Be brief.")
    text, ids = render(tokenizer, chat)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n1+1?\n\nUse \\boxed{}.<|im_end|>\n<|im_start|>assistant\n"
    )
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert ids[0] == start and ids.count(start) == 3
    assert all(type(i) is int for i in ids) and tokenizer.decode(ids) == text


def test_turns_without_a_system_text() -> None:
    assert turns("Hi", None) == turns("Hi", None, "user") == [{"role": "user", "content": "Hi"}]
    assert turns("Hi", "")[0] == {"role": "system", "content": ""}  # no text is not no system


@pytest.mark.parametrize("problem", HOSTILE)
def test_a_problem_is_text_whatever_it_holds(tokenizer: Any, problem: str) -> None:
    text, ids = render(tokenizer, turns(fill("Solve: {problem}", problem), None))
    assert f"Solve: {problem}<|im_end|>" in text
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("template", [None, "{% if %}", "{{ messages.nope.nope }}", "{{ 1/0 }}"])
def test_a_template_that_is_missing_or_broken_is_an_error(template: str | None) -> None:
    with pytest.raises(PromptError, match="chat template"):
        render(make_tokenizer(template), turns("Hi", None))


LOOP = "{% for i in range(99999) %}{% for j in range(99999) %}X{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (LOOP.replace("X", "{{ i }}"), "took more than 0.1 s of processor time"),
        ("{{ 9 ** (9 ** (9 ** 9)) }}", "took more than 0.1 s of processor time"),
        ("{{ 'x' * 10000000000 }}", "took more than 512 MiB of memory"),
        ("{{ '%010000000000d' % 1 }}", "took more than 512 MiB of memory"),
        ("{{ 'x' * 5000000 }}", "it wrote 5000000 characters"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{% if messages[0].content == '3' %}" + LOOP + "{% endif %}", "processor time"),
    ],
)
def test_a_template_without_end_is_an_error(
    template: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "processor time" in why:  # the others end of themselves, sooner or later
        monkeypatch.setattr("bayes_at_n.prompts.bounded.SECONDS", 0.1)
    tokenizer = make_tokenizer(template)
    with pytest.raises(PromptError, match=why):
        list(render_all(tokenizer, [turns(str(i), None) for i in range(5)]))
    tokenizer.chat_template = CHATML
    assert len(list(render_all(tokenizer, [turns("Hi", None)] * 200))) == 200


def test_a_template_that_prints_a_date_is_pinned() -> None:
    tokenizer = make_tokenizer(DATED)
    text, _ = render(tokenizer, turns("Hi", None), date="2025-09-01")
    assert text.startswith("Today is 01 September 2025. ")
    assert not render(tokenizer, turns("Hi", None)).text.startswith("Today is 01 September 2025.")


def test_options_reach_the_template() -> None:
    tokenizer = make_tokenizer(THINKING)
    assert render(tokenizer, turns("Hi", None), {"enable_thinking": True}).text.endswith(
        "<think>\n"
    )
    assert render(tokenizer, turns("Hi", None)).text.endswith("assistant\n")
    with pytest.raises(PromptError, match="tokenize"):
        render(tokenizer, turns("Hi", None), {"tokenize": True})


def test_no_second_bos() -> None:
    tokenizer = make_tokenizer("{{ bos_token }}" + CHATML, bos=True)
    assert tokenizer("Hi")["input_ids"][0] == tokenizer.bos_token_id  # it adds one by itself
    ids = render(tokenizer, turns("Hi", None)).token_ids
    assert ids.count(tokenizer.bos_token_id) == 1 and ids[0] == tokenizer.bos_token_id


def test_a_plain_text_gets_what_its_tokenizer_puts_in_front() -> None:
    assert plain(make_tokenizer(None), "Hi 日") == ("Hi 日", make_tokenizer().encode("Hi 日"))
    tokenizer = make_tokenizer(None, bos=True)
    bos, hi = tokenizer.bos_token_id, tokenizer("Hi", add_special_tokens=False)["input_ids"]
    assert plain(tokenizer, "Hi") == plain(tokenizer, "<|bos|>Hi") == ("<|bos|>Hi", [bos, *hi])
    # One that also ends every text: the model is to go on.
    both = processors.TemplateProcessing(
        single="<|bos|> $A <|im_end|>",
        special_tokens=[(t, tokenizer.convert_tokens_to_ids(t)) for t in ("<|bos|>", "<|im_end|>")],
    )
    tokenizer.backend_tokenizer.post_processor = both
    assert tokenizer("Hi")["input_ids"] == [bos, *hi, tokenizer.eos_token_id]
    assert plain(tokenizer, "Hi") == ("<|bos|>Hi", [bos, *hi])


def test_the_answer_begins_with_its_prefix(tokenizer: Any) -> None:
    text, ids = render(tokenizer, turns("Hi", None), prefix="It is \\boxed{")
    assert text.endswith("<|im_start|>assistant\nIt is \\boxed{") and tokenizer.decode(ids) == text


def test_control_tokens_in_a_text_are_found(tokenizer: Any) -> None:
    assert control_tokens(tokenizer, "1 < 2 |x|> 3 <|im_ end|> im_end") == []
    chat = ["<|im_end|>", "<|im_start|>"]
    assert control_tokens(tokenizer, "a<|im_end|>\n<|im_start|>system") == chat
    unmarked, tokens = make_tokenizer(), ["<|channel|>", "<\uff5cUser\uff5c>"]
    unmarked.add_tokens([*tokens, "<b>"])  # not declared special
    assert control_tokens(unmarked, "<|channel|> <\uff5cUser\uff5c> <b>") == tokens
