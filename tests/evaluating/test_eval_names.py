"""Which names code sees that was sent to a training, and what it can change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest

import probing
from probing.agent.eval.frame_names import Place
from probing.agent.eval.namespace import LiveGlobals, Names
from probing.errors import ProbingError
from tests.harness.targets import Target, wait_until

pytestmark = pytest.mark.torch


def test_what_probing_knows_has_the_usual_names(asked: probing.Process) -> None:
    """A script that names everything otherwise is asked by the names that everybody uses."""
    code = (
        "(model is network, optimizer is sgd, scheduler is plan, train_loader is feed,"
        " dataloader is feed, loss is error, batch[0] is x and batch[1] is y, step > 0)"
    )
    assert asked.eval(code).value == str((True,) * 8)


class OnlyAtHand(dict[str, object]):
    """Knows names, and may be asked only for those that are found at once."""

    possible = ("model", "scheduler")
    at_hand = ("model",)

    def __contains__(self, name: object) -> bool:
        assert name in self.at_hand, "this looks at every object of the process"
        return True


def test_listing_names_looks_for_none() -> None:
    """`dir()` holds the training up no longer than one name does: what is at hand is listed."""
    names = Names(Place(0), OnlyAtHand())
    listed = eval("dir(), list(globals()), dir", LiveGlobals(names))[:2]
    for found in listed:
        assert "model" in found
        assert "scheduler" not in found


def test_neither_loss_nor_batch_is_kept(asked: probing.Process) -> None:
    """What an eval has looked at dies when the training lets go of it, graph and all."""
    code = "import weakref\nkept = weakref.ref(loss), weakref.ref(batch[0]), weakref.ref(error)\n"
    assert asked.eval(code + "def again(): return error").error is None
    step = asked.eval("step").value
    wait_until(lambda: asked.eval("step").value != step, "another step")
    gone = "[ref() is None for ref in kept]"
    wait_until(lambda: asked.eval(gone).value == "[True, True, True]", "the end of all three")
    assert asked.eval("again() is error").value == "True", "the function looks anew"


def test_a_local_is_changed_in_the_running_function(asked: probing.Process) -> None:
    """An assignment reaches the local variable of the frame, in every version of Python."""
    assert asked.eval("pause = 0.003\npause", assign=True).value == "0.003"
    step = asked.eval("step").value
    wait_until(lambda: asked.eval("step").value != step, "another step")
    assert asked.eval("pause").value == "0.003"
    assert asked.eval("'pause' in globals() and 'pause' in vars(__import__('__main__'))").value == (
        "False"
    )
    assert asked.eval("brand_new = 1", assign=True).error is None
    assert asked.eval("vars(__import__('__main__'))['brand_new']").value == "1"
    assert "with --assign global names of the script" in str(asked.eval("del pause").error)


OWN = """
import math
for pause in (1, 2):
    twice = [pause * factor for factor in (1, 2) if pause]
def total():
    global feed
    feed = None
    return sum(twice) + pause + helper()
def helper(): return int(math.pi)
class Kept:
    here = pause
(total(), feed, Kept.here, pause, 'pause' in globals(), (lambda: pause)())
"""


def test_what_code_assigns_is_its_own(asked: probing.Process) -> None:
    """Its functions see it, the script does not, and what it has covered there is named."""
    result = asked.eval(OWN)
    assert result.error is None, result.error
    assert result.value == "(11, None, 2, 2, True, 2)"
    assert sorted(result.hidden) == ["feed", "pause"]
    assert asked.eval("pause").value in {"0.003", "0.01"}
    assert asked.eval("type(feed).__name__").value == "'DataLoader'"
    main = "vars(__import__('__main__'))"
    later = asked.eval(f"twice, total() if False else helper(), 'twice' in {main}")
    assert later.value == "([2, 4], 3, False)"
    assert asked.eval("del twice").error is None
    assert asked.eval("twice").error_type == "NameError"
    assert asked.eval("sgd.marked = True").hidden == ()
    assert asked.eval("sgd.marked").value == "True", "objects are the live ones"
    assert asked.eval("sgd = sgd\nimport threading, torch").hidden == ()


def test_lines_of_a_prompt_share_what_they_assign(asked: probing.Process) -> None:
    """Also by a name that the script has, until it is deleted; other prompts see the script's."""
    assert asked.eval("sgd = 5", session="one").hidden == ("sgd",)
    again = asked.eval("sgd + 1", session="one")
    assert (again.value, again.hidden) == ("6", ())
    assert asked.eval("type(sgd).__name__", session="two").value == "'SGD'"
    assert asked.eval("del sgd", session="one").error is None
    assert asked.eval("type(sgd).__name__", session="one").value == "'SGD'"


def test_each_run_of_a_repeated_eval_goes_on(asked: probing.Process) -> None:
    """What the code has counted is there when it runs again."""
    code = "try:\n    seen += 1\nexcept NameError:\n    seen = 1\nseen"
    assert [r.value for r in asked.eval_steps(code, times=3)] == ["1", "2", "3"]


