"""What a watch tells: what begins and what ends, once each, in the shapes that receivers take."""

from __future__ import annotations

import dataclasses
import http.client
import http.server
import json
import math
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from probing.cli.target import Target
from probing.cli.watch import delivery
from probing.cli.watch.delivery import Delivery, Receiver, address_in, user_command, webhook
from probing.cli.watch.watching import Seen, Wish, watch_and_tell
from probing.cluster.job import members
from probing.cluster.job.membership import Member, Membership
from probing.diagnosis.doctor.findings import Certainty, Finding
from probing.diagnosis.doctor.report import Report
from probing.diagnosis.doctor.watching import Event, Watch, as_json, payload_for
from probing.errors import UsageError
from tests.harness.targets import wait_until

pytestmark = pytest.mark.anypython

NONE: dict[str, frozenset[str]] = {"": frozenset()}
"""All rules were judged of the one whole that there is."""


def finding(rule: str = "data-wait", certainty: Certainty = "likely", who: str = "") -> Finding:
    """One finding."""
    return Finding(
        rule=rule, group="slow", certainty=certainty, summary="It waits <for> data", since_step=3,
        evidence=("60 %",), next="probing 1 dataloaders", fix="Use workers.", who=who,
    )  # fmt: skip


def told(
    watch: Watch, *found: Finding, missed: Mapping[str, frozenset[str]] = NONE
) -> list[tuple[str, str]]:
    """The kinds and rules of the events of one report."""
    events = watch.changes(found, missed=missed, about="process 1", now_s=5.0)
    return [(event.kind, event.finding.rule) for event in events]


def test_a_finding_is_told_once_as_it_begins_and_once_as_it_ends() -> None:
    """It begins with the second report that has it, and ends with the second that has it not."""
    watch = Watch()
    assert told(watch, finding()) == []
    assert told(watch, finding()) == [("begun", "data-wait")]
    assert told(watch, finding()) == []
    assert told(watch) == []
    assert told(watch, finding()) == []
    assert told(watch) == []
    assert told(watch) == [("ended", "data-wait")]
    assert told(watch) == []


def test_what_is_certain_is_told_at_once_and_what_is_possible_only_if_asked() -> None:
    """A hang that is certain does not wait for a second look."""
    assert told(Watch(), finding("hang", "certain")) == [("begun", "hang")]
    quiet, curious = Watch(), Watch("possible")
    for _ in range(2):
        last = (
            told(quiet, finding(certainty="possible")),
            told(curious, finding(certainty="possible")),
        )
    assert last == ([], [("begun", "data-wait")])


def test_a_rule_that_was_not_judged_says_nothing_of_an_end() -> None:
    """Where a look could not be made, a finding neither ends nor begins anew."""
    watch = Watch()
    assert told(watch, finding("hang", "certain")) == [("begun", "hang")]
    for _ in range(3):
        assert told(watch, missed={"": frozenset({"hang"})}) == []
    assert told(watch, finding("hang", "certain")) == []


def test_what_was_not_judged_elsewhere_holds_up_no_end() -> None:
    """A finding of a job ends with it, though its rule can never be judged of another process."""
    watch, other = Watch(), {"process 7": frozenset({"data-wait"})}
    assert [told(watch, finding(), missed=NONE | other) for _ in range(2)][1]
    assert told(watch, missed=NONE | other) == []
    assert told(watch, missed=NONE | other) == [("ended", "data-wait")]
    assert [told(watch, finding(), missed=NONE | other) for _ in range(2)][1]
    assert [told(watch, missed=other) for _ in range(2)] == [[], [("ended", "data-wait")]]


def test_that_a_crash_is_forgotten_is_no_end_of_it() -> None:
    """Whoever is woken by a crash is not told that it is over, unless its job runs again."""
    crash = dataclasses.replace(finding("ended", "certain"), group="crashed")
    for gone, ends in (({}, []), (NONE, [("ended", "ended")])):
        watch = Watch()
        assert told(watch, crash) == [("begun", "ended")]
        assert [told(watch, missed=gone) for _ in range(2)] == [[], ends]


