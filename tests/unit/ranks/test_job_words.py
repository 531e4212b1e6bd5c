"""What stands for several processes: ranks, hosts, launchers, and which of them count."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from probing.agent.standing import Standings
from probing.cluster.job.forms import is_address, names_many
from probing.cluster.job.members import _current, find_members
from probing.cluster.job.membership import Member
from probing.cluster.job.outcomes import Coverage, Outcome, State
from probing.cluster.job.plans import plan_of, where_named
from probing.cluster.job.providers.addresses import with_port
from probing.cluster.job.providers.hostfile import hosts_in
from probing.cluster.job.providers.hostlist import expand_hosts
from probing.cluster.job.providers.named_hosts import named_hosts
from probing.cluster.job.providers.slurm import slurm_hosts
from probing.cluster.job.rank_sets import rank_set, ranks_of
from probing.cluster.job.sift import sift, without_repeats
from probing.cluster.launchers import place_in, place_now, torch_group
from probing.cluster.registration import STALE_S, Registration, register, registrations
from probing.errors import BadEndpoint, NotProbing, ProbingError
from probing.linux import process
from probing.messages import rank_paths
from probing.rundir.folders import RunDirectory
from probing.settings import Settings

pytestmark = pytest.mark.anypython

RANKS = [((0, 1, 2, 5), "0-2,5"), ((7,), "7"), ((), ""), ((3, 1), "1,3"), (range(64), "0-63")]

HOSTS = [
    ("node1", ("node1",)),
    ("node[1-3,7],login", ("node1", "node2", "node3", "node7", "login")),
    ("n[08-11]", ("n08", "n09", "n10", "n11")),
    ("r[1-2]n[1-2]-ib", ("r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib")),
]

MEMBER = Member(
    rank=0,
    host="a",
    pid=10,
    world_size=4,
    endpoint="/run/10-1",
    job="j",
    is_alive=True,
    started_ns=5,
)


def member(rank: int, **changes: object) -> Member:
    """A member like `MEMBER`, but another rank's."""
    return dataclasses.replace(MEMBER, rank=rank, pid=10 + rank, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("ranks", "text"), RANKS)
def test_rank_sets_both_ways(ranks: tuple[int, ...], text: str) -> None:
    """Ranks are written as runs of neighbours, and read back from them."""
    assert rank_set(ranks) == text
    if text:
        assert ranks_of(text) == tuple(sorted(ranks))


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "text", ["", "3-1", "a", "1,,2", "-1", "0-9999999", "1-2-3", "\u00b2", DIGITS, f"0-{DIGITS}"]
)
def test_no_ranks(text: str) -> None:
    """What is no set of ranks is refused, and so is one too large to mean anything."""
    with pytest.raises(BadEndpoint):
        ranks_of(text)


@pytest.mark.parametrize(("text", "hosts"), HOSTS)
def test_lists_of_hosts_are_counted_out(text: str, hosts: tuple[str, ...]) -> None:
    """SLURM's lists give every host, with the leading zeros that they are written with."""
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["n[1-3", "n1]", "n[a-b]", "n[1-99999999]", "n[]", f"n[{DIGITS}]"])
def test_no_list_of_hosts(text: str) -> None:
    """A list that is not closed, or has no numbers, or has too many, is refused."""
    with pytest.raises(BadEndpoint):
        expand_hosts(text)


def test_a_hostfile_as_launchers_take_it(tmp_path: Path) -> None:
    """Comments, slots, ports and ranges of a hostfile are understood, and each host kept once."""
    file = tmp_path / "hosts"
    file.write_text(
        "# all\nnode1 slots=8\nnode2:9000  # the second\n\nnode[3-4]\n[fd00::1]\nnode1\n"
    )
    assert hosts_in(str(file)) == (
        "node1:9741", "node2:9000", "node3:9741", "node4:9741", "[fd00::1]:9741"
    )  # fmt: skip
    file.write_text("# nothing\n")
    for path in (file, tmp_path / "absent"):
        with pytest.raises(BadEndpoint):
            hosts_in(str(path))


def test_ports_are_added_where_there_is_none() -> None:
    """A name, an IPv4 and an IPv6 address get the usual port; one that is there stays."""
    given = ("a", "a:1", "10.0.0.1", "fd00::1", "[fd00::1]", "[fd00::1]:1")
    assert [with_port(host) for host in given] == [
        "a:9741", "a:1", "10.0.0.1:9741", "[fd00::1]:9741", "[fd00::1]:9741", "[fd00::1]:1"
    ]  # fmt: skip


