"""The faults that probing must survive: one table, and how a test says what it reached.

Rules of this file: a fault is declared here once, with what is promised; its test names it by
`@pytest.mark.fault("T1")` and says through the fixture `fault` what came out, case by case.
`docs/generate.py` writes docs/reliability.md from this table and from what was reached when the
tests last ran with `--record-faults`, which is kept beside it in docs/reliability.json.

Letters: T the training, N the network, Q the SQL, E eval, R the rings, S long runs.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "reliability.json"


class Fault(NamedTuple):
    """One fault, and what must come of it."""

    id: str
    what: str
    promise: str


FAULTS: tuple[Fault, ...] = (
    # The training
    Fault(
        "T1",
        "SIGKILL at random moments of a process that writes rows",
        "every row that was there before is there after; at most the one in the making is lost",
    ),
    Fault(
        "T2",
        "six ways to exit: the end, an exception, sys.exit(3), os._exit(4), SIGTERM, SIGINT",
        "exit code and output are those of a process without us",
    ),
    Fault(
        "T3",
        "the process ends while it is asked: an eval that loops or sleeps, SQL, a large answer",
        "its exit code, output and moment are those of a process without us; who asks is told",
    ),
    Fault(
        "T4",
        "hundreds of forks while the agent is asked on and on, each child logging, importing and"
        " starting a thread; DataLoader workers by fork, spawn and forkserver",
        "no child hangs or is killed by a signal, and none holds a file, thread or ring of ours",
    ),
    Fault(
        "T5",
        "SIGKILL of a training whose DataLoader workers live on",
        "who asks is told that it has ended, and the record is read",
    ),
    Fault(
        "T6",
        "each call that our hooks make fails in turn",
        "losses are bit-identical, the source is off after its limit, and the reason is told",
    ),
    Fault(
        "T7",
        "what torch offers that looks into modules: copies, pickles, jit, fx, export, vmap,"
        " checkpoint, compile, in-place modules, CUDA graphs, data parallel ranks",
        "the same result to the last bit as in a run without us, and not one graph break more",
    ),
    Fault(
        "T8",
        "SIGSTOP, then SIGCONT; code in C that holds the interpreter lock for a while",
        "who asks meanwhile gets an error of its type; then everything is answered again",
    ),
    Fault(
        "T9",
        "the agent's loop is killed by SystemExit, three times",
        "served again, a few times at most, then off with the reason; the training goes on",
    ),
    # The network
    Fault(
        "N1",
        "the place of the socket, the run directory or the TCP port is taken by somebody else",
        "it refuses or falls back and says which; it removes nothing that is not its own",
    ),
    Fault(
        "N2",
        "malformed requests: thousands of mutations of good ones",
        "each gets an error or is hung up on; none is an error of the server, nothing is printed,"
        " memory does not grow, the next request is served",
    ),
    Fault(
        "N3",
        "300 half headers and 300 half bodies, while the program may have 256 files",
        "the program can open files all the time, an honest client is served at once, and the rest"
        " is hung up on in time",
    ),
    Fault(
        "N4",
        "clients that are killed, stopped or half closed in the middle of an answer of 64 MiB",
        "their places are free again in time, and the program's memory does not grow",
    ),
    Fault(
        "N5",
        "other users, wrong tokens, foreign names, web pages, requests that do more than they may",
        "401, 403, 404, 405 or 421, not a byte to another user or a page, and no effect",
    ),
    Fault(
        "N6",
        "a search for the tokens wherever something is written or answered",
        "they are in their own files alone",
    ),
    Fault(
        "N7",
        "a sender that asks without a pause, and more requests in hand than there may be",
        "what is too much is refused by 429 or 503; other senders are served",
    ),
    # The SQL
    Fault(
        "Q1",
        "SQL that attacks: files, network, settings, writes, bombs of memory, time and depth",
        "an error of its type for that client; the training's process goes on; no new file; the"
        " next client gets the right answer",
    ),
    Fault(
        "Q2",
        "requests, statements, code and answers that are too large: SQL of 1 MB, 10^5 statements,"
        " 10^8 rows; statements that do not end; values of unusual types",
        "what is sent is refused, answers are cut and say so, the worker has limits of its own;"
        " the types are exact in Arrow",
    ),
    Fault(
        "Q3",
        "the SQL worker is killed: in a statement, at its start, 20 times in a row; it is missing",
        "one error for one client, and the next one is answered",
    ),
    Fault(
        "Q4",
        "SQL made by a random grammar",
        "an answer or an error of its type, never another end; the next client is answered",
    ),
    # Eval
    Fault(
        "E1",
        "code that loops, blocks, recurses, prints or returns far too much, raises anything",
        "a result or an error of its type; its slot is free again or it is listed; the training's"
        " own prints come through; the next eval is answered",
    ),
    Fault(
        "E2",
        "code that ends the process: os._exit, a segmentation fault",
        "the process ends as told; the audit record has the line; the client is told in 1 s",
    ),
    Fault(
        "E3",
        "an audit hook of the process that forbids what is asked",
        "nothing is done, the client is told who forbids it, and it is on record",
    ),
    Fault(
        "E4",
        "PROBING_DISABLE, PYTHON_DISABLE_REMOTE_DEBUG, -X disable_remote_debug",
        "no agent by any way in: no thread, no file, one clear sentence for who attaches",
    ),
    # The rings
    Fault(
        "R1",
        "each system call of the agent's start and run fails in turn; a full file system of 1 MiB",
        "the training goes on unchanged, without a signal; what is not recorded is told",
    ),
    Fault(
        "R2",
        "the rings of a run damaged: 10,000 flipped bits, cut at every 512 bytes, zeroed, of"
        " another format, made shorter while they are read",
        "the reader gives rows or a clear error, nothing else; rows that lost their number are"
        " counted, all rows beside are shown unchanged (but a flipped bit of a value is a wrong"
        " value: a row has no checksum)",
    ),
    Fault(
        "R3",
        "run folders of a pid that has been given to another process, of another pid namespace,"
        " 1,000 of them; two agents in one process; files of another version",
        "none is shown alive that is not, none is removed that may be alive; what another version"
        " wrote is read, and what cannot be is refused by name",
    ),
    Fault(
        "R4",
        "the clock set by an hour and by ten years, forward and back, while a training runs",
        "the order of rows and their durations are those of the monotonic clock",
    ),
    Fault(
        "R5",
        "a ring that is filled much faster than it is read, by 8 readers",
        "written == readable + overwritten + dropped, to the row, and no reader sees half a row",
    ),
    Fault(
        "R6",
        "the rings of a running training cut short, and removed, by somebody who may",
        "the training goes on; its record goes on in the same files, or it is said that it does"
        " not",
    ),
    # Long runs
    Fault(
        "S1",
        "attach, detach, calls, queries, evals, forks, SIGKILL, damaged records, in any order",
        "after every step the answers are those of a model",
    ),
    Fault(
        "S2",
        "a ring that is filled much faster than it is read, by 8 readers for ten minutes",
        "no reading shows half a row, or says that fewer were written than the one before it",
    ),
    Fault(
        "S3",
        "a training is asked everything, by eleven clients, for half an hour; some hang up",
        "no growth of memory, descriptors or threads; every answer comes; no row is lost",
    ),
)


class Case(NamedTuple):
    """One thing that was tried: what was promised, what came out, and whether that is right."""

    name: str
    expected: str
    got: str
    is_kept: bool


@dataclasses.dataclass(slots=True)
class Reached:
    """What the tests of one fault reached, case by case.

    Attributes:
        fault: Which fault.
        file: The file of the test, below the folder of the project.
        cases: What has been said so far.
    """

    fault: Fault
    file: str
    cases: list[Case] = dataclasses.field(default_factory=list)

    def equals(self, case: str, expected: object, got: object) -> None:
        """Say what came out where exactly one thing is right."""
        self._add(Case(case, str(expected), str(got), is_kept=expected == got))

    def at_most(self, case: str, limit: float, got: float, unit: str) -> None:
        """Say a figure that has a limit, both in `unit`."""
        said = (f"<= {limit:g} {unit}", f"{round(got, 3):g} {unit}")
        self._add(Case(case, *said, is_kept=got <= limit))

    def holds(self, case: str, expected: str, got: str, *, is_kept: bool) -> None:
        """Say what came out where only the test can tell whether that is right."""
        self._add(Case(case, expected, got, is_kept=is_kept))

    def _add(self, case: Case) -> None:
        self.cases.append(case)
        line = f"{self.fault.id} {case.name}: expected {case.expected}, got {case.got}"
        print(line)
        assert case.is_kept, line


def find_fault(fault_id: str) -> Fault:
    """The fault of that id.

    Raises:
        LookupError: The table has none.
    """
    for fault in FAULTS:
        if fault.id == fault_id:
            return fault
    raise LookupError(f"tests/faults.py declares no fault {fault_id}")


def record(path: Path, reached: Iterable[Reached], python: str) -> None:
    """Put what was reached into the file, in the place of what the same tests' files reached."""
    told: dict[tuple[str, str], list[Case]] = {}
    for one in reached:
        told.setdefault((one.fault.id, one.file), []).extend(one.cases)
    results = read_results(path) if path.exists() else {}
    for (fault_id, file), cases in told.items():
        results.setdefault(fault_id, {})[file] = {"python": python, "cases": cases}
    ordered = {
        fault.id: dict(sorted(results[fault.id].items())) for fault in FAULTS if fault.id in results
    }
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n", "utf-8")


