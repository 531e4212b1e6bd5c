"""What a process answers in whatever state it is, by whatever name it is called."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import probing
from probing.actions import Lr
from probing.errors import (
    BadEndpoint,
    NoSuchFolder,
    NoSuchProcess,
    NotAnswering,
    NotProbed,
    NotProbing,
    ProcessEnded,
    SqlError,
)
from probing.linux.process import state
from probing.reach.address import Address
from probing.reach.endpoint import Local, Stranger, resolve
from probing.reach.trust import Trust
from probing.rundir.folders import RunDirectory
from probing.stacks.text import is_ours
from tests.harness.stacks import taken_by
from tests.harness.targets import Target, clean_env, wait_until


def listed(target: Target, *args: str) -> dict[int, dict[str, object]]:
    """What `probing list` says, by pid."""
    done = target.run("list", "--format", "json", *args)
    assert done.returncode == 0, done.stderr
    return {row["pid"]: row for row in json.loads(done.stdout)}


@pytest.mark.torch
def test_a_process_that_holds_the_interpreter_lock(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record answers SQL, its stacks are read from outside, and the note says so."""
    target = program("hung", "gil")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    rows = job.query("SELECT count(*) AS n FROM python.steps WHERE duration IS NOT NULL")
    assert rows.to_pylist() == [{"n": 2}]
    trace = taken_by("py-spy", job.backtrace)
    main = next(thread for thread in trace.threads if thread.is_main)
    assert "gil" in [frame.func for frame in main.frames]
    assert main.holds_gil
    assert "read from outside" in job.notes()[0]
    frames = job.query("SELECT func, source FROM python.backtrace WHERE is_main").to_pylist()
    assert {"func": "gil", "source": "py-spy"} in frames
    assert listed(target)[target.pid]["state"] == "not answering"