def test_the_nodes_of_an_allocation() -> None:
    """SLURM_JOB_NODELIST, or a list by hand, names the node servers; without either it is said."""
    env = {"SLURM_JOB_NODELIST": "gpu[1-2]", "SLURM_JOB_ID": "77"}
    assert slurm_hosts("", env).addresses == ("gpu1:9741", "gpu2:9741")
    assert slurm_hosts("x[1-2]", {}).addresses == ("x1:9741", "x2:9741")
    assert plan_of("job:77", env).addresses == ("gpu1:9741", "gpu2:9741")
    with pytest.raises(BadEndpoint, match="SLURM_JOB_NODELIST"):
        slurm_hosts("", {})


def test_the_addresses_behind_a_name() -> None:
    """Every address of a headless service is asked, once; the resolver may be another."""

    def resolver(name: str, port: int, *, type: int) -> list[tuple[object, ...]]:
        assert name == "train.ml.svc"
        kind = (socket.AF_INET, type, 6, "")
        return [(*kind, ("10.0.0.1", port)), (*kind, ("10.0.0.2", port)), (*kind, ("10.0.0.1", 1))]

    plan = plan_of("k8s:train.ml.svc:8000", {}, resolver=resolver)
    assert plan.told == ("10.0.0.1:8000", "10.0.0.2:8000")
    assert "127.0.0.1:9741" in named_hosts("localhost")
    with pytest.raises(NotProbing, match="not known"):
        named_hosts("no-such-host.invalid")
    with pytest.raises(BadEndpoint):
        named_hosts(":80")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("a..b:9741", "the host name is not known"),
        (f"http://{'a' * 64}.b", "the host name is not known"),
        ("store:a..b:80", "the host name is not known"),
        ("dns:a..b", "the host name is not known"),
        ("dns:a:99999", "'dns:a:99999' is not an endpoint: it must be a name"),
        ("k8s:", "'k8s:' is not an endpoint: it must be a name"),
        (f"store:a:{DIGITS}", "must be store:HOST:PORT"),
        (f"/{'a' * 300}/10-1", "there is no process"),
        (f"{'a' * 300}/x", "there is no process"),
        (DIGITS, "there is no process"),
        (f"job:x/rank:{DIGITS}", "must be a number"),
    ],
)
def test_a_mistyped_endpoint_is_no_internal_error(word: str, says: str) -> None:
    """Names that no machine can have, paths that are too long and endless numbers are told."""
    with pytest.raises(ProbingError, match=says):
        find_members([word])


def test_what_stands_for_many() -> None:
    """Only what can be several processes is looked up as such; one rank is one process."""
    many = (
        "all",
        "job:x",
        "job:x/rank:0-3",
        "rank:0-3",
        "rank:0,2",
        "@hosts",
        "slurm:",
        "k8s:x",
        "dns:x:1",
        "ray:",
    )
    assert all(names_many(word) for word in many)
    single = (
        "rank:3",
        "job:host:29500/rank:3",
        "4242",
        "train",
        "/run/1-2",
        "http://a:1/v1/ranks/1-2",
    )
    assert not any(names_many(word) or is_address(word) for word in single)
    assert all(is_address(word) for word in ("a:1", "[fd00::1]:1", "http://a:1", "https://a/"))


def test_ranks_of_a_job_by_its_name() -> None:
    """`job:NAME/rank:SET` is those ranks of that job and of no other, whatever is in the name."""
    plan = plan_of("job:host:29500/rank:0-2", {})
    assert (plan.job, plan.ranks, plan.is_whole) == ("host:29500", (0, 1, 2), False)
    assert rank_paths.job_and_ranks("job:a/b/rank:7") == ("a/b", "7")
    assert rank_paths.job_and_ranks(rank_paths.of_job(7, "a/b")) == ("a/b", "7")
    assert rank_paths.job_and_ranks(rank_paths.of_job(7, None)) == (None, "7")
    assert rank_paths.job_and_ranks("job:a") is None
    assert names_many("job:x/rank:0-3")
    assert not names_many("job:host:29500/rank:3")
    with pytest.raises(BadEndpoint):
        plan_of("job:a/rank:x-", {})


def test_a_job_beside_machines() -> None:
    """Named together, machines say where to look and the job what for; alone, each is as before."""
    plans = [plan_of(word, {}) for word in ("a:1", "b:1", "job:x", "job:y/rank:3", "42")]
    whole, one, single = where_named(plans)
    assert (whole.job, whole.ranks, whole.addresses) == ("x", None, ("a:1", "b:1"))
    assert (one.job, one.ranks, one.addresses) == ("y", (3,), ("a:1", "b:1"))
    assert not any(p.is_here or p.is_whole or p.is_single for p in (whole, one))
    assert single is plans[-1]
    for alone in (plans[:2], plans[2:]):
        assert where_named(alone) == alone