def test_a_crash_is_over_once_its_job_runs_again() -> None:
    """That its process is forgotten meanwhile keeps nobody from telling that, or of the next."""
    crash = dataclasses.replace(finding("ended", "certain"), group="crashed")
    for found, kinds in (((), ["ended"]), ((crash,), ["begun"])):
        watch = Watch()
        watch.changes([crash], missed=NONE, about="", now_s=0.0)
        for now_s in (30.0, 60.0, 90.0):
            assert watch.changes([], missed={}, about="", now_s=now_s) == ()
        assert watch.standing(90.0) == ()
        events = watch.changes(found, missed=NONE, about="", now_s=600.0)
        assert [event.kind for event in events] == kinds
    watch.changes([], missed={}, about="", now_s=90_000.0)
    watch.changes([], missed={}, about="", now_s=90_030.0)
    assert not watch._known


def test_a_moment_is_not_told() -> None:
    """What was there in one report alone is neither begun nor ended."""
    watch = Watch()
    assert [told(watch, finding()), told(watch), told(watch)] == [[], [], []]


def test_whom_it_is_of_may_change() -> None:
    """One rank more is neither an end nor a beginning; another job is one of its own."""
    watch, seen = Watch(), []
    for who in ("ranks 0 to 2", "ranks 0 to 3", "ranks 1 to 3", "rank 0", "ranks 0 to 2"):
        seen += told(watch, finding(who=who))
    assert seen == [("begun", "data-wait")]
    other = dataclasses.replace(finding(), whole="job b")
    assert [told(watch, finding(), other) for _ in range(2)] == [[], [("begun", "data-wait")]]
    assert [told(watch, other) for _ in range(3)] == [[], [("ended", "data-wait")], []]
    watch.changes((), missed=NONE, about="", now_s=6.0)
    (ended,) = watch.changes((), missed=NONE, about="", now_s=6.0)
    assert ended.finding.whole == "job b"


def whole(*members: Member, notes: tuple[str, ...] = ()) -> Membership:
    """What was found."""
    return Membership(label="all", job=None, world_size=None, members=members, notes=notes)


