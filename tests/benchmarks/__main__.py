"""The command ``python -m tests.benchmarks``; see the package's docstring.

Rules of this file: it chooses, runs and prints. The exit code says whether the benchmarks ran; what
was missed is told at the end, and only with `--check` is that a failure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from . import machine, report
from .measures import Measure

NAMES = (
    "hot_path",
    "training",
    "per_step",
    "backward",
    "hooks",
    "own_rows",
    "collectives",
    "rival",
    "startup",
    "query_latency",
    "group_by",
    "resident",
    "clients",
    "stacks",
    "attach",
    "breakdown",
    "union",
    "actions",
    "page",
    "history",
)

_SMOKE = 0.001
"""The effort that makes each benchmark do everything once or twice."""


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="Measure what probing costs."
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; none means all")
    add("--effort", type=float, default=1.0, help="how many pairs, 1 being the usual number")
    add("--check", action="store_true", help="exit with 1 when a figure missed what it must be")
    add("--smoke", action="store_true", help="as short as can be: do they run? No limit counts")
    add("--json", type=Path, metavar="FILE", help="write every value to a file")
    add("--markdown", action="store_true", help="print the machine, and the table for a page")
    options = parser.parse_args()
    if options.smoke and options.check:
        parser.error("--smoke measures nothing that --check could judge")
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join(NAMES)}")
    return options


def main() -> int:
    """Run the benchmarks that were asked for."""
    options = parse_options()
    shape = machine.describe()
    results: dict[str, list[Measure]] = {}
    for name in options.names or NAMES:
        measure: Callable[[float], Iterable[Measure]] = import_module(
            f".{name}", __package__
        ).measure
        started = time.monotonic()
        results[name] = list(measure(_SMOKE if options.smoke else options.effort))
        seconds = time.monotonic() - started
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
    print(report.markdown(results, shape) if options.markdown else report.plain(results))
    if options.json:
        options.json.write_text(report.as_json(results, shape), "utf-8")
    if options.smoke:
        return 0
    missed = report.missed(results)
    for sentence in missed:
        print(sentence, file=sys.stderr)
    return int(options.check and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
