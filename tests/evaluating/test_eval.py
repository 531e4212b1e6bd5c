"""Code sent to a process: where it runs, what comes back, and what it can not break."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.agent.audit.request_log import Sender
from probing.agent.eval.evaluator import Evaluator
from probing.agent.eval.output import Capture
from probing.agent.state import Agent
from probing.errors import Busy, NotAnswering, ProbingError
from probing.messages import common as wire
from probing.messages.about.eval import RepeatRequest
from probing.reach.ladder import who_holds_gil
from probing.rundir.folders import RunDirectory
from probing.settings import Settings
from tests.harness.evals import answer_at_safe_point, answer_of_run, patience
from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.torch


@pytest.fixture
def job(training: Target, monkeypatch: pytest.MonkeyPatch) -> probing.Process:
    """The running training as Python sees it."""
    monkeypatch.setenv("PROBING_HOME", str(training.home))
    return probing.connect(training.pid)


@pytest.fixture
def hung(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], probing.Process]:
    """Starts a program that hangs in a given way, and connects to it."""

    def start(way: str) -> probing.Process:
        target = program("hung", way)
        target.wait_for_output("ready")
        if way == "gil":  # a moment later: until then the agent answers
            held = " holds the interpreter lock in gil "
            wait_until(lambda: held in (who_holds_gil(target.pid) or ""), "the lock to be held")
        monkeypatch.setenv("PROBING_HOME", str(target.home))
        return probing.connect(target.pid)

    return start


def test_the_last_expression_is_the_value(job: probing.Process) -> None:
    """As in a notebook: statements run, prints are output, the last expression is the value."""
    result = job.eval("a_name = 6\nprint('printed')\na_name * 7")
    assert (result.output, result.value, result.error) == ("printed\n", "42", None)
    assert job.eval("a_name").value == "6", "later code sees it"
    assert job.eval("del a_name").error is None


def test_it_runs_while_training_stands_still(job: probing.Process) -> None:
    """A moving training is held at a step boundary, where all gradients are whole."""
    code = (
        "before = trainer.current_step\nimport time; time.sleep(0.3)\n"
        "(trainer.current_step - before, all(p.grad is not None for p in model.parameters()))"
    )
    result = answer_at_safe_point(lambda: job.eval(code))
    assert result.value == "(0, True)"
    assert result.step is not None


def test_gradients_can_be_read_beside_a_live_training(
    job: probing.Process, training: Target
) -> None:
    """Reading every gradient again and again never crashes the job and never sees half a step."""
    found = [
        job.eval("sum(float(p.grad.norm()) for p in model.parameters()) > 0") for _ in range(40)
    ]
    assert {result.value for result in found} == {"True"}
    # A training that a busy machine lets do nothing for a second stands still.
    assert "safe point" in {result.where for result in found} <= {"safe point", "agent thread"}
    training.wait_for_step(training.step() + 2)


def test_names_are_found_in_the_training_functions_locals(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop inside main() is as easy to ask as one with globals; `model` is found by its calls."""
    target = program("in_main")
    target.wait_for_output("ready")
    target.wait_for_step(2)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    assert job.eval("sgd.param_groups[0]['lr']").value == "0.25"
    assert job.eval("[type(p).__name__ for p in network.parameters()]").value is not None
    found = job.eval("(model is network, optimizer is sgd, counter > 0)")
    assert found.value == "(True, True, True)"
    assert job.eval("new_global = counter", assign=True).error is None
    assert job.eval("import sys; sys.modules['__main__'].new_global > 0").value == "True"