def test_what_is_noticed_at_each_look_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A watch does not say every 30 s that there are two jobs; what is new, it says."""
    seen = Seen()
    for notes in (("two jobs",), ("two jobs", "rank 3 not seen"), ("two jobs",), (), ("two jobs",)):
        found = whole(notes=notes)
        monkeypatch.setattr(members, "find_members", lambda *_, found=found, **__: found)
        seen.members_of(Target(endpoints=("all",)))
    said = capsys.readouterr().err
    assert (said.count("two jobs"), said.count("rank 3 not seen")) == (2, 1)


def test_who_was_seen_to_run_is_looked_at_twice_after_its_end() -> None:
    """A crash beside another training is told, though it is no more of what runs."""
    seen = Seen()
    assert not seen.endpoints
    runs, gone = (
        Member(rank=None, host="", pid=pid, world_size=None, endpoint=f"/run/{pid}", is_alive=True)
        for pid in (1, 2)
    )
    before = dataclasses.replace(gone, endpoint="/run/3", is_alive=False)
    seen.look_at(whole(runs, gone, before))
    assert set(seen.endpoints) == {"/run/1", "/run/2"}
    for _ in range(2):
        assert "/run/2" in seen.endpoints
        seen.look_at(whole(runs, dataclasses.replace(gone, is_alive=False)))
    assert set(seen.endpoints) == {"/run/1"}


def event(kind: Any = "begun") -> Event:
    """One event."""
    return Event(
        kind=kind, finding=finding(), about="rank 3", time_s=70.0, began_s=60.5, until_s=370.0
    )


def test_an_end_has_the_labels_of_its_beginning() -> None:
    """Alertmanager knows an alert by its labels: who else is watched meanwhile changes none."""
    watch, url = Watch(), "http://alerts:9093/api/v2/alerts"
    sure = finding("hang", "certain")
    (begun,) = watch.changes([sure], missed=NONE, about="ranks 0-3", now_s=1.0)
    watch.changes([], missed=NONE, about="ranks 0-3, process 77", now_s=2.0)
    (stands,) = payload_for(url, watch.standing(2.5))
    (ended,) = watch.changes([], missed=NONE, about="process 77", now_s=3.0)
    (first,), (last,) = payload_for(url, begun), payload_for(url, ended)
    assert first["labels"] == stands["labels"] == last["labels"]
    assert first["startsAt"] == stands["startsAt"]
    assert first["endsAt"] < stands["endsAt"], "it goes on"
    assert (last["endsAt"], watch.standing(4.0)) == ("1970-01-01T00:00:03+00:00", ())
    slow = Watch(every_s=600)
    (begun,) = slow.changes([sure], missed=NONE, about="", now_s=0.0)
    assert begun.until_s == 2400


def test_who_forgets_is_reminded_of_what_stands(capsys: pytest.CaptureFixture[str]) -> None:
    """Alertmanager gets what stands at each look, others do not; that it is away is said once."""
    got: list[Any] = []
    fails = threading.Event()

    def deliver(event: Any) -> None:
        got.append(event)
        if fails.is_set():
            raise OSError("it is away")

    other: list[Any] = []
    made = Delivery(
        [
            Receiver(name="the one", deliver=deliver, forgets=True),
            Receiver(name="the other", deliver=other.append),
        ],
        tries_s=(0,),
    )
    made.remind(())
    for number in range(4):
        made.remind((number,))
        wait_until(lambda number=number: (number,) in got, "the reminder")  # type: ignore[misc]
        fails.set()
    made.close(10)
    assert (got, other) == ([(0,), (1,), (2,), (3,)], [])
    assert capsys.readouterr().err.count("could not be brought to the one") == 1


def test_events_have_the_shapes_that_receivers_take() -> None:
    """Slack gets a text, Alertmanager a list of alerts with times, anybody else all of it."""
    slack = payload_for("https://hooks.slack.com/services/T0/B0/x", event())
    assert list(slack) == ["text"]
    assert "&lt;for&gt;" in slack["text"]
    (begun,) = payload_for("http://alerts:9093/api/v2/alerts", event())
    assert begun["labels"]["alertname"] == "probing"
    assert begun["labels"]["severity"] == "warning"
    assert begun["startsAt"] == "1970-01-01T00:01:00.500000+00:00"
    assert begun["endsAt"] == "1970-01-01T00:06:10+00:00", "five minutes on, if not told again"
    (ended,) = payload_for("http://alerts:9093/api/v2/alerts/", event("ended"))
    assert ended["labels"] == begun["labels"]
    assert ended["endsAt"] == "1970-01-01T00:01:10+00:00"
    plain = payload_for("http://example/hook", event())
    assert (plain["event"], plain["rule"], plain["about"]) == ("begun", "data-wait", "rank 3")


@pytest.fixture
def hook() -> Iterator[tuple[str, list[Any], list[int]]]:
    """A receiver: its address, what it was posted, and with what it answers, 200 after that."""
    posted: list[Any] = []
    codes: list[int] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = codes.pop(0) if codes else 200
            if code == 200:
                posted.append(json.loads(body))
            self.send_response(code)
            if 300 < code < 400:
                self.send_header("Location", "/login")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook", posted, codes
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_event_is_tried_again_until_it_is_taken(
    hook: tuple[str, list[Any], list[int]],
) -> None:
    """A receiver that fails twice gets it the third time, once."""
    url, posted, codes = hook
    codes += [503, 500]
    made = Delivery([webhook(url, payload_for)], tries_s=(0, 0, 0))
    made.send(event())
    wait_until(lambda: posted, "an event")
    made.close(10)
    assert posted == [as_json(event())]


@pytest.mark.parametrize(("code", "is_told"), [(302, True), (307, True), (303, False)])
def test_a_receiver_that_redirects_is_asked_once(
    hook: tuple[str, list[Any], list[int]],
    capsys: pytest.CaptureFixture[str],
    code: int,
    *,
    is_told: bool,
) -> None:
    """Behind a page for signing in nobody gets what was posted; 303 means that it was taken."""
    url, posted, codes = hook
    codes.append(code)
    made = Delivery([webhook(url, payload_for)], tries_s=(0, 0))
    made.send(event())
    made.close(10)
    assert (posted, codes) == ([], [])
    said = f"it answered {code}, a redirect, and may have taken it"
    assert (said in capsys.readouterr().err) is is_told


@pytest.mark.parametrize("error", [http.client.BadStatusLine("x"), ValueError("no answer")])
def test_a_receiver_that_answers_nonsense_gets_the_next_event(error: Exception) -> None:
    """What a proxy sends in its place ends no thread that delivers."""
    got: list[Any] = []

    def deliver(event: Any) -> None:
        if event == 1:
            raise error
        got.append(event)

    made = Delivery([Receiver(name="the one", deliver=deliver)], tries_s=(0,))
    made.send(1)
    made.send(2)
    made.close(10)
    assert got == [2]


def test_a_dead_receiver_keeps_nobody_waiting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events for it are given up, the oldest first, and said; others get theirs."""
    monkeypatch.setattr(delivery, "MOST_WAITING", 3)
    got: list[Any] = []
    blocked = threading.Event()

    def hang(_: object) -> None:
        blocked.wait(60)

    dead = Receiver(name="the dead one", deliver=hang)
    made = Delivery([dead, Receiver(name="the other", deliver=got.append)])
    for number in range(9):
        made.send(number)
        wait_until(lambda number=number: number in got, "the event")  # type: ignore[misc]
    blocked.set()
    made.close(10)
    assert not any(thread.is_alive() for thread in made._threads), "it delivers what it has left"
    assert got == list(range(9))
    assert "the oldest was given up" in capsys.readouterr().err