PLACES = [
    ({}, (None, None, None, None, 0)),
    (
        {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "r",
         "TORCHELASTIC_RESTART_COUNT": "2", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"},
        (3, 1, 8, "r", 2),
    ),
    (
        {"SLURM_STEP_ID": "0", "SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "16",
         "SLURM_JOB_ID": "77"},
        (5, 1, 16, "77", 0),
    ),
    ({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_JOB_ID": "7"}, (None, None, None, "7", 0)),
    ({"JOB_COMPLETION_INDEX": "4"}, (4, None, None, None, 0)),
    (
        {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
         "OMPI_MCA_ess_base_jobid": "2345271297", "PMIX_NAMESPACE": "2345271297"},
        (1, None, 2, "2345271297", 0),
    ),
    (
        {"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "prterun-node1-4242@1", "RANK": "1",
         "MASTER_ADDR": "h", "MASTER_PORT": "29500"},
        (1, None, None, "prterun-node1-4242@1", 0),
    ),
    (
        {"OMPI_COMM_WORLD_RANK": "1", "PMIX_NAMESPACE": "prterun-node1-4242@1", "RANK": "5",
         "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "h", "MASTER_PORT": "29500"},
        (5, None, None, "h:29500", 0),
    ),
    ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, None, 2, None, 0)),
    (
        {"RANK": "0", "TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "h", "MASTER_PORT": "29500"},
        (0, None, None, "h:29500", 0),
    ),
    ({"RANK": "9" * 5000}, (None, None, None, None, 0)),
    ({"PROBING_JOB": "mine", "TORCHELASTIC_RUN_ID": "r"}, (None, None, None, "mine", 0)),
]  # fmt: skip


@pytest.mark.parametrize(("env", "place"), PLACES)
def test_what_launchers_say(env: dict[str, str], place: tuple[object, ...]) -> None:
    """Rank, size, job and attempt come from the launcher; a batch script itself is no rank."""
    assert tuple(place_in(env)) == place


def test_the_newest_attempt_counts() -> None:
    """Processes of an attempt before are left out, with a note that says whether they still run."""
    old = [member(0, attempt=0, is_alive=False), member(1, attempt=0)]
    new = [member(0, attempt=1), member(1, attempt=1)]
    kept, notes = sift([*old, *new])
    assert kept == new
    assert notes == [
        "job j: 2 processes of attempt 0 left out, 1 of them still running; this is attempt 1"
    ]


@pytest.mark.parametrize("is_alive", [True, False])
def test_an_earlier_run_of_that_name_does_not_count(*, is_alive: bool) -> None:
    """A run that was restarted once takes no place of a later one, whose attempts begin anew."""
    earlier = [member(rank, attempt=1, is_alive=False, started_ns=50) for rank in (0, 1, 2)]
    earlier.append(member(0, attempt=0, is_alive=False, started_ns=10))
    later = [member(rank, attempt=0, is_alive=is_alive, started_ns=900 + rank) for rank in (0, 1)]
    kept, notes = sift([*earlier, *later])
    assert kept == later
    assert notes == ["4 processes of an earlier run left out, ended"]


def test_who_is_left_of_an_earlier_run_hides_no_later_one() -> None:
    """It hangs on in a later attempt; but a second start that has failed takes no place either."""
    hangs = member(1, attempt=1, started_ns=50)
    earlier = [member(0, attempt=1, is_alive=False, started_ns=50), hangs]
    later = [member(rank, attempt=0, started_ns=900 + rank) for rank in (0, 1)]
    for before in (earlier, [hangs]):
        kept, notes = sift([*before, *later])
        assert kept == later
        assert notes[0].endswith("of an earlier run left out, 1 of them still running")
    runs = [member(rank, attempt=1, started_ns=50) for rank in (0, 1)]
    failed = [member(rank, attempt=0, is_alive=False, started_ns=900) for rank in (0, 1)]
    assert sift([*runs, *failed])[0] == runs
    other = member(0, attempt=0, host="b", started_ns=900)  # for it alone, the rest did not wait
    assert hangs in sift([*earlier, other])[0]


def test_a_rank_that_came_to_another_node_is_of_the_same_run() -> None:
    """Where torchrun gives ranks to other nodes, the last of each node count, ended or not."""
    before = member(0, host="a", attempt=1, is_alive=False, started_ns=50)
    now = [
        member(0, host="b", attempt=0, started_ns=900),
        member(1, host="a", attempt=2, is_alive=False, started_ns=899),
    ]
    kept, _ = sift([before, *now])
    assert {(m.host, m.rank) for m in kept} == {("b", 0), ("a", 1)}


def test_a_node_that_counts_less_is_of_the_job() -> None:
    """Each node counts its own failures; what an attempt before has left over is still left out."""
    here, left = [member(r, attempt=1, world_size=8) for r in (0, 1)], member(4, world_size=8)
    there = [member(r, world_size=8, host="b", is_alive=r == 2) for r in (2, 3)]
    before = member(2, world_size=8, host="c", attempt=0)
    now = member(5, world_size=8, host="c", attempt=1)
    gone = member(9, world_size=16, host="d")
    kept, (note,) = sift([*here, left, *there, before, now, gone])
    assert [(m.rank, m.attempt) for m in kept] == [(0, 1), (1, 1), (5, 1), (2, 1), (3, 1)]
    assert note == (
        "job j: 3 processes of attempt 0 left out, 3 of them still running; this is attempt 1"
    )


def test_one_process_for_each_rank() -> None:
    """Of two live processes of a rank the one started last is asked, and the note names both."""
    first, second = member(0, started_ns=1), dataclasses.replace(MEMBER, pid=99, started_ns=9)
    kept, (note,) = sift([first, second, member(1)])
    assert {m.pid for m in kept} == {99, 11}
    assert "rank 0 is there more than once" in note
    assert "10 on a" in note


def test_what_is_left_of_an_earlier_run_goes() -> None:
    """A job started again with fewer ranks does not keep the dead ranks of the run before."""
    before = [member(r, is_alive=False, started_ns=100 + r, world_size=4) for r in range(4)]
    now = [dataclasses.replace(MEMBER, rank=r, pid=90 + r, started_ns=9000 + r) for r in range(2)]
    dead_now = member(2, is_alive=False, started_ns=9002)
    kept, notes = sift([*before[:2], before[3], *now, dead_now])
    assert sorted(m.rank or 0 for m in kept) == [0, 1, 2]
    assert notes == ["3 processes of an earlier run left out, ended"]


def test_who_has_ended_beside_others_is_meant_where_somebody_asks() -> None:
    """`-t all` is the living; a watch also asks for those that it has seen run."""
    alone = Member(
        rank=None,
        host="a",
        pid=7,
        world_size=None,
        endpoint="/run/7-1",
        is_alive=False,
        started_ns=9,
    )
    other = dataclasses.replace(MEMBER, job="k", endpoint="/run/8-1", is_alive=False)
    gone = dataclasses.replace(alone, pid=6, endpoint="/run/6-1", started_ns=1)
    members = [MEMBER, alone, other, gone]
    assert _current(members, is_job=False) == [MEMBER]
    still = {alone.endpoint, other.endpoint}
    assert _current(members, is_job=False, still=still) == [MEMBER, alone, other]
    assert _current([alone, gone], is_job=False, still={gone.endpoint}) == [alone, gone]


def test_a_process_is_there_once() -> None:
    """One that is reached in two ways counts once, by its own machine's way where there is one."""
    through = dataclasses.replace(MEMBER, endpoint="http://n:1/v1/ranks/10-1", via="n:1")
    assert without_repeats([through, MEMBER]) == [MEMBER]


def outcome(rank: int, state: State, **changes: object) -> Outcome[int]:
    """An outcome of one rank."""
    seconds = 5.0 if state == "late" else 0.1
    return Outcome(
        member=member(rank, **changes), value=None, error=None, seconds=seconds, state=state
    )


def test_the_footer_says_who_answered() -> None:
    """Late, dead, failed and missing ranks are named; a dead one's record is said to be one."""
    answered = [outcome(rank, "answered") for rank in range(6)]
    whole = Coverage.of(answered)
    assert whole.is_complete
    assert whole.words() == "asked 6 ranks: all answered"
    late = Coverage.of([*answered, outcome(6, "late"), outcome(7, "dead")])
    assert late.words() == "asked 8 ranks: 6 answered, rank 6 late (5 s), rank 7 dead"
    parts = [outcome(0, "answered", is_alive=False), outcome(1, "failed"), outcome(2, "failed")]
    lost = Coverage.of([*parts, outcome(3, "missing")])
    assert lost.words() == (
        "asked 3 of 4 ranks: 1 answered (rank 0 from its record), ranks 1-2 failed, rank 3 not seen"
    )


def test_registrations_go_with_their_process(tmp_path: Path) -> None:
    """A server of this machine is there while its process is; another's until it is long silent."""
    here = Registration(
        kind="node", listen="a:1", host="a", pid=os.getpid(),
        start_time=process.start_time(os.getpid()) or 0, boot_id=process.boot_id(),
        pid_namespace=process.pid_namespace(), registered_ns=time.time_ns(),
    )  # fmt: skip
    gone = dataclasses.replace(here, listen="a:2", pid=2**22 + 1)
    there = dataclasses.replace(here, listen="b:1", host="b", boot_id="another")
    for entry in (here, gone, there):
        register(tmp_path, entry)
    (tmp_path / "junk.probing.json").write_text("{")
    found = registrations(tmp_path)
    assert ({entry.listen for entry in found.entries}, found.notes) == ({"a:1", "b:1"}, [])
    later = time.time() + STALE_S + 60
    assert {e.listen for e in registrations(tmp_path, clock=lambda: later).entries} == {"a:1"}
    plan = plan_of("all", {"PROBING_JOB_DIR": str(tmp_path)})
    assert (plan.addresses, plan.told) == (("a:1",), ("b:1",))
    assert registrations(tmp_path / "absent") == ([], [])


class Group:
    """What `torch.distributed` says in a process of a group."""

    def __init__(self, *, fails: bool = False) -> None:
        self._fails = fails

    def is_available(self) -> bool:
        """It is built with it."""
        return True

    def is_initialized(self) -> bool:
        """There is a group; or it goes at this moment."""
        if self._fails:
            raise ValueError("Default process group has not been initialized")
        return True

    def get_rank(self) -> int:
        """Its rank."""
        return 3

    def get_world_size(self) -> int:
        """How many there are."""
        return 8


NO_LAUNCHER = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
OF_SRUN = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_JOB_ID": "77"}


@pytest.mark.parametrize(
    ("env", "group", "job", "expected"),
    [
        (NO_LAUNCHER, Group(), None, (3, 8, "node1:29500")),
        (NO_LAUNCHER, Group(), "night", (3, 8, "night")),
        ({}, Group(), None, (3, 8, None)),
        (NO_LAUNCHER, Group(fails=True), None, (None, None, None)),
        (NO_LAUNCHER, None, None, (None, None, None)),
        ({**NO_LAUNCHER, "RANK": "1", "WORLD_SIZE": "8"}, Group(), None, (1, 8, "node1:29500")),
        ({**NO_LAUNCHER, "RANK": "1", "WORLD_SIZE": "16"}, Group(), None, (1, 16, "node1:29500")),
        ({**NO_LAUNCHER, "RANK": "1", "WORLD_SIZE": "2"}, Group(), None, (3, 8, "node1:29500")),
        ({**NO_LAUNCHER, "JOB_COMPLETION_INDEX": "0"}, Group(), None, (3, 8, "node1:29500")),
        ({**OF_SRUN, "SLURM_NTASKS": "2"}, Group(), None, (3, 8, "77")),
        ({**OF_SRUN, "SLURM_NTASKS": "2"}, None, None, (1, 2, "77")),
        ({**OF_SRUN, "SLURM_NTASKS": "16"}, Group(), None, (1, 16, "77")),
    ],
)
def test_torch_tells_the_rank_where_no_launcher_knows_it(
    env: dict[str, str],
    group: Group | None,
    job: str | None,
    expected: tuple[int | None, int | None, str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for ranks that `torch.multiprocessing.spawn` starts, whatever variables they inherit."""
    monkeypatch.setattr("os.environ", env)
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    place = place_now(job, torch_group())
    assert (place.rank, place.world_size, place.job) == expected


def test_a_helper_keeps_what_it_has_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger group of an inference engine that a rank has started tells of no rank."""
    monkeypatch.setattr("os.environ", {**NO_LAUNCHER, "RANK": "0", "WORLD_SIZE": "2"})
    place = place_now(None, (3, 4), is_helper=lambda size: size == 4)
    assert (place.rank, place.world_size) == (0, 2)


def test_a_group_that_has_ended_has_told_the_rank(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a card said while it trained is on the record of a rank that has ended."""
    monkeypatch.setattr("os.environ", NO_LAUNCHER)
    monkeypatch.setitem(sys.modules, "torch.distributed", Group())
    standings = Standings(RunDirectory(tmp_path).folder_for(1, 1))
    settings = Settings()
    told = standings.now(settings, None)
    assert told == (True, True, (3, None, 8, "node1:29500", 0))
    monkeypatch.setitem(sys.modules, "torch.distributed", None)
    assert standings.now(settings, None) == told