def test_what_the_code_raises_is_its_result(job: probing.Process, training: Target) -> None:
    """Exceptions, SystemExit and KeyboardInterrupt end the code, never the job."""
    for code, kind in (
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("no_such_name", "NameError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("def f(n): return f(n + 1)\nf(0)", "RecursionError"),
    ):
        result = job.eval(code)
        assert result.error_type == kind, result
        assert kind in (result.error or "")
        assert "probing/agent" not in (result.error or ""), "our own frames are not shown"
    training.wait_for_step(training.step() + 1)


def test_values_that_resist_are_told(job: probing.Process) -> None:
    """A repr that raises, returns no text, or never ends by itself is still an answer."""
    assert "RuntimeError" in str(
        job.eval("class A:\n def __repr__(self): raise RuntimeError\nA()").value
    )
    assert "TypeError" in str(job.eval("class A:\n def __repr__(self): return 3\nA()").value)
    assert "SystemExit" in str(
        job.eval("class A:\n def __repr__(self): raise SystemExit\nA()").value
    )
    assert job.eval("'\\ud800'").value == "'\\ud800'"
    assert job.eval("print('\\ud800')").error is None


def test_output_is_bounded_and_the_rest_counted(job: probing.Process) -> None:
    """A gigabyte of output costs neither the job nor the client its memory."""
    result = job.eval("for _ in range(1000): print('x' * 999_999)")
    assert len(result.output) == 1 << 20
    assert len(result.output) + result.omitted_bytes == 1_000_000_000


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("ж" * 1_500_000, 1 << 20, "ж" * (1 << 19)),
        ("a" + "ж" * 9, 4, "aж"),
        ("😀😀", 7, "😀"),
        ("😀", 3, ""),
        ("\ud800\ud800", 5, "\ud800"),
        ("ж", 2, "ж"),
        ("plain", 3, "pla"),
    ],
    ids=["much", "within a letter", "within a picture", "no room", "surrogates", "all", "ascii"],
)
def test_output_is_cut_between_two_characters(text: str, limit: int, kept: str) -> None:
    """Of any script, in one go: the training stands still meanwhile."""
    capture = Capture(limit)
    capture.write(text)
    omitted = len(text.encode("utf-8", "surrogatepass")) - len(
        kept.encode("utf-8", "surrogatepass")
    )
    assert (capture.text, capture.omitted_bytes) == (kept, omitted)


def test_the_trainings_own_prints_stay_its_own(job: probing.Process, training: Target) -> None:
    """While code runs, other threads print where they always did, and nothing else is caught."""
    lines = len(training.output.splitlines())
    result = job.eval(
        "import threading\n"
        "t = threading.Thread(target=lambda: print('from another thread', flush=True))\n"
        "t.start(); t.join()\nprint('mine')"
    )
    assert result.output == "mine\n"
    wait_until(lambda: "from another thread" in training.output, "the other thread's line")
    assert "mine" not in training.output
    wait_until(lambda: len(training.output.splitlines()) > lines + 1, "the training's next line")
    assert job.eval("import sys; type(sys.__stdout__) is type(sys.stdout)").error is None


def test_an_endless_loop_is_interrupted(job: probing.Process, training: Target) -> None:
    """Code over its time limit is ended with its place in it, and training goes on."""
    endless = "x = 0\nwhile True:\n    x += 1"
    with patience(job):
        start = time.monotonic()
        result = answer_of_run(lambda: job.eval(endless, timeout_s=1.5))
        assert time.monotonic() - start < 60, "else it would go on for ever"
    assert result.error_type == "EvalInterrupted"
    assert "interrupted after its limit of 1.5 s" in str(result.error)
    training.wait_for_step(training.step() + 2)


