"""What users may rely on: the names, and, held by mypy, the types of their uses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

import probing
from probing import actions, errors, plugins, settings, tables
from probing.messages.about.act import Asked

pytestmark = pytest.mark.anypython

NAMES = """
    AsyncJob AsyncProcess Job ProbingError Process ScriptTable __version__ connect connect_async
    connect_many connect_many_async list_processes metric see_memory span start step stop table
"""
QUESTIONS = """
    act acts arm armed attach backtrace cancel commit_act commit_eval complete dataloaders detach
    diff doctor end_session eval eval_steps fit folder gradients hang jobs labels leak live memory
    notes oom prepare_act profile query record_allocations sample set settings snapshot stragglers
    status steps summary tables
"""


def uses(process: probing.Process) -> Iterator[object]:
    """What people write; never run, since mypy says whether it is right."""
    process = probing.connect("rank:0", token=None, timeout_s=5.0, tls_ca=None)
    process = probing.connect(4242)
    name: str = process.label
    rows: list[dict[str, object]] = process.query("SELECT 1", max_rows=10).to_pylist()
    value: str | None = process.eval("1 + 1", timeout_s=1.0, now=True, session="mine").value
    values = [result.value for result in process.eval_steps("step", every=2, times=3)]
    frames = process.query("SELECT 1").df(), process.query("SELECT 1").pl()
    first: dict[str, object] = next(iter(process.query("SELECT 1")))
    sizes = [device.name for device in process.memory(top=3).devices]
    told = [finding.summary for finding in process.doctor(within_s=5).findings]
    outcome: str = process.hang().outcome
    grown = process.leak(8, by="module").notes, process.gradients(2).rows, process.oom().errors
    loaders, models = process.dataloaders().loaders, process.summary(depth=1).models
    losses = process.steps(100).df()["loss"]
    slow, other = process.stragglers(10).stragglers, process.diff(3131)
    yield frames, first, sizes, told, outcome, grown, loaders, models, losses, slow, other
    act: actions.Act = process.act(actions.Lr(scale=0.1), timeout_s=10)
    changes: tuple[actions.Change, ...] = act.changes
    done: tuple[actions.Act, ...] = process.acts().acts
    threads = process.backtrace(native=True, locals=True).threads
    live: list[dict[str, object]] = list(process.live("modules", wait_s=1.0).dicts())
    profile = process.profile(3, tell=print).profile
    samples = process.sample(1.0, hz=10, idle=True)
    armed = process.arm("nan", 3)
    recording = process.snapshot(steps=2)
    pid: int | None = process.status().pid
    settings_now = process.set("overhead", "0.01")
    attached = process.attach(how="auto", timeout_s=5.0)
    detached = process.detach(keep_record=True)
    notes: list[str] = process.notes()
    ranks = probing.connect_many(["all"]).query("SELECT rank FROM python.steps").to_pylist()
    with probing.span("load"):
        probing.metric(loss=0.1)
    probing.step()
    yield name, rows, value, values, changes, done, threads, live, profile, samples, armed
    yield recording, pid, settings_now, attached, detached, notes, ranks
    try:
        yield probing.list_processes()
    except errors.NotProbed as error:
        text: str = error.message
        yield text, error.help, error.code, error.exit_code, error.status
    except probing.ProbingError:
        pass
    table: tables.Table = tables.TABLES_BY_NAME["steps"]
    columns: list[str] = [column.name for column in table.columns]
    all_settings: tuple[settings.Setting, ...] = settings.SETTINGS
    yield columns, all_settings, settings.Settings.from_env({}).mode


def extends(process: probing.Process) -> Iterator[object]:
    """What packages add and scripts record; never run, as above."""
    rewards: probing.ScriptTable = probing.table("rewards", {"reward": float, "note": str}, rows=9)
    rewards.add(reward=0.5, note="seed 7")
    added = plugins.Plugin(
        tables=(
            plugins.RecordedTable(
                name="load", columns={"load": float}, doc="", each_step=lambda: {"load": 1.0}
            ),
            plugins.LiveTable(name="now", columns={"n": int}, doc="", compute=lambda: [{"n": 1}]),
        ),
        actions=(plugins.Action(name="do", doc="", apply=lambda names, given: None),),
        questions=(plugins.Question(name="what", doc="", sql="SELECT 1"),),
        rules=list,
    )
    yield added, process.act(actions.Run(name="do", arguments=("a=1",)))


async def awaited(process: probing.AsyncProcess) -> object:
    """The same in a coroutine, with the same types; never run."""
    process = await probing.connect_async(4242, timeout_s=5.0)
    rows: list[dict[str, object]] = (await process.query("SELECT 1")).rows()
    value: str | None = (await process.eval("1", now=True)).value
    devices = [device.name for device in (await process.memory(top=3)).devices]
    job: probing.AsyncJob = await probing.connect_many_async(["all"])
    ranks = (await job.query("SELECT rank FROM python.steps")).to_pylist()
    values = [result.value async for result in process.eval_steps("step", every=2, times=3)]
    return ranks, values, rows, value, devices, (await process.doctor()).findings


def test_the_face_has_these_names() -> None:
    """The package offers no name more or less, and each can be had."""
    assert set(probing.__all__) == set(NAMES.split())
    assert all(getattr(probing, name) is not None for name in probing.__all__)


def test_a_process_has_these_questions() -> None:
    """`Process` has the same methods, however it is reached."""
    public = {name for name, _ in inspect.getmembers(probing.Process) if name[0] != "_"}
    assert public == set(QUESTIONS.split())


def test_each_question_can_be_awaited() -> None:
    """But for those that are answered piece by piece, or are one half of a question to many."""
    halves = {"commit_act", "commit_eval", "prepare_act", "complete", "end_session"}
    public = {name for name, _ in inspect.getmembers(probing.AsyncProcess) if name[0] != "_"}
    assert public == set(QUESTIONS.split()) - halves - {"folder", "record_allocations"}


def test_every_action_that_can_be_asked_for_is_public() -> None:
    """`probing.actions` has a class for whatever `Process.act` takes."""
    assert {cls.__name__ for cls in Asked.__args__} <= set(actions.__all__)
    assert all(getattr(actions, name).__name__ == name for name in actions.__all__)


def test_every_error_is_public() -> None:
    """Each class of the tree can be caught by its name in `probing.errors`."""
    tree = [cls for cls in errors.error_classes() if cls.__module__.startswith("probing.errors")]
    assert all(getattr(errors, cls.__name__) is cls for cls in tree)


def test_every_table_and_setting_is_listed_once() -> None:
    """Names of tables are those of the list, and those of settings the fields of `Settings`."""
    assert len(tables.TABLES_BY_NAME) == len(tables.TABLES)
    assert {setting.name for setting in settings.SETTINGS} == set(
        settings.Settings.__dataclass_fields__
    )
