"""The bundled training: what it does on its own, without probing."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.targets import DEADLINE_S, ROOT, clean_env, wait_until

SCRIPT = ROOT / "examples" / "train_gpt.py"
TINY = ("--layers", "1", "--dim", "32", "--context", "16", "--threads", "1", "--log-every", "1")

pytestmark = pytest.mark.torch

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the example, tiny, in an empty folder; ends what is still running."""
    started: list[subprocess.Popen[str]] = []

    def start_example(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-W", "error", SCRIPT, *TINY, *options],
            cwd=tmp_path,
            env=clean_env(tmp_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start_example
    for process in started:
        process.kill()
        process.communicate()


def test_it_learns(start: Start) -> None:
    """The loss falls well below that of guessing, which is log(13) = 2.56."""
    process = start("--steps", "150", "--lr", "1e-2", "--warmup", "10")
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, "")
    losses = [float(loss) for loss in re.findall(r"^step \d+  loss (\S+)  ", output, re.MULTILINE)]
    assert len(losses) == 150
    assert losses[0] > 2.2
    assert sum(losses[-10:]) / 10 < 1.9


def test_without_a_limit_it_goes_on_until_ctrl_c(start: Start, tmp_path: Path) -> None:
    """Ctrl-C ends it with one line, no traceback and exit code 0, workers included."""
    process = start("--workers", "2")
    assert process.stdout is not None
    assert process.stdout.readline().startswith("step 1  loss ")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, errors) == (0, "")
    assert re.search(r"^stopped at step \d+\n\Z", output, re.MULTILINE)


def test_the_checkpoint_holds_the_state_and_no_code(start: Start, tmp_path: Path) -> None:
    """A checkpoint loads without unpickling code, and holds the step, model and optimizer.

    It is in the folder that was asked for, which did not exist.
    """
    import torch

    folder = tmp_path / "made" / "here"
    process = start(
        "--steps", "5", "--checkpoint-every", "2", "--workers", "0", "--out", str(folder)
    )
    assert process.communicate(timeout=DEADLINE_S)[1] == ""
    state = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
    assert state["step"] == 4
    assert "blocks.0.attn.qkv.weight" in state["model"]
    assert [group["weight_decay"] for group in state["optimizer"]["param_groups"]] == [0.1, 0.0]
    assert [path.name for path in folder.iterdir()] == ["checkpoint.pt"]


def test_the_checkpoint_is_never_half_written(start: Start, tmp_path: Path) -> None:
    """Whoever loads the checkpoint while it is replaced at every step gets a whole one."""
    import torch

    start("--checkpoint-every", "1", "--workers", "0")
    path = tmp_path / "checkpoint.pt"
    wait_until(path.exists, "the first checkpoint")
    seen: set[int] = set()

    def ten_different_ones() -> bool:
        seen.add(torch.load(path, weights_only=True)["step"])
        return len(seen) >= 10

    wait_until(ten_different_ones, "ten checkpoints")


def test_its_names_are_globals_of_the_script(tmp_path: Path) -> None:
    """`model`, `optimizer`, `scheduler`, `train_loader` and `trainer` are there to be asked."""
    code = f"""
import runpy, sys
sys.argv = ["train_gpt.py", "--steps", "2", "--workers", "0", *{TINY!r}]
names = runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
trainer = names["trainer"]
assert trainer.model is names["model"] and trainer.optimizer is names["optimizer"]
assert trainer.train_loader is names["train_loader"]
assert trainer.scheduler is names["scheduler"]
print(trainer.current_step, trainer.grad_clip, trainer.loss.isfinite().item())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=clean_env(tmp_path),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.stdout.splitlines()[-1:] == ["2 1.0 True"], done.stderr