def test_what_cannot_be_brought_is_said_without_the_secret_path(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A webhook's path is often a secret: a note names its host alone."""
    made = Delivery([webhook("http://127.0.0.1:9/secret", payload_for)], tries_s=(0,))
    made.send(event())
    made.close(10)
    said = capsys.readouterr().err
    assert "the webhook at 127.0.0.1:9" in said
    assert "secret" not in said
    for bad in ("file:///secret", "http://", "https://hooks.example.com/T0 /secret"):
        with pytest.raises(UsageError, match="http://") as refused:
            webhook(bad, payload_for)
        assert "secret" not in str(refused.value)


def test_an_address_is_taken_from_the_environment() -> None:
    """The command line, which others can read, names a variable; one that is not set is told."""
    assert address_in({"HOOK": " http://127.0.0.1:9/secret\n"}, "HOOK").endswith("/secret")
    with pytest.raises(UsageError, match="--webhook-env HOOK: this variable is not set"):
        address_in({"HOOK": " "}, "HOOK")


def test_a_command_gets_the_event_on_its_input(tmp_path: Any) -> None:
    """A command of the user's reads JSON; one that fails is an error."""
    path = tmp_path / "event.json"
    user_command(f"cat > {path}", as_json).deliver(event())
    assert json.loads(path.read_text()) == as_json(event())
    with pytest.raises(OSError, match="ended with 3"):
        user_command("exit 3", as_json).deliver(event())


def test_a_watch_that_is_asked_to_end_looks_once_more() -> None:
    """What crashed since its last look, as a pod whose end is the reason, is told."""
    wish = Wish(
        every_s=600, least="likely", goes_on=True, is_json=True, webhooks=(), variables=(),
        commands=(),
    )  # fmt: skip
    looks: list[float] = []

    def look(most_s: float) -> Report:
        looks.append(most_s)
        if len(looks) == 1:
            signal.raise_signal(signal.SIGTERM)
        found = (finding("ended", "certain"),) if len(looks) == 2 else ()
        return Report(findings=found, healthy=(), not_looked_at=(), about="", steps=0, seconds=0.0)

    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert watch_and_tell(look, wish)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert looks == [math.inf, 8.0], "who is about to be killed takes less time"