def test_code_that_cannot_be_interrupted_is_left_behind(
    fresh_training: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A blocking C call runs on in the background; the client and the training do not wait."""
    monkeypatch.setenv("PROBING_HOME", str(fresh_training.home))
    job = probing.connect(fresh_training.pid)
    with pytest.raises(ProbingError, match="cannot be interrupted where it is"):
        answer_of_run(lambda: job.eval("import time; time.sleep(20)", timeout_s=1))
    fresh_training.wait_for_step(fresh_training.step() + 3)
    assert job.eval("1").value == "1"
    assert "Traceback" not in fresh_training.output


def test_as_many_evals_as_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evals at once are counted; one too many is refused with a sentence, until others end."""
    release = threading.Event()
    monkeypatch.setattr(sys.modules["__main__"], "release", release, raising=False)
    folder = RunDirectory(tmp_path / "home").create_folder(1, 1)
    evaluator = Evaluator(Agent(Settings(eval_max_running=2), folder))
    request = wire.EvalRequest(code="release.wait(30)", now=True)
    running = [evaluator.submit(request, Sender()) for _ in range(2)]
    with pytest.raises(Busy, match="already has 2 evals under way"):
        evaluator.submit(request, Sender())
    release.set()
    assert [evaluation.future.result(30).value for evaluation in running] == ["True", "True"]


@pytest.mark.parametrize("kind", ["once", "repeated"])
def test_the_record_is_closed_before_who_asked_is_told(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the answer and looks at once finds neither an eval in hand nor an open row."""
    begin = threading.Event()
    monkeypatch.setattr(sys.modules["__main__"], "begin", begin, raising=False)
    folder = RunDirectory(tmp_path / "home").create_folder(1, 1)
    evaluator, order = Evaluator(Agent(Settings(), folder)), list[object]()
    monkeypatch.setattr(evaluator._record, "end", lambda *_: order.append("record"))

    def tell(item: object) -> bool:
        order.extend([type(item).__name__, len(evaluator.jobs().jobs)])
        return True

    if kind == "once":
        request = wire.EvalRequest(code="begin.wait(30)", now=True)
        evaluator.submit(request, Sender()).future.add_done_callback(tell)
        begin.set()
    else:  # no step comes
        evaluator.repeat(RepeatRequest(code="1", every=1, times=1, timeout_s=0.01), Sender(), tell)
    expected = ["Future", 0] if kind == "once" else ["NoStepCame", 0, "NoneType", 0]
    wait_until(lambda: len(order) > len(expected), "all that is told")
    assert order == ["record", *expected]


@pytest.mark.parametrize("way", ["sleep", "lock", "forward", "backward"])
def test_a_hung_training_answers_from_the_agents_thread(
    way: str, hung: Callable[[str], probing.Process]
) -> None:
    """A training thread that makes no progress is looked at without its help, within seconds."""
    result = hung(way).eval("len(list(model.parameters()))")
    assert (result.value, result.where) == ("2", "agent thread")
    assert result.waited_s < 8


@pytest.mark.parametrize("way", ["backward", "step"])
def test_a_script_that_goes_on_waits_for_the_code(
    way: str, program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Busy in Python before its backward pass or optimizer, it enters neither under an eval."""
    target = program("pausing", way)
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    result = probing.connect(target.pid).eval("go.set()\nbegun.wait(1)")
    assert (result.value, result.where) == ("False", "agent thread")
    target.wait_for_output("trained")


def test_now_does_not_wait(hung: Callable[[str], probing.Process]) -> None:
    """With `now` the code runs at once, even beside a training thread that spins."""
    result = hung("spin").eval("1 + 1", now=True)
    assert (result.value, result.where) == ("2", "agent thread")


def test_a_held_interpreter_lock_is_told(hung: Callable[[str], probing.Process]) -> None:
    """Nothing can run in the process; the refusal says so quickly and names what still works."""
    job = hung("gil")
    start = time.monotonic()
    with pytest.raises(NotAnswering, match="interpreter lock") as caught:
        job.eval("1")
    assert time.monotonic() - start < 25, (
        "as long as a busy machine may need, and far from the limit"
    )
    assert "backtrace" in caught.value.help
    assert caught.value.exit_code == 5


def test_the_command_prints_and_fails_as_the_code_does(training: Target) -> None:
    """Output on stdout, tracebacks on stderr, exit code 1 for an exception."""
    done = training.run("eval", "print('hello')\n[1, 2]", "-t", str(training.pid))
    assert (done.returncode, done.stdout) == (0, "hello\n[1, 2]\n")
    assert re.fullmatch(
        r"at step \d+, (training held|beside the training) for \S+ [mu]?s\n", done.stderr
    )
    done = training.run(str(training.pid), "eval", "print('before')\n1/0")
    assert (done.returncode, done.stdout) == (1, "before\n")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    done = training.run(str(training.pid), "eval", "-", "--json", input="6 * 7")
    answer = json.loads(done.stdout)
    assert (answer["value"], answer["error"]) == ("42", None)
