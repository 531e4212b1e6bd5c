"""Fuzzes the parsers, guided by the code that each input reaches; see `targets`.

    python -m tests.fuzz                          every target, one minute each
    python -m tests.fuzz --seconds 300 wire card  some of them, five minutes each

Needs atheris, which is in no extra of probing, since it is not there for every Python: scripts/fuzz
puts it into an environment of its own. Every target is one line, `name: runs, places in the code,
finding`; the exit code is 1 where there is a finding, and its input is kept under --findings.
"""

from __future__ import annotations

import argparse
import importlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_RUNS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_PLACES = re.compile(r"cov: (\d+)")
_MOST_BYTES = 16_384
_MEMORY_MIB = 2048
_WORDS = (
    "Infinity", "NaN", "1e999", "1" + 60 * "0", "[[[[[[[[", "null", "true", r"\\ud800", "-0.0",
)  # fmt: skip
"""What the fuzzer puts together, beside bytes."""
_BEYOND_S = 120.0
"""How long a run may take beyond its time: to load, and to end."""


def main(argv: list[str] | None = None) -> int:
    """Fuzz; returns the exit code."""
    about = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=about)
    parser.add_argument("names", nargs="*", help="targets [default: all]")
    parser.add_argument("--seconds", type=int, default=60, help="for each target [default: 60]")
    parser.add_argument("--findings", type=Path, default=Path("findings"), help="a folder")
    parser.add_argument("--alone", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.alone:
        _fuzz(*options.alone)
        return 0
    from .targets import TARGETS

    known = [target.name for target in TARGETS]
    if unknown := set(options.names) - set(known):
        parser.error(f"no targets: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    found = [_run(name, options.seconds, options.findings) for name in options.names or known]
    return int(any(found))


def _run(name: str, seconds: int, findings: Path) -> bool:
    """Fuzz one target in a process of its own; whether there was a finding."""
    findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        words = [sys.executable, "-m", "tests.fuzz", "--alone", name, corpus, str(seconds)]
        done = subprocess.run(
            [*words, f"{findings}/{name}-"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds + _BEYOND_S,
            check=False,
        )
    said = done.stdout + done.stderr
    runs, places = _RUNS.search(said), _PLACES.findall(said)
    told = f"{name}: {runs[1] if runs else 'no'} runs, {places[-1] if places else 'no'} places"
    print(f"{told}, {'a finding' if done.returncode else 'no finding'}", flush=True)
    if done.returncode:
        print(said[-4000:], file=sys.stderr, flush=True)
    return done.returncode != 0


def _fuzz(name: str, corpus: str, seconds: str, findings: str) -> None:
    """The body of a process that fuzzes; it ends in here."""
    atheris: Any = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["probing", "tests.fuzz.targets"]):
        targets = importlib.import_module("tests.fuzz.targets")
    target = next(target for target in targets.TARGETS if target.name == name)
    for number, seed in enumerate(target.seeds):
        Path(corpus, f"seed-{number}").write_bytes(seed)
    words = Path(corpus, "words")  # they are a seed, too
    words.write_text("".join(f'"{word}"\n' for word in _WORDS))
    how = (
        f"-dict={words}",
        f"-max_total_time={seconds}",
        f"-max_len={_MOST_BYTES}",
        f"-rss_limit_mb={_MEMORY_MIB}",
        f"-artifact_prefix={findings}",
        "-print_final_stats=1",
    )
    atheris.Setup([sys.argv[0], *how, corpus], target.read)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