def read_results(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What was reached, by the fault's id and the test's file: the Python version and the cases."""
    results: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text("utf-8"))
    return results


def cases_of(results: Mapping[str, Mapping[str, Mapping[str, Any]]], fault: Fault) -> list[Case]:
    """What was reached for one fault, by all the files that test it."""
    files = results.get(fault.id, {}).values()
    return [Case(*case) for told in files for case in told["cases"]]


def rows(results: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[tuple[str, ...]]:
    """One row per fault: id, what, promise, how many cases hold, the figures that have limits."""
    told: list[tuple[str, ...]] = []
    for fault in FAULTS:
        cases = cases_of(results, fault)
        kept = sum(case.is_kept for case in cases)
        told.append(
            (fault.id, fault.what, fault.promise, f"{kept} of {len(cases)}", _figures(cases))
        )
    return told


def _figures(cases: Sequence[Case]) -> str:
    """The figures that have limits; of those of one kind the least and the largest."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for case in cases:
        if case.expected.startswith("<="):
            kind = case.name.rpartition(": ")[2], case.expected
            kinds.setdefault(kind, []).append(case.got)
    told = []
    for (name, limit), figures in kinds.items():
        figures.sort(key=lambda figure: float(figure.split()[0]))
        least = f"{figures[0].split()[0]} .. " if len(figures) > 1 else ""
        times = f", {len(figures)} times" if len(figures) > 1 else ""
        told.append(f"{name}{times}: {least}{figures[-1]} ({limit})")
    return "; ".join(told)
