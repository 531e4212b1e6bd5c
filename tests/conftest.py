"""Fixtures that every test module may use."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

import probing
from tests import faults
from tests.harness import leftovers, sharing, warm
from tests.harness.counting import count_without_lock
from tests.harness.jobs import Job, StartJob, start_job
from tests.harness.targets import Target, start_program, start_training
from tests.harness.watch import Place, Watch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let what the tests of the faults reach be kept for docs/reliability.md."""
    parser.addoption(
        "--record-faults",
        action="store_true",
        help="write what the tests of tests/faults.py reached into docs/reliability.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C even where a shell has started the tests in its background and so muted it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    count_without_lock()
    if hasattr(config, "workerinput"):
        # Lines are counted in this process and in the commands that it forks. What is started anew,
        # by another user or with failing system calls perhaps, would be slower and say so.
        os.environ.pop("COVERAGE_PROCESS_START", None)
        config.stash[_PLACE] = Place(_run_folder(), config.workerinput["workerid"])
        config.stash[_PLACE].say("the collection of the tests", _COLLECTION_S)
        return
    # The one process that sees the whole run.
    folder = tempfile.mkdtemp(prefix="tests-")
    os.environ[leftovers.RUN] = folder
    config.add_cleanup(lambda: shutil.rmtree(folder))
    config.stash[_LEFTOVERS] = leftovers.Leftovers()
    config.stash[_WATCH] = Watch(_run_folder())
    config.add_cleanup(config.stash[_WATCH].stop)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Hear of a worker that has ended, well or not."""
    node.config.stash[_WATCH].forget(node.gateway.id)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Tell a failure at once where the summary is far: a run that is killed has none."""
    if report.failed and hasattr(report, "node"):
        print(f"\n{report.nodeid} ({report.when})\n{report.longreprtext}", flush=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests out of the garbage collection: they stay for the whole run.

    Else it goes through a million objects whenever some are made, and whenever a test asks for it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let a worker wait for its first test as long as that takes."""
    _say(session.config, "", None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes an accelerator or very long, unless it is asked for by its marker."""
    for item in items:
        if item.nodeid.startswith(NIGHTLY):
            item.add_marker(pytest.mark.nightly)
    for marker in ("gpu", "nightly"):
        if marker not in config.option.markexpr:
            special = [item for item in items if item.get_closest_marker(marker)]
            config.hook.pytest_deselected(items=special)
            items[:] = [item for item in items if item not in special]
    if not config.pluginmanager.has_plugin("randomly"):  # a shuffle stays one
        begin_with_the_longest(items)


def begin_with_the_longest(items: list[pytest.Item]) -> None:
    """Put the files first that take longest: begun late, each keeps a run up when all else is done.

    Workers are given files in this order.
    """
    places = {file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let a test that is marked `alone` run while no other does, in any worker.

    To wait for that is not a test's own time; the rest has an end, even where a failure has taken
    away the limit of what comes after it.
    """
    marker, config = item.get_closest_marker("timeout"), item.config
    limit_s = float(
        marker.args[0] if marker else config.getoption("timeout") or config.getini("timeout")
    )
    with sharing.turn(_run_folder(), alone=item.get_closest_marker("alone") is not None):
        _say(item.config, item.nodeid, 2 * limit_s)
        result = yield
    _give_up_if_spoilt(item)
    _say(item.config, "", None)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a test that ran out of time."""
    report = yield
    if call.excinfo is not None and "Timeout (>" in str(call.excinfo.value):
        item.stash[_LATE] = True
    return report


def _give_up_if_spoilt(item: pytest.Item) -> None:
    """Have another worker take over where two tests in a row ran out of time: so would the rest."""
    late = item.config.stash.get(_LATE_IN_A_ROW, 0) + 1 if item.stash.get(_LATE, False) else 0
    item.config.stash[_LATE_IN_A_ROW] = late
    if late == _MOST_LATE and _PLACE in item.config.stash:
        _say(item.config, f"{item.nodeid}, the second in a row that ran out of time,", 0.0)
        time.sleep(_COLLECTION_S)  # until it is ended


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the session's training rest while others are tested: it would take a core of theirs.

    Who rests is noted, not looked up: on a busy machine a process stops some time after its signal.
    """
    is_used = "training" in getattr(item, "fixturenames", ())
    for target in _trainings:
        if target.process.poll() is not None:
            continue
        if not is_used:
            os.kill(target.pid, signal.SIGSTOP)
            _resting.add(target.pid)
        elif target.pid in _resting:
            os.kill(target.pid, signal.SIGCONT)
            _resting.discard(target.pid)
            # It makes progress, as a training does that nobody has stopped.
            target.wait_for_step(target.step() + 1)


NIGHTLY = tuple(
    f"tests/{line}"
    for line in (Path(__file__).parent / "nightly.txt").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
)
"""How the names of tests begin that run only at night."""
LONGEST = (
    "tests/house/test_docs.py",
    "tests/sql/test_sql_faults.py",
    "tests/sql/test_sql_worker.py",
    "tests/evaluating/test_eval.py",
    "tests/serving/test_web_page.py",
    "tests/evaluating/test_eval_faults.py",
    "tests/survival/test_failing_calls.py",
    "tests/house/test_packaging.py",
)
"""The files that take longest; none with a test that waits until it is alone."""
_COLLECTION_S = 600.0
_LATE = pytest.StashKey[bool]()
_LATE_IN_A_ROW = pytest.StashKey[int]()
_MOST_LATE = 2
_LEFTOVERS = pytest.StashKey[leftovers.Leftovers]()
_PLACE = pytest.StashKey[Place]()
_WATCH = pytest.StashKey[Watch]()
_trainings: list[Target] = []
_resting: set[int] = set()
_reached: list[faults.Reached] = []


@pytest.fixture
def fault(request: pytest.FixtureRequest) -> Iterator[faults.Reached]:
    """What this test says of the fault that its marker names."""
    marker = request.node.get_closest_marker("fault")
    assert marker is not None, "a test with the fixture `fault` is marked fault(ID)"
    file = request.node.path.relative_to(request.config.rootpath).as_posix()
    reached = faults.Reached(faults.find_fault(marker.args[0]), file)
    failed = request.session.testsfailed
    yield reached
    if request.session.testsfailed == failed:
        assert reached.cases, f"the test of {reached.fault.id} said nothing of it"
    _reached.append(reached)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what was reached, if that was asked for, and fail if something was left behind."""
    if session.config.option.record_faults:
        faults.record(faults.RESULTS, _reached, platform.python_version())
    _say(session.config, "the end of the session", _COLLECTION_S)
    warm.stop()
    before = session.config.stash.get(_LEFTOVERS, None)
    if before is not None and (left := before.find()):
        print("\nThe tests have left behind:", *left, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _run_folder() -> Path:
    """The folder of this run, the same in all of its workers."""
    return Path(os.environ[leftovers.RUN])


def _say(config: pytest.Config, what: str, limit_s: float | None) -> None:
    """Say what this process does now, if it is a worker."""
    if _PLACE in config.stash:
        config.stash[_PLACE].say(what, limit_s)


@pytest.fixture(scope="session")
def training(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """The bundled training, running with the agent for the whole session; do not harm it."""
    cwd = tmp_path_factory.mktemp("training")
    target = start_training(home=cwd / "home", cwd=cwd)
    _trainings.append(target)
    yield target
    _trainings.remove(target)
    target.reap()


@pytest.fixture
def fresh_training(tmp_path: Path) -> Iterator[Target]:
    """The bundled training, for this test alone."""
    target = start_training(home=tmp_path / "home", cwd=tmp_path)
    yield target
    target.reap()


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A training in a function, running for all tests of a module."""
    cwd = tmp_path_factory.mktemp("evaluated")
    target = start_program("evaluated", "1000000", home=cwd / "home", cwd=cwd)
    target.wait_for_step(3)
    yield target
    target.reap()


@pytest.fixture
def asked(evaluated: Target, monkeypatch: pytest.MonkeyPatch) -> probing.Process:
    """The training in a function as Python sees it."""
    monkeypatch.setenv("PROBING_HOME", str(evaluated.home))
    return probing.connect(evaluated.pid)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., Target]]:
    """Starts programs of ``tests/programs`` by name, each with the agent watching."""
    targets: list[Target] = []

    def start(name: str, *args: str, **extra: str) -> Target:
        cwd = tmp_path / f"{name}-{len(targets)}"
        cwd.mkdir()
        target = start_program(name, *args, home=tmp_path / "home", cwd=cwd, **extra)
        targets.append(target)
        return target

    yield start
    for target in targets:
        target.reap()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[StartJob]:
    """Starts programs of ``tests/programs`` on several ranks, each with the agent watching."""
    jobs: list[Job] = []

    def start(program: str, *args: str, ranks: int = 4, **extra: str) -> Job:
        cwd = tmp_path / f"{program}-{len(jobs)}"
        cwd.mkdir()
        jobs.append(start_job(program, *args, ranks=ranks, cwd=cwd, **extra))
        return jobs[-1]

    yield start
    for started in jobs:
        started.reap()
