"""What needs no torch is done where there is none, and is the same to the last byte."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from helpers import ROOT, arithmetic, make_tokenizer, write_questions

from bayes_at_n.pipeline.cli import main

# The same in a fresh process and in this one, which has torch; both print what they make.
READING = """
import json, sys
from bayes_at_n.pipeline.base.apart import without_torch
from bayes_at_n.pipeline.config.settings import ModelConfig
from bayes_at_n.pipeline.prepare import models
TEXTS = ["Find $x^2$.", "  zwei\\n\\tÄpfel 0100 🍎", "<|im_end|> unaffable"]
def read(folder):
    cfg = ModelConfig(name="", id=folder)
    tokenizer = models.tokenizer(cfg)
    ids = [tokenizer(text, add_special_tokens=more)["input_ids"] for text in TEXTS
           for more in (False, True)]
    return [ids, tokenizer.decode(ids[1]), sorted(tokenizer.get_added_vocab()),
            sorted(tokenizer.all_special_tokens), models.context(cfg)]
print(json.dumps(without_torch(lambda: [*map(read, sys.argv[1:])])))
"""
# What may go wrong there: an error of a user's, a bug, something missing, a kill.
FAILING = """
import os, signal, sys
from bayes_at_n.pipeline.base.apart import without_torch
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
here = os.getpid()
def missing():
    if sys.modules.get("torch", here) is None:
        raise UserError("no torch") from ImportError("torch")
    return os.getpid() == here
def killed():
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    return "here"
def refused():
    raise TryAgain(f"refused {os.getpid() != here}")
print(without_torch(lambda: os.getpid() != here), without_torch(killed))
try:
    without_torch(refused)
except TryAgain as error:
    print(error, type(error).__name__)
print(without_torch(missing))
"""


def python(code: str, *arguments: str | Path) -> Any:
    line = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def folders(root: Path, demo: Path) -> list[Path]:
    """Models with a tokenizer of their own: byte pairs, one that puts a token in front, words."""
    config = {"model_type": "bert", "max_position_embeddings": 77, "vocab_size": 9}
    for name in ("front", "words"):
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(config))
    make_tokenizer(bos=True).save_pretrained(root / "front")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "1", "find"]
    (root / "words" / "vocab.txt").write_text("\n".join(words))
    return [demo, root / "front", root / "words"]


@pytest.mark.soak
def test_tokens_are_the_same_without_torch(tmp_path: Path, tiny_model: Path, capsys: Any) -> None:
    made = folders(tmp_path, tiny_model)
    apart = json.loads(python(READING, *made))
    argv, sys.argv = sys.argv, ["", *map(str, made)]
    try:
        exec(READING, {})
    finally:
        sys.argv = argv
    assert "torch" in sys.modules
    assert json.loads(capsys.readouterr().out) == apart
    assert apart[1][0][1][0] == apart[1][0][3][0] != apart[1][0][0][0]  # the token in front


def test_prepare_loads_no_torch_and_writes_the_same(tmp_path: Path, tiny_model: Path) -> None:
    questions = write_questions(tmp_path / "sums.jsonl", arithmetic(3))
    shared = ["prepare", f"model.id={tiny_model}", "model=custom", "dataset=jsonl"]
    shared += [f"dataset.path={questions}", "sampling.trials=2"]
    code = """
import sys
from bayes_at_n.pipeline.cli.main import main
assert main(sys.argv[1:]) == 0 == main(["run", sys.argv[-1].split("=")[1], "--dry-run"])
print({"torch", "transformers"} & {*sys.modules} or "neither")
"""
    assert python(code, *shared, f"run_dir={tmp_path / 'a'}").splitlines()[-1] == "neither"
    import torch  # noqa: F401  # so that it is done here

    assert main.main([*shared, f"run_dir={tmp_path / 'b'}"]) == 0
    tables = [pq.read_table(tmp_path / name / "questions.parquet") for name in "ab"]
    assert tables[0].equals(tables[1]) and tables[0].num_rows == 3
    made = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in "ab"]
    assert made[0]["identity"] == made[1]["identity"]


def test_work_that_fails_there_is_done_again_here() -> None:
    lines = python(FAILING).splitlines()
    assert lines == ["True here", "refused True TryAgain", "True"]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends it")
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    code = """
import os, sys, time
from pathlib import Path
from bayes_at_n.pipeline.base.apart import without_torch
def work():
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600)
without_torch(work)
"""
    file = tmp_path / "pid"
    parent = subprocess.Popen([sys.executable, "-c", code, str(file)], cwd=ROOT)
    while not (file.exists() and file.read_text()):
        assert parent.poll() is None
        time.sleep(0.01)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    child = int(file.read_text())
    _, alive = psutil.wait_procs([psutil.Process(child)] * psutil.pid_exists(child), timeout=600)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
