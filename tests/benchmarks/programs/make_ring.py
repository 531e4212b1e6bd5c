"""Makes a run folder with a full ring of torch_trace of so many rows; prints where it is."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from probing.linux import process
from probing.rundir.folders import from_env
from probing.tables import TORCH_TRACE
from tests.harness.large_rings import MODULES, large_ring
from tests.harness.name_lists import encode_names


def main(rows: int) -> str:
    """Write ring and names."""
    pid = os.getpid()
    folder = from_env().create_folder(pid, process.start_time(pid) or 0)
    large_ring(folder.ring(TORCH_TRACE.name), rows=rows)
    texts = (f"blocks.{number // 14}.part.{number % 14}" for number in range(MODULES))
    folder.names.write_bytes(encode_names(texts))
    return str(Path(folder.path))


if __name__ == "__main__":
    print(json.dumps(main(**json.loads(sys.argv[1]))))
