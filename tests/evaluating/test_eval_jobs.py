"""Evals that are repeated, listed, cancelled and written down."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading

import pytest

import probing
from probing.errors import EvalTimedOut, ProbingError
from probing.messages import common as wire
from tests.harness.evals import answer_of_run
from tests.harness.targets import DEADLINE_S, Target, wait_until

pytestmark = pytest.mark.torch


def _rows(asked: probing.Process, where: str) -> list[dict[str, object]]:
    return asked.query(f"SELECT * FROM python.evals WHERE {where} ORDER BY eval_id").to_pylist()


def test_code_is_repeated_at_every_nth_step(asked: probing.Process, evaluated: Target) -> None:
    """Each answer comes from the end of a step, so many steps after the one before at least."""
    code = "sum(float(p.grad.norm()) for p in model.parameters()) > 0"
    results = list(asked.eval_steps(code, every=3, times=4))
    assert [(r.value, r.where) for r in results] == [("True", "safe point")] * 4
    steps = [r.step or 0 for r in results]
    assert all(later - step >= 3 for step, later in itertools.pairwise(steps))
    done = evaluated.run(str(evaluated.pid), "eval", "step", "--every", "2", "--steps", "2")
    lines = done.stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        f"step {line.split(': ')[1]}" for line in lines
    ]
    assert len(lines) == 2
    (row,) = _rows(asked, "code = 'step' AND runs = 2")
    assert row["state"] == "done"


def test_a_repetition_ends_with_its_client(asked: probing.Process, evaluated: Target) -> None:
    """Nobody who listens: no step is held any more, and the record says so."""
    command = [sys.executable, "-m", "probing", str(evaluated.pid), "eval", "'streamed'", "--every"]
    client = subprocess.Popen(
        [*command, "1"], env=evaluated.env, cwd=evaluated.cwd, stdout=subprocess.PIPE
    )
    assert client.stdout is not None
    assert b"streamed" in client.stdout.readline()
    assert [j.code for j in asked.jobs().jobs] == ["'streamed'"]
    client.kill()
    client.wait()
    client.stdout.close()
    wait_until(lambda: not asked.jobs().jobs, "the end of the eval")
    (row,) = _rows(asked, "code = '''streamed'''")
    assert row["runs"] or row["state"] == "cancelled"


def test_a_repetition_that_cannot_be_interrupted_is_left_behind(
    asked: probing.Process, evaluated: Target
) -> None:
    """Whoever has asked hears of it at its limit, not when it ends, and `jobs` lists it."""
    made = "import threading; threading.held = threading.Lock(); threading.held.acquire()"
    code = f"{made}; threading.held.acquire()"
    try:
        with pytest.raises(ProbingError, match="cannot be interrupted where it is") as told:
            answer_of_run(lambda: list(asked.eval_steps(code, times=3, timeout_s=1)))
        assert told.value.is_a(EvalTimedOut)
        (job,) = asked.jobs().jobs
        assert (job.state, job.place) == ("left behind", "<module> (<eval>:1)")
        evaluated.wait_for_step(evaluated.step() + 2)
    finally:
        asked.eval("import threading; threading.held.release()", now=True)
    wait_until(lambda: not asked.jobs().jobs, "the end of the code")
    (row,) = _rows(asked, "code LIKE '%; threading.held.acquire()' AND state <> 'not run'")
    assert row["state"] == "interrupted"


def test_an_eval_in_hand_is_listed_and_cancelled(asked: probing.Process, evaluated: Target) -> None:
    """`jobs` says who runs what and where it is; `jobs cancel ID` ends it with its place in it."""
    results: list[wire.EvalResult] = []
    code = "while True:\n    unending = 1"
    thread = threading.Thread(target=lambda: results.append(asked.eval(code, timeout_s=60)))
    thread.start()
    wait_until(lambda: any(j.state == "running" for j in asked.jobs().jobs), "the eval")
    done = evaluated.run(str(evaluated.pid), "jobs")
    assert "<eval>:" in done.stdout
    assert "while True: ;     unending = 1" in done.stdout
    (listed,) = json.loads(evaluated.run(str(evaluated.pid), "jobs", "--format", "json").stdout)
    done = evaluated.run(str(evaluated.pid), "jobs", "cancel", str(listed["number"]))
    assert done.returncode == 0
    thread.join(DEADLINE_S)
    assert results[0].error_type == "EvalInterrupted"
    assert 'File "<eval>", line' in str(results[0].error)
    assert "cancelled by uid" in str(results[0].error)
    (row,) = _rows(asked, f"eval_id = {listed['number']}")
    assert row["state"] == "cancelled"
    done = evaluated.run(str(evaluated.pid), "jobs", "cancel", "99999")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no pending or running eval 99999" in done.stderr


def test_an_audit_hook_can_veto(asked: probing.Process) -> None:
    """The hook sees the code before it runs; what it raises is the answer, and nothing was run."""
    hook = (
        "import sys\ndef hook(event, args):\n    if event == 'probing.eval' and 'forbidden' in"
        " args[0]:\n        raise PermissionError('not here')\nsys.addaudithook(hook)"
    )
    assert asked.eval(hook).error is None
    result = asked.eval("brought_about = 'forbidden'")
    assert result.error_type == "PermissionError"
    assert "not here" in str(result.error)
    assert asked.eval("brought_about").error_type == "NameError"
    (row,) = _rows(asked, "code LIKE '%brought_about = %'")
    assert (row["state"], row["error_type"]) == ("vetoed", "PermissionError")


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("import asyncio\nawait asyncio.sleep(0.01)\n[i async for i in agen()]", "[0, 1]"),
        ("generator = (i for i in range(3))\ngenerator", "<generator object"),
        ("10 ** 20_000", "<int of 66,439 bits>"),
        ("list(range(10**6))", "... 999,000 more (print() writes them)]"),
        ("torch.arange(1e6)", "Tensor float32 [1000000] on cpu: min 0, max 999999, mean 500000,"),
        ("torch.zeros(9_000_000)", "(of 3,000,000 of 9,000,000 elements)"),
        ("torch.tensor([1.0, float('inf')])", "min 1, max 1, mean 1, 1 not finite"),
        ("{'a': torch.ones(3, 3)}", "{'a': <Tensor float32 [3, 3] on cpu: min 1, max 1, mean 1,"),
        ("loss.detach().new_tensor(2.5)", "tensor(2.5000)"),
        ("[torch.ones(2, 2)] * 60", "... 10 more (print() writes them)]"),
        ("[(torch.ones(2), n) for n in range(2000)]", "... 1,950 more (print() writes them)]"),
        ("[{'params': [torch.ones(2, 2)] * 9, 'lr': 0.5}]", "... 6 more], 'lr': 0.5}"),
        ("{'state': {i: torch.ones(2, 2) for i in range(10)} | {'n': 7}}", "'n': 7, ... 2 more}"),
    ],
)
def test_values_are_as_a_person_expects(asked: probing.Process, code: str, value: str) -> None:
    """`await` works, generators are not consumed, huge values and tensors are told, not printed."""
    setup = "import torch\nasync def agen():\n    yield 0\n    yield 1"
    assert asked.eval(setup).error is None
    assert value in str(asked.eval(code, timeout_s=30).value)


def test_what_would_hurt_the_job_does_not(asked: probing.Process, evaluated: Target) -> None:
    """`exit()` closes nothing, `input()` finds nobody, and a thread left behind is told."""
    assert asked.eval("exit()").error_type == "SystemExit"
    assert asked.eval("import sys\nsys.__stdin__.closed").value == "False"
    assert asked.eval("input('name? ')").error_type == "EOFError"
    started = asked.eval(
        "import threading\nstop = threading.Event()\n"
        "threading.Thread(target=stop.wait, name='mine', daemon=True).start()"
    )
    assert started.left == ("mine",)
    assert asked.eval("stop.set()").error is None


def test_the_record_survives_the_process(
    fresh_training: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who ran what, and that `os._exit` never came back, is read from the dead process's folder."""
    monkeypatch.setenv("PROBING_HOME", str(fresh_training.home))
    asked = probing.connect(fresh_training.pid)
    assert asked.eval("x = 1\nx + 1").value == "2"
    assert asked.eval("1 / 0").error_type == "ZeroDivisionError"
    with pytest.raises(ProbingError):
        asked.eval("import os; os._exit(3)")
    assert fresh_training.process.wait(DEADLINE_S) == 3
    rows = _rows(asked, "true")
    assert [row["code"] for row in rows] == ["x = 1\nx + 1", "1 / 0", "import os; os._exit(3)"]
    assert [row["state"] for row in rows] == ["done", "raised", None]
    assert [row["error_type"] for row in rows] == [None, "ZeroDivisionError", None]
    assert all(row["uid"] is not None and row["pid"] for row in rows)
    assert rows[2]["duration"] is None