@pytest.mark.torch
def test_the_open_row_says_where_it_hangs(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that never returns is the one whose row is open, also after kill -9."""
    target = program("hung", "forward")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    job = probing.connect(target.pid)
    sql = (
        "SELECT class FROM python.torch_trace WHERE duration IS NULL AND stage = 'forward'"
        " AND failed IS NULL"
    )
    wait_until(lambda: job.query(sql).to_pylist() == [{"class": "Stuck"}], "the open row")
    trace = taken_by("agent", job.backtrace)
    assert trace.threads[0].frames[0].line == "time.sleep(600)"
    target.kill()
    assert probing.connect(target.pid).query(sql).to_pylist() == [{"class": "Stuck"}]


@pytest.mark.torch
def test_stopped_then_killed(fresh_training: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped: record and stacks answer, eval says how to go on. Killed: the record stays."""
    target = fresh_training
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    os.kill(target.pid, signal.SIGSTOP)
    wait_until(lambda: listed(target)[target.pid]["state"] == "stopped", "the stop")
    count = "SELECT count(*) FROM python.torch_trace"
    first = target.run(str(target.pid), "query", "--format=jsonl", count)
    assert (first.returncode, first.stderr) == (0, "")
    shown = target.run(str(target.pid), "backtrace")
    assert (shown.returncode, "train_gpt.py" in shown.stdout) == (0, True)
    assert f"kill -CONT {target.pid}" in shown.stderr
    refused = target.run(str(target.pid), "eval", "1")
    assert refused.returncode == 5
    assert f"kill -CONT {target.pid}" in refused.stderr
    target.kill()
    assert target.run(str(target.pid), "query", "--format=jsonl", count).stdout == first.stdout
    books = {t.name: t for t in probing.connect(target.pid).tables().tables}["torch_trace"]
    assert (books.rows or 0) + (books.overwritten or 0) == books.written
    # A row that the signal caught in the making is on the books and cannot be read.
    assert (books.rows or 0) - json.loads(first.stdout)["count_star()"] in (0, 1)
    assert target.pid not in listed(target)
    assert listed(target, "--dead")[target.pid]["state"] == "dead"
    last = target.run(str(target.pid), "backtrace")
    assert (last.returncode, "what was open on its record" in last.stdout) == (0, True)
    for command in (["eval", "1"], ["config"]):
        done = target.run(str(target.pid), *command)
        assert done.returncode == 3, done
        assert f"process {target.pid} has ended" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.anypython
def test_a_stopped_process_is_waited_for_no_longer_than_was_said(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs its agent ends with the limit, which the sentence names as it was given."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    os.kill(target.pid, signal.SIGSTOP)
    wait_until(lambda: state(target.pid) == "T", "the stop")
    job = probing.connect(target.pid, timeout_s=0.25)
    asks = (
        lambda: job.eval("1", timeout_s=0.25), job.settings, lambda: job.live("modules"),
        lambda: job.act(Lr(scale=0.5), timeout_s=0.25),
    )  # fmt: skip
    for ask in asks:
        with pytest.raises(NotAnswering, match=r"did not answer within 0\.25 s \(it is stopped"):
            ask()
    with pytest.raises(NotAnswering, match=r"within 2 s \(it is stopped") as late:
        probing.connect(target.pid).settings()
    assert f"kill -CONT {target.pid}" in str(late.value)


@pytest.mark.anypython
def test_every_kind_of_endpoint(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pid, rank, name, folder, socket and address all lead to the same process."""
    target = program(
        "idle", PROBING="all", PROBING_LISTEN="127.0.0.1:0", RANK="7", PROBING_ALLOW_EVAL="1"
    )
    target.wait_for_agent()
    card = target.folder.read_card()
    assert card is not None
    assert card.listen is not None
    directory = RunDirectory(target.home)
    local = Local(folder=target.folder)
    for name in (
        target.pid,
        str(target.pid),
        "rank:7",
        "idle",
        "idle.py",
        str(target.folder.path),
        str(target.folder.socket),
    ):
        assert resolve(name, directory) == local
    port = int(card.listen.rpartition(":")[2])
    token = target.folder.token.read_text()
    for name in (card.listen, f"http://{card.listen}"):
        found = resolve(name, directory)
        own = Trust(plaintext=True)  # it listens here, by its run folder
        assert found == Address(host="127.0.0.1", port=port, token=token, trust=own)
    monkeypatch.delenv("PROBING_TOKEN", raising=False)
    there = resolve("[fd00::1]:8080", directory)
    assert there == Address(host="fd00::1", port=8080)
    assert str(there) == "[fd00::1]:8080"
    assert resolve("https://node7", directory) == Address(host="node7", port=443, tls=True)
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    for name in ("rank:7", card.listen):
        process = probing.connect(name)
        assert process.status().pid == target.pid
        assert process.query("SELECT 6 * 7 AS x").to_pylist() == [{"x": 42}]
        assert process.eval("6 * 7").value == "42"
        assert process.backtrace().threads[0].is_main


@pytest.mark.anypython
def test_names_that_do_not_fit(program: Callable[..., Target]) -> None:
    """Nobody, too many, and nonsense are told apart, each with a way out."""
    first, second = (program("idle", PROBING="all", RANK="0") for _ in range(2))
    first.wait_for_agent()
    second.wait_for_agent()
    directory = RunDirectory(first.home)
    with pytest.raises(BadEndpoint, match=f"{second.pid}.*name one by its pid"):
        resolve("idle", directory)
    with pytest.raises(BadEndpoint, match="several processes"):
        resolve("rank:0", directory)
    with pytest.raises(NoSuchProcess, match="of rank 3 on this machine"):
        resolve("rank:3", directory)
    with pytest.raises(NoSuchFolder, match="at /no/such/folder"):
        resolve("/no/such/folder", directory)
    for nonsense in ("rank:x", "host:99999", "http://", "http://h:1/path"):
        with pytest.raises(BadEndpoint) as caught:
            resolve(nonsense, directory)
        assert "pid" in caught.value.help
    with pytest.raises(NoSuchProcess):
        resolve(2**22 + 1, directory)


@pytest.mark.anypython
def test_a_recycled_pid_is_not_mistaken(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live process with the number of an ended one gets none of its record."""
    target = program("idle", PROBING="all")
    target.wait_for_agent()
    folder = target.folder.path
    target.kill()
    own = folder.rename(folder.with_name(f"{os.getpid()}-1"))
    assert resolve(os.getpid(), RunDirectory(target.home)) == Stranger(pid=os.getpid())
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    with pytest.raises(ProcessEnded):
        probing.connect(str(own)).backtrace()


@pytest.mark.anypython
def test_a_process_without_an_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks can be had of any Python process; the rest says how to put an agent in."""
    monkeypatch.setenv("PROBING_HOME", str(tmp_path / "home"))
    code = (
        "import time\n"
        "def waiting():\n    print('ready', flush=True)\n    time.sleep(600)\n"
        "waiting()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=clean_env(tmp_path)
    ) as stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == b"ready\n"
            assert resolve(stranger.pid, RunDirectory(tmp_path)) == Stranger(pid=stranger.pid)
            process = probing.connect(stranger.pid)
            frames = process.backtrace().threads[0].frames
            assert [frame.func for frame in frames] == ["waiting", "<module>"]
            for ask in (process.tables, process.status, process.settings):
                with pytest.raises(NotProbed, match="has no probing agent") as caught:
                    ask()
                assert f"`probing attach {stranger.pid}`" in caught.value.help
        finally:
            stranger.kill()
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            with pytest.raises(NotProbed, match="not a Python process"):
                probing.connect(sleeper.pid).backtrace()
        finally:
            sleeper.kill()


@pytest.mark.anypython
def test_addresses_where_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed port, an unknown host and a port of something else are told apart."""
    import socket
    import threading

    monkeypatch.setenv("PROBING_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(NotProbing, match="does not speak HTTP"):
            probing.connect(f"127.0.0.1:{port}").status()
        thread.join(10)
    with pytest.raises(NotProbing, match="the connection was refused"):
        probing.connect(f"127.0.0.1:{port}").status()
    with pytest.raises(NotProbing, match="the host name is not known"):
        probing.connect("no-such-host.invalid:80").status()


@pytest.mark.torch
def test_remote_answers_are_those_of_local_ones(
    program: Callable[..., Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same SQL by HTTP and from the files gives the same rows, types and errors."""
    target = program("hung", "lock", PROBING_LISTEN="127.0.0.1:0")
    target.wait_for_output("ready")
    monkeypatch.setenv("PROBING_HOME", str(target.home))
    card = target.folder.read_card()
    assert card is not None
    assert card.listen is not None
    local, remote = probing.connect(target.pid), probing.connect(card.listen)
    for sql in (
        "SELECT * FROM python.torch_trace ORDER BY seq",
        "SELECT * FROM python.steps WHERE false",
        "SELECT func, depth FROM python.backtrace WHERE is_main ORDER BY depth",
        "SELECT thread_name, func FROM python.threads ORDER BY ALL",
    ):
        assert remote.query(sql).to_arrow().equals(local.query(sql).to_arrow())
    for sql in ("SELEC 1", "SELECT nope FROM python.steps", "DROP VIEW python.steps"):
        errors = []
        for process in (local, remote):
            with pytest.raises(probing.ProbingError) as caught:
                process.query(sql).to_arrow()
            errors.append((caught.value.code, caught.value.message, caught.value.detail))
        assert errors[0] == errors[1]
    with pytest.raises(SqlError, match="Did you mean"):
        local.query("SELECT * FROM python.torch_trce").to_arrow()


@pytest.mark.torch
def test_stacks_of_a_running_training_are_whole(
    training: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 stacks taken while the training runs all reach from the script to where it is."""
    monkeypatch.setenv("PROBING_HOME", str(training.home))
    job = probing.connect(training.pid)
    taken = 0
    for _ in range(300):
        main = job.backtrace().threads[0]
        if any(frame.kind == "native" for frame in main.frames):
            continue  # from outside: on a busy machine the agent may be late
        assert main.frames[-1].func in {"_run_module_as_main", "<module>"}, main.frames
        assert not [frame for frame in main.frames if is_ours(frame.file)]
        taken += 1
        if taken == 100:
            break
    assert taken == 100


@pytest.mark.torch
def test_a_statement_that_crashes_the_engine_is_one_sentence(training: Target) -> None:
    """A local statement that DuckDB dies of ends neither the command nor the training."""
    sql = "SELECT ((repeat('[',20000)||repeat(']',20000))::json::variant)"
    done = training.run(str(training.pid), "query", "--format=jsonl", sql)
    assert done.returncode == 1
    assert "ended the SQL worker process (signal 11)" in done.stderr
    training.wait_for_step(training.step() + 1)
