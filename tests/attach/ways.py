"""Which way leads into a process, whatever it is stuck in: one line for each mode of `stuck`.

    python -m tests.attach.ways [--python PYTHON ...] [--mode MODE ...]

Rules of this file: injects a script that does next to nothing, by `auto`, so that any Python at
hand can be looked at. The process must be as it was before, whatever came of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from probing.attach.injectors.methods import inject
from probing.attach.preflight import find_obstacle
from probing.errors import ProbingError
from tests.harness.targets import clean_env, program_path, wait_until
from tests.programs import stuck

PATIENCE_S = 4.0
SCRIPT = "import os\nos.unlink({script!r})\n"


def way_into(python: str, mode: str) -> str:
    """What came of one try: the way, or ``waits``, or why not."""
    with tempfile.TemporaryDirectory() as folder:
        log, script = Path(folder) / "log", Path(folder) / "s"
        script.write_text(SCRIPT.format(script=str(script)))
        with log.open("wb") as file:
            process = subprocess.Popen(
                [python, str(program_path("stuck")), mode],
                env=clean_env(Path(folder)),
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: "ready" in log.read_text(), "ready")
            found = _try(process.pid, str(script))
            assert process.poll() is None, f"it ended: {log.read_text()}"
            assert "returned" not in log.read_text(), mode
            return found
        finally:
            process.kill()
            process.wait()


def _try(pid: int, script: str) -> str:
    obstacle: ProbingError | None = find_obstacle(pid)
    if obstacle is not None:
        return f"refused: {obstacle.message.partition(': ')[2]}"
    outcome = inject(pid, script, patience_s=PATIENCE_S)
    if outcome.method is None:
        return f"closed: {'; '.join(reason for _, reason in outcome.attempts)}"
    return outcome.method if outcome.has_run else f"waits ({outcome.method})"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--python", action="append", default=[])
    parser.add_argument("--mode", action="append", default=[], choices=stuck.MODES)
    options = parser.parse_args()
    os.environ.setdefault("PROBING_HOME", tempfile.gettempdir())
    for python in options.python or [sys.executable]:
        tally: Counter[str] = Counter()
        for mode in options.mode or stuck.MODES:
            found = way_into(python, mode)
            tally[found.partition(":")[0]] += 1
            print(f"  {mode:<16} {found}", flush=True)
        print(f"{python}: {dict(tally)}", flush=True)


if __name__ == "__main__":
    main()
