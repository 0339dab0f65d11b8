"""What a terminal would obey, in every name and text that a verb may print."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import THREE, Capsys, make_model, run_of, write_questions

from bayes_at_n.pipeline.base.console import clean
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.cli.verbs import VERBS

EVIL = "\x1b[2J\x07\x9b31m\u202e\u2066\u200b\x7f"
OBEYED = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ud800-\udfff]")
Printed = Callable[..., tuple[int | str | None, str]]


@pytest.fixture
def printed(capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Printed:
    """Exit status and both outputs of a command, which must hold nothing that is obeyed."""
    monkeypatch.chdir(tmp_path)

    def printed(*arguments: str) -> tuple[int | str | None, str]:
        capsys.readouterr()
        try:
            code: int | str | None = main([*arguments])
        except SystemExit as stopped:
            code = stopped.code
        shown = "".join(capsys.readouterr())
        assert shown and not OBEYED.search(shown), (arguments, ascii(shown))
        return code, shown

    return printed


def test_no_verb_prints_what_a_terminal_obeys(tmp_path: Path, printed: Printed) -> None:
    for verb in VERBS:
        assert printed(verb, str(tmp_path / f"nowhere{EVIL}"))[0] == 2
    assert printed("run", f"{EVIL}=1")[0] == printed("score", f"--{EVIL}")[0] == 2
    marks = {f"q{EVIL}{qid}": line for qid, line in THREE.items()}
    folder = tmp_path / EVIL / f"sums{EVIL}"
    for name in "xy":
        gold = {qid: f"{name} {EVIL}" for qid in marks}  # questions that are not the same
        run_of(folder.parent, f"{name}{EVIL}", marks, dataset=f"sums{EVIL}", gold=gold)
    for verb in ("score", "status"):
        code, shown = printed(verb, str(folder / f"x{EVIL}"))
        assert code == 0 and "\\u001b[2J" in shown, (verb, shown)
    for verb in ("compare", "status", "equivalence"):
        code, shown = printed(verb, *map(str, sorted(folder.iterdir())))
        assert "\\u001b[2J" in shown, (verb, shown)


def test_a_problem_is_shown_and_not_obeyed(tmp_path: Path, printed: Printed) -> None:
    row = {"id": "q", "problem": f"1+1?\n{EVIL}\tor 2", "answer": f"2{EVIL}"}
    path = write_questions(tmp_path / f"{EVIL}.jsonl", [row])
    model = make_model(tmp_path / f"tiny{EVIL}", template=None)
    arguments = ["model=custom", f"model.id='{model}'", "dataset=jsonl", f"dataset.path='{path}'"]
    code, shown = printed("run", "--dry-run", *arguments, "prompt=base", "sampling.max_tokens=9")
    assert code == 0 and "1+1?\n  | \\u001b[2J" in shown


def test_cleaned_json_is_the_same_json() -> None:
    every = "".join(chr(i) for i in range(sys.maxunicode + 1) if not 0xD800 <= i < 0xE000)
    every += "\udcff \ud800 "  # of a name that is not UTF-8
    text = clean(json.dumps({every: every}, ensure_ascii=False))
    assert json.loads(text) == {every: every}
    text.encode()  # no half character is left
    assert clean("日本語 \u200d é\n\tμ ± 1\u00a0×") == "日本語 \u200d é\n\tμ ± 1\u00a0×"