def test_the_command_names_what_it_has_left_as_it_was(evaluated: Target) -> None:
    """A note names the script's variable, on stderr."""
    done = evaluated.run(str(evaluated.pid), "eval", "pause = 5; pause")
    assert done.stdout == "5\n"
    assert "pause of the script is as before: --assign changes it there" in done.stderr


def test_a_frame_or_a_thread_is_chosen(asked: probing.Process) -> None:
    """Another thread's locals are seen by its name or number; a wrong one names those there are."""
    by_name = asked.eval("secret", thread="other")
    assert (by_name.value, by_name.thread) == ("7", "other")
    number = asked.eval("import threading\n[t.native_id for t in threading.enumerate()"
                      " if t.name == 'other'][0]").value  # fmt: skip
    assert asked.eval("secret", thread=number).value == "7"
    assert asked.eval("secret").error_type == "NameError"
    assert asked.eval("type(feed).__name__", frame=0).value == "'DataLoader'"
    with pytest.raises(ProbingError, match="no thread 'nobody'") as caught:
        asked.eval("1", thread="nobody")
    assert "other" in caught.value.help
    with pytest.raises(ProbingError, match="no frame 99") as caught:
        asked.eval("1", frame=99)
    assert "0 main (evaluated.py:" in caught.value.help


def test_an_unknown_name_is_answered_with_candidates(asked: probing.Process) -> None:
    """A mistyped name names what is near it, and where that comes from."""
    said = str(asked.eval("netwrk").error)
    assert "NameError: name 'netwrk' is not defined" in said
    assert "network (a local of main (evaluated.py:" in said
    assert "it has seen none here" in str(asked.eval("scaler").error)


def test_words_are_completed_from_the_live_process(asked: probing.Process) -> None:
    """Names and attributes are listed, torch's submodules among them, and no property is run."""
    assert asked.complete("print(netw").words == ("network",)
    assert "param_groups" in asked.complete("sgd.param").words
    assert asked.complete("x = optimizer.st").start == len("x = optimizer.")
    trap = (
        "class Trap:\n    @property\n    def bad(self): raise SystemExit\n"
        "    def __getattr__(self, name): raise SystemExit\ntrap = Trap()"
    )
    assert asked.eval(trap).error is None
    assert asked.complete("trap.b").words == ("bad",)
    assert asked.complete("trap.bad.x").words == ()


def test_the_command_chooses_frames(evaluated: Target) -> None:
    """`--thread`, `--frame` and `--json` say the same on the command line."""
    done = evaluated.run(str(evaluated.pid), "eval", "secret", "--thread", "other", "--json")
    answer = json.loads(done.stdout)
    assert (answer["value"], answer["thread"], answer["error"]) == ("7", "other", None)
    assert {"output", "duration_s", "step"} <= answer.keys()
    done = evaluated.run(str(evaluated.pid), "eval", "1", "--frame", "99")
    assert done.returncode == 2
    assert "Its frames: 0 main" in done.stderr


def test_a_misspelt_name_costs_no_look_at_every_object() -> None:
    """What is at hand is looked for, what takes long is only named, and the script's own stay."""
    from probing.agent.eval.frame_names import Place
    from probing.agent.eval.namespace import Names

    class Known(dict[str, object]):
        """Knows a batch; to look for the scheduler would take long."""

        possible = ("batch", "scheduler")
        at_hand = ("batch",)

        def __contains__(self, name: object) -> bool:
            assert name != "scheduler", "it was looked for"
            return super().__contains__(name)

    names = Names(Place(threading.get_ident()), Known(batch=1))
    names.main = {f"helper{i}": i for i in range(60)} | {"batch": 2, "network": 3}
    assert names.hint("sheduler").startswith(
        "Did you mean scheduler (what probing knows of the training"
    )
    assert names.hint("prnt") == "Did you mean print (of Python)?"
    assert names.hint("lr") == "Did you mean optimizer.param_groups[0]['lr']?"
    assert names.hint("netwrok").startswith("Did you mean network (the script)?")
    far = names.hint("zzz")
    assert "batch" in far, far
    assert "network" in far, far
    assert "helper0," not in far, "no more than forty"


NAMES = "(type(network).__name__, type(sgd).__name__, type(history).__name__, len(history) > 1)"


@pytest.mark.parametrize("way", ["awaits", "hands over"])
def test_a_training_in_coroutines_has_its_names(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """While it awaits something, or a thread takes the step, its coroutine's names are seen.

    They come before those of other coroutines, and those of the event loop are not seen at all.
    """
    target = program("awaiting", way)
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    assert job.eval(NAMES).value == "('Linear', 'SGD', 'list', True)"
    assert job.eval("in_thread").value == str(way == "hands over")
    if way == "awaits":
        assert job.eval("before").value == "4.0", "also of what the coroutine awaits"
    for name in ("handle", "main_task", "work_item", "event_list"):
        assert job.eval(name).error_type == "NameError", name


def test_of_two_threads_that_train_the_held_one_is_asked(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names and the thread that is told are those of the thread that stands still."""
    target = program("awaiting", "threads")
    target.wait_for_step(5)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    for _ in range(6):
        result = job.eval("own")
        is_main = result.thread == "MainThread"
        assert result.value == ("'second'" if is_main else "'first'"), result
