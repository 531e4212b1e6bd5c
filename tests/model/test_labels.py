"""Tokens beside labels, read out of a training that runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.torch

Start = Callable[[str], Target]


@pytest.fixture
def fed(program: Callable[..., Target]) -> Start:
    """Starts a way of feeding a training that goes on for ever."""

    def start(way: str) -> Target:
        target = program("loading", way)
        target.wait_for_output("ready")
        return target

    return start


def labels_of(target: Target, *options: str) -> Any:
    """What the command says, as JSON."""
    done = target.run(str(target.pid), "labels", "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_batch_is_read_token_by_token(fed: Start) -> None:
    """Tokens, labels, ignored spans and coverage are those of the samples that the program made."""
    answer = labels_of(fed("labels_apart"), "-n", "3")
    assert answer["origin"] == "the batch"
    assert answer["inputs"] == f"input_ids: int64[{answer['samples']},6]"
    first = [sample["tokens"][0] for sample in answer["shown"]]
    for start, sample in zip(first, answer["shown"], strict=True):
        assert sample["tokens"] == list(range(start, start + 6))
        trained = sample["tokens"][3:] if start != 1 else [-100] * 3
        assert sample["labels"] == [-100] * 3 + trained
    whole = [start for start in range(first[0], first[0] + answer["samples"]) if start != 1]
    assert answer["trained"] == 3 * len(whole)
    assert answer["ignored"] == 6 * answer["samples"] - 3 * len(whole)
    assert answer["all_ignored"] == ([1] if first[0] == 0 else [])
    assert (answer["shift"], answer["same"], answer["next"]) == ("equal", 1.0, 0.0)
    assert (answer["tokenizer"], answer["texts"]) == (None, [])


def test_labels_of_the_next_token_are_told_apart(fed: Start) -> None:
    """Without a DataLoader the call of the model is read; its labels are shifted by one."""
    answer = labels_of(fed("without_loader"))
    assert answer["origin"] == "the call of Model"
    assert (answer["shift"], answer["next"], answer["samples"]) == ("shifted by one", 1.0, 3)
    assert answer["ignored"] == 0


def test_pairs_without_names_are_told_by_their_order(training: Target) -> None:
    """The bundled training's batches are pairs: windows of a text, and one character later."""
    answer = labels_of(training, "-n", "1")
    assert (answer["inputs"], answer["labels"]) == ("0: int64[8,32]", "1: int64[8,32]")
    (sample,) = answer["shown"]
    assert sample["labels"][:-1] == sample["tokens"][1:]
    assert answer["shift"] == "shifted by one"


def test_a_tokenizer_of_the_script_gives_the_texts(fed: Start) -> None:
    """Texts come from the object in `__main__`; ignored labels have none."""
    answer = labels_of(fed("with_tokenizer"), "-n", "1")
    assert answer["tokenizer"] == "Tokenizer"
    (sample,) = answer["shown"]
    texts = {text["token"]: text["text"] for text in answer["texts"]}
    assert texts == {token: f"<{token}>" for token in sample["tokens"]}


def test_a_training_without_labels_says_what_it_reads(fed: Start) -> None:
    """The error names the tensors that were seen, and the exit code is 1."""
    target = fed("no_labels")
    done = target.run(str(target.pid), "labels")
    assert done.returncode == 1
    assert "the call of Model has input_ids int64[2,6]" in done.stderr
    assert done.stdout == ""


def test_a_training_that_reads_nothing_times_out(fed: Start) -> None:
    """A hung loader gives a sentence and the exit code 5, and nothing stays behind in it."""
    target = fed("hangs")
    target.wait_for_output("step 0")
    target.wait_for_server()
    done = target.run(str(target.pid), "labels", "--timeout", "3")
    assert done.returncode == 5, done.stderr
    assert "has neither fetched a batch nor called its model within 3 s" in done.stderr
    names = "import threading; print(*(t.name for t in threading.enumerate()))"

    def at_work() -> str:
        done = target.run(str(target.pid), "eval", "--now", names)
        assert "probing-" in done.stdout, done.stderr
        return done.stdout

    wait_until(lambda: "probing-labels" not in at_work(), "the end of its thread")


def test_looking_changes_no_loss(program: Callable[..., Target], fed: Start) -> None:
    """The losses of a training whose batches are read are bit for bit those of one left alone."""
    bare = program("loading", "for_ever", PROBING="0")
    target = fed("for_ever")
    for _ in range(3):
        labels_of(target)
    whole = target.output.rpartition("\n")[0]
    compared = [line for line in whole.splitlines() if line.startswith("step")]
    last = compared[-1].split()[1]
    bare.wait_for_output(f"step {last} ")
    alone = [line for line in bare.output.splitlines() if line.startswith("step")]
    assert len(compared) > 3
    assert alone[: len(compared) - 1] == compared[:-1]
