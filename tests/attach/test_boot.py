"""How the agent gets into a process, out of it, and which processes it leaves alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from probing import _boot, connect
from probing.errors import NotProbed
from probing.rundir.folders import RunDirectory
from tests.faults import Reached
from tests.harness.targets import DEADLINE_S, Target, clean_env, program_path, wait_until


@pytest.mark.torch
@pytest.mark.fault("T4")
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_dataloader_workers_are_left_alone(
    method: str, program: Callable[..., Target], fault: Reached
) -> None:
    """A DataLoader's workers run, whatever their start method, and carry nothing of the agent."""
    target = program("children", method)
    target.wait_for_output("done")
    agents = [folder.pid for folder in RunDirectory(target.home).folders()]
    fault.equals(f"workers by {method}: agents beside their parent's", 0, len(agents) - 1)
    assert agents == [target.pid]


POOL = """
import multiprocessing, os
from probing import _boot
{start}

def has_torch(number):
    import torch
    return "probing.agent.lifecycle" in __import__("sys").modules

with multiprocessing.get_context("fork").Pool(2) as pool:
    print(sum(pool.map(has_torch, range(4))), flush=True)
"""
_ASKED = "import probing; probing.start()"


@pytest.mark.anypython
@pytest.mark.parametrize(("start", "agents"), [("_boot.start()", 0), (_ASKED, 1)])
def test_workers_forked_before_torch_is_there_are_left_alone(
    start: str, agents: int, tmp_path: Path
) -> None:
    """Daemonic children that import torch themselves get no agent, whether the parent has one."""
    (tmp_path / "torch.py").touch()
    (tmp_path / "train.py").write_text(POOL.format(start=start))
    home = tmp_path / "home"
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env=clean_env(home, PROBING="1"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(RunDirectory(home).folders()) == agents
    if not agents:
        assert done.stdout == "0\n", "nothing of the agent is imported"


@pytest.mark.anypython
@pytest.mark.parametrize(
    ("command", "is_helper"),
    [
        ("python -m torch.distributed.run train.py", True),
        ("python -W ignore -m torch.distributed.run train.py", True),
        ("python -X faulthandler -m torch.distributed.run train.py", True),
        ("python -um torch.distributed.run train.py", True),
        ("python -umtorch.distributed.run train.py", True),
        ("python -W ignore /usr/bin/torchrun train.py", True),
        ("python -X dev -c multiprocessing.resource_tracker", True),
        ("python -W ignore train.py", False),
        ("python -um my.module", False),
        ("python train.py -m torch.distributed.run", False),
        ("python -W torchrun train.py", False),
        ("python -i", False),
        ("python", False),
    ],
)
def test_a_launcher_is_known_whatever_options_python_has(command: str, is_helper: bool) -> None:
    """Only the program of a command line says what it is, not a value of an option."""
    assert _boot._is_helper(command.split()) is is_helper


@pytest.mark.anypython
def test_only_the_code_that_is_run_makes_a_child_of_multiprocessing() -> None:
    """A program that has such words among its own arguments waits for nobody's word."""
    child = ["python", "-X", "dev", "-c", "from multiprocessing.spawn import spawn_main"]
    assert _boot._is_multiprocessing_child([*child, "--multiprocessing-fork"])
    assert not _boot._is_multiprocessing_child(["python", "train.py", *child[3:]])


@pytest.mark.torch
def test_a_forked_child_never_writes_to_its_parents_rings(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """20 forked children call the model 2,000 times; the record holds the parent's two calls."""
    import probing

    target = program("children", "os_fork")
    target.wait_for_output("done")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    sql = "SELECT count(*) AS n FROM python.torch_trace WHERE stage = 'forward'"
    assert probing.connect(target.pid).query(sql).to_pylist() == [{"n": 2}]


def shown_ranks(target: Target) -> dict[int, int]:
    """The pid of each rank that is listed."""
    listed = json.loads(target.run("list", "--format", "json").stdout)
    return {row["rank"]: row["pid"] for row in listed if row["rank"] is not None}


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_that_train_get_their_own_agent(
    method: str, program: Callable[..., Target]
) -> None:
    """Ranks started by torch.multiprocessing record for themselves, and say their rank."""
    target = program("children", f"ranks_{method}")
    target.wait_for_output("rank 0")
    target.wait_for_output("rank 1")
    lines = [line.split() for line in target.output.splitlines() if line.startswith("rank")]
    ranks = {int(rank): int(pid) for _, rank, pid in lines}
    try:
        listed = target.run("list", "--format", "json")
        assert listed.returncode == 0, listed.stderr
        wait_until(lambda: shown_ranks(target) == ranks, "both ranks, with their processes")
    finally:
        for pid in ranks.values():
            os.kill(pid, 9)


@pytest.mark.torch
def test_torchrun_gets_one_agent_per_worker_and_none_in_the_launcher(tmp_path: Path) -> None:
    """The launcher has no run folder; each worker has one, with its rank."""
    script = tmp_path / "worker.py"
    script.write_text(
        "import os, torch\ntorch.nn.Linear(1, 1)(torch.ones(1))\n"
        "os.write(1, f'worker {os.getpid()}\\n'.encode())  # one write: the output is shared\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)],
        env=clean_env(tmp_path / "home", PROBING="1"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    workers = {int(x.split()[1]) for x in done.stdout.splitlines() if x.startswith("worker")}
    folders = RunDirectory(tmp_path / "home").folders()
    assert {folder.pid for folder in folders} == workers
    cards = [folder.read_card() for folder in folders]
    assert sorted(card.rank for card in cards if card and card.rank is not None) == [0, 1]


@pytest.mark.torch
@pytest.mark.parametrize("asked", [False, True])
def test_stop_leaves_the_process_as_it_was(asked: bool, program: Callable[..., Target]) -> None:
    """After stop there is no wrapper, hook, thread, file, mapping or finder of ours."""
    target = program("start_stop", *(["asked"] if asked else []), PROBING="0")
    assert target.process.wait(DEADLINE_S) == 0, target.output
    assert "done" in target.output
    recorded = [line for line in target.output.splitlines() if line.startswith("{")]
    assert recorded == [str({"step": step, "calls": 1}) for step in range(3)]  # one record
    if asked:
        assert "[{'evals': [1, 2, 3]}]" in target.output


ENDS = {"normal": 0, "asked": 0, "exception": 1, "sys.exit": 3, "os._exit": 4, "SIGTERM": -15,
        "SIGINT": -2}  # fmt: skip


@pytest.mark.torch
@pytest.mark.fault("T2")
@pytest.mark.parametrize(("way", "code"), ENDS.items())
def test_exit_codes_and_output_stay(way: str, code: int, tmp_path: Path, fault: Reached) -> None:
    """Whatever way a training ends, its exit code and output are those of a run without us."""
    argv = [sys.executable, str(program_path("exits")), way]
    outputs = []
    for probing in ("0", "1"):
        if way == "asked" and probing == "0":
            continue
        done = subprocess.run(
            argv,
            env=clean_env(tmp_path / "home", PROBING=probing),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        fault.equals(f"{way}, PROBING={probing}: exit code", code, done.returncode)
        outputs.append((done.stdout, done.stderr))
    fault.holds(f"{way}: both streams", "as without us", "as without us",
                is_kept=outputs[0] == outputs[-1])  # fmt: skip


BROKEN_TORCHES = {
    "a missing part": "import nothing_of_that_name",
    "an error": "1 / 0",
    "an error further down": "from . import below",
    "no Python": "1 1",
}


@pytest.mark.anypython
@pytest.mark.parametrize("kind", BROKEN_TORCHES)
def test_a_torch_that_cannot_be_imported_is_told_as_without_us(kind: str, tmp_path: Path) -> None:
    """The traceback has the script's lines and torch's, and no frame of ours or of the import."""
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text(BROKEN_TORCHES[kind])
    (package / "below.py").write_text("def fail():\n    raise OSError('libcudart')\nfail()\n")
    (tmp_path / "train.py").write_text(
        "from probing import _boot\n_boot.start()\ndef load():\n    import torch\nload()\n"
    )
    told = []
    for probing in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env=clean_env(tmp_path / "home", PROBING=probing),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        told.append((done.returncode, done.stdout, done.stderr))
    assert told[0] == told[1]
    assert told[0][0] == 1


_SPOILT = """
from probing import _boot
_boot.start()
import gc, sys, time
import torch
model = torch.nn.Linear(2, 2)
model(torch.zeros(1, 2))
sys.path[:] = sys.meta_path[:] = []
time.perf_counter_ns = lambda: 1 / 0
gc.collect()
print("through")
"""


@pytest.mark.torch
def test_a_python_that_the_program_has_spoilt_is_no_reason_to_print(tmp_path: Path) -> None:
    """Clocks that fail and imports that find nothing, also at the end: nothing is said of ours."""
    done = subprocess.run(
        [sys.executable, "-c", _SPOILT],
        env=clean_env(tmp_path / "home", PROBING="1"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "through\n", "")


@pytest.mark.anypython
def test_who_asks_before_torch_is_there_is_told_when_an_agent_comes(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That no agent is there in a process that was started with PROBING=1 is not for good."""
    target = program("stuck", "sleep", PROBING="1")
    target.wait_for_output("ready")  # before, the kernel may not have its environment yet
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    with pytest.raises(NotProbed, match="once torch has been imported") as error:
        connect(target.pid).live("sources")
    assert f"probing {target.pid} backtrace" in error.value.help


FAILING_SCRIPTS = {
    "an exception": "def fail():\n    1 / 0\nfail()\n",
    "a hook": "import sys\nsys.excepthook = lambda *a: print(a[1], a[2].tb_lineno)\n1 / 0\n",
    "no Python": "1 1\n",
    "an exit with words": "raise SystemExit('no data')\n",
    "an exit hook": "import atexit\natexit.register(print, 'bye')\n1 / 0\n",
}


@pytest.mark.anypython
@pytest.mark.parametrize("kind", FAILING_SCRIPTS)
def test_a_script_that_is_run_fails_as_by_itself(kind: str, tmp_path: Path) -> None:
    """What `probing run` runs ends with the traceback, output and code that Python alone gives."""
    script = tmp_path / "train.py"
    script.write_text(FAILING_SCRIPTS[kind])
    told = []
    for before in ([], ["-m", "probing._run"]):
        done = subprocess.run(
            [sys.executable, *before, str(script)],
            cwd=tmp_path,
            env=clean_env(tmp_path / "home"),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        told.append((done.returncode, done.stdout, done.stderr))
    assert told[0] == told[1]
    assert told[0][0] == 1


FIRST_USES = {
    "a module": ("torch.nn.Linear(2, 2)(torch.zeros(1, 2))", "torch_trace"),
    "a backward pass": ("torch.zeros(2, requires_grad=True).sum().backward()", "memory"),
    "an optimizer": ("torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1)", "memory"),
    "a loader": ("next(iter(torch.utils.data.DataLoader([torch.zeros(2)] * 4)))", "batches"),
    "a mark": ("import probing; probing.metric(reward=0.5)", "metrics"),
}
"""What a training may begin with, each in a process that has done nothing else, and the table that
then has a row."""
_MOST_MODULES = 49
"""How many modules of ours the start may load: each takes a fifth of a millisecond and more. Those
of folders, which are nearly empty, do not count. Three are there to know how the process exits."""
_FIRST_USE = """
import glob, os, sys
from probing import _boot
_boot.start()
import torch
def told():
    ours = [name for name, module in sys.modules.items()
            if name.partition(".")[0] == "probing" and not hasattr(module, "__path__")]
    print(len(ours), len(glob.glob(os.environ["PROBING_HOME"] + "/*/*.ring")))
told()
{first}
told()
from probing.agent import lifecycle
training = lifecycle.current().training
print(training.problems(), training.remains())
print([ring.layout.table.name for ring in training._rings.all() if ring.newest_word() > 0])
"""


@pytest.mark.torch
@pytest.mark.parametrize("first", FIRST_USES)
def test_recording_begins_with_the_first_use(first: str, tmp_path: Path) -> None:
    """The start loads few modules and makes no ring; whatever comes first is recorded."""
    use, table = FIRST_USES[first]
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_USE.format(first=use)],
        env=clean_env(tmp_path / "home", PROBING="1"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    before, after, troubles, written = done.stdout.splitlines()
    (modules, rings), (more_modules, more_rings) = map(str.split, (before, after))
    assert int(modules) <= _MOST_MODULES < int(more_modules)
    assert (rings, more_rings != "0") == ("0", True)
    assert troubles == "[] []"
    assert f"'{table}'" in written


@pytest.mark.anypython
def test_off_means_off(tmp_path: Path) -> None:
    """Without PROBING nothing of probing is imported and no run folder is made."""
    code = "import sys; print([m for m in sys.modules if m.startswith('probing')])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=clean_env(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
    assert not (tmp_path / "home").exists()


@pytest.mark.anypython
def test_on_without_torch_waits(tmp_path: Path) -> None:
    """PROBING=1 starts no agent in a process that never imports torch; PROBING=all does."""
    for mode, agents in (("1", 0), ("all", 1)):
        home = tmp_path / mode
        done = subprocess.run(
            [sys.executable, "-m", "probing._run", "-m", "this"],
            env=clean_env(home, PROBING=mode),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert len(RunDirectory(home).folders()) == agents


@pytest.mark.anypython
def test_a_failed_start_is_told_in_a_line(tmp_path: Path) -> None:
    """A wrong setting does not touch the host's output but for that; `list` has the reason, too."""
    done = subprocess.run(
        [sys.executable, "-m", "probing._run", "-m", "this"],
        env=clean_env(tmp_path / "home", PROBING="all", PROBING_TRACE_ROWS="many"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    told = (
        "probing: the agent did not start: setting PROBING_TRACE_ROWS: 'many' is not an integer;"
        " nothing is recorded: correct or unset PROBING_TRACE_ROWS, and start the script again\n"
    )
    assert (done.returncode, done.stderr) == (0, told)
    (folder,) = RunDirectory(tmp_path / "home").folders()
    card = folder.read_card()
    assert card is not None
    assert "'many' is not an integer" in card.problems[0]


NO_LOCK = """
import sys
sys._is_gil_enabled = lambda: False
import probing
from probing.errors import AttachRefused
try:
    probing.start()
except AttachRefused as error:
    print(error, error.help)
"""


@pytest.mark.anypython
def test_a_python_without_its_lock_is_refused(tmp_path: Path) -> None:
    """Whoever starts the agent, in a sentence that says how to get the lock."""
    done = subprocess.run(
        [sys.executable, "-c", NO_LOCK],
        env=clean_env(tmp_path / "home", PROBING="0"),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "free-threaded build of Python" in done.stdout, done.stderr
    assert "PYTHON_GIL=1" in done.stdout
    assert not RunDirectory(tmp_path / "home").folders()


@pytest.mark.anypython
def test_a_process_has_one_agent_whatever_interpreters_it_has(
    program: Callable[..., Target],
) -> None:
    """A sub-interpreter gets none beside it, and the C part records for the main one alone."""
    target = program("second_interpreter", PROBING="0")
    target.wait_for_output("done")
    assert target.folder.read_card() is not None
    assert "another interpreter in it has one" in target.output, target.output
    assert "takes a recording: False" in target.output


@pytest.mark.anypython
def test_a_run_directory_that_is_opened_is_used_no_more(
    program: Callable[..., Target], tmp_path: Path
) -> None:
    """Who starts after that goes elsewhere, and is found there."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    target = program("idle", PROBING="all")
    target.wait_for_output("ready")
    os.chmod(target.home, 0o777)
    second = program("idle", PROBING="all", XDG_RUNTIME_DIR=str(runtime))
    second.wait_for_output("ready")
    assert second.find_folder() is None
    wait_until(lambda: RunDirectory(runtime / "probing").folders(), "its folder")
    listed = target.run("list", "--format", "json", XDG_RUNTIME_DIR=str(runtime))
    assert [found["pid"] for found in json.loads(listed.stdout)] == [second.pid]
    assert f"{target.home} is no run directory: its mode is 777, not 700" in listed.stderr


@pytest.mark.anypython
def test_old_records_go_and_live_ones_stay(program: Callable[..., Target]) -> None:
    """An agent that starts removes records past their age, never that of a live process."""
    dead = program("idle", PROBING="all")
    dead.wait_for_output("ready")
    dead.wait_for_agent()
    path = dead.folder.path
    dead.kill()
    old = time.time() - 7200
    for entry in path.iterdir():
        os.utime(entry, (old, old))
    alive = program("idle", PROBING="all", PROBING_KEEP_HOURS="1")
    alive.wait_for_agent()
    wait_until(lambda: not path.exists(), "the old record to be removed")
    assert alive.folder.path.exists()
