"""Compare what the doctor said of each program with what is right, and print a table.

python -m tests.zoo.judge DIR [DIR ...]     of folders that `python -m tests.zoo` has written
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.zoo.table import ROOM, Expectation, expectations

RULES = ROOM / "rules.toml"
NEAR = 4
"""So many lines off is the same place."""
MOST_FIRST, MOST_SHOWN = 0.90, 0.98


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What became of one program.

    Attributes:
        place: At which place of the findings the right one stands, from 1; None where it is not
            there, and of a healthy one.
        alarms: The rules that were certain or likely in a healthy one.
        said: The first finding.
        problem: Why nothing was said.
    """

    name: str
    is_healthy: bool
    place: int | None = None
    alarms: tuple[str, ...] = ()
    said: str = ""
    seconds: float | None = None
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the right finding is the first, or a healthy one has no alarm."""
        if self.problem:
            return False
        return not self.alarms if self.is_healthy else self.place == 1


def right_rules() -> dict[str, list[str]]:
    """By program: the rules one of which is right."""
    toml: Any = importlib.import_module("tomllib")  # Python 3.11; the type checker reads as 3.10
    found: dict[str, list[str]] = toml.loads(RULES.read_text())
    return found


def judge(expected: Expectation, said: dict[str, Any], rules: list[str]) -> Judgement:
    """Judge what was said of one program."""
    about = {"name": expected.name, "is_healthy": expected.is_healthy}
    try:
        report = json.loads(said["stdout"])
    except (KeyError, ValueError):
        return Judgement(**about, problem=said.get("problem") or "no report")  # type: ignore[arg-type]
    findings = report["findings"]
    places = [
        place
        for place, finding in enumerate(findings, 1)
        if finding["rule"] in rules and is_there(expected, finding)
    ]
    alarms = [f["rule"] for f in findings if f["certainty"] != "possible"]
    return Judgement(
        **about,  # type: ignore[arg-type]
        place=places[0] if places else None,
        alarms=tuple(alarms) if expected.is_healthy else (),
        said=f"{findings[0]['rule']} ({findings[0]['certainty']})" if findings else "nothing",
        seconds=said["seconds"],
    )


def is_there(expected: Expectation, finding: dict[str, Any]) -> bool:
    """Whether a finding about what stands still names the place or the rank."""
    if expected.group != "stops":
        return True
    text = " ".join([finding["summary"], *finding["evidence"]])
    rank = expected.place.get("rank")
    if expected.world > 1 and rank is not None:
        if re.match("Deadlock:|The ranks do not agree", finding["summary"]):
            return True  # which names both sides
        named = re.search(r"\b[Rr]anks? ([\d, -]+)", finding["summary"])
        return named is not None and str(rank) in re.findall(r"\d+", named[1])
    function = str(expected.place.get("function", "")).replace(" / ", ".").split(".")[-1]
    if function and re.search(rf"\b{re.escape(function)}\b", text):
        return True
    lines = [int(n) for n in re.findall(rf"{expected.name}\.py:(\d+)", text)]
    return any(abs(line - right) <= NEAR for line in lines for right in expected.lines)


def judged(folders: list[pathlib.Path]) -> list[Judgement]:
    """All programs that were asked about; the later folder counts."""
    rules = right_rules()
    found = {}
    for folder in folders:
        for expected in expectations():
            path = folder / expected.name / "said.json"
            if path.exists():
                said = json.loads(path.read_text())
                found[expected.name] = judge(expected, said, rules.get(expected.name, []))
    return [found[expected.name] for expected in expectations() if expected.name in found]


def table(results: list[Judgement]) -> str:
    """A line for each program that is not right, then the counts."""
    lines = []
    for one in results:
        if not one.is_right:
            what = f"alarms: {', '.join(one.alarms)}" if one.alarms else f"right at {one.place}"
            lines.append(f"{one.name:12} {one.problem or what:32} said first: {one.said}")
    faulty = [one for one in results if not one.is_healthy]
    healthy = [one for one in results if one.is_healthy]
    places = Counter(one.place for one in faulty)
    shown = sum(places[place] for place in (1, 2, 3))
    seconds = sorted(one.seconds for one in results if one.seconds is not None)
    if faulty:
        first = f"first {places[1]} ({places[1] / len(faulty):.0%})"
        lines.append(f"{len(faulty)} with a fault: right finding {first}, among the first three"
                     f" {shown} ({shown / len(faulty):.0%})")  # fmt: skip
    alarmed = sum(bool(one.alarms) for one in healthy)
    lines.append(f"{len(healthy)} healthy: {alarmed} with a certain or likely finding")
    if seconds:
        lines.append(f"seconds: median {seconds[len(seconds) // 2]:.1f}, most {seconds[-1]:.1f}")
    return "\n".join(lines)


def main() -> None:
    """Print the table of the folders that are named."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.zoo.judge", description=__doc__.split("\n")[0]
    )
    parser.add_argument("folders", nargs="+", type=pathlib.Path, metavar="DIR")
    print(table(judged(parser.parse_args().folders)))


if __name__ == "__main__":
    main()
