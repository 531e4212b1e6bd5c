"""A rank that prints `ready`, and once its folder has a file `go` ends as its argument says.

`own` and `peers` write an error file first, as a function under torchrun's `@record` does, one with
an error of the rank's own and one that says that another was gone; they end as a script does that
has caught the exception, and by `os._exit`. `thread` only loses a thread by an exception, prints
`lost` and goes on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

LIFETIME_S = 600
ERRORS = {
    "own": "ValueError: a label is out of range: 1007",
    "peers": "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer",
}


def fail() -> None:
    raise ValueError("the metrics server is gone")


def write_error(text: str) -> None:
    extra = {"py_callstack": "Traceback", "timestamp": str(int(time.time()))}
    data = {"message": {"message": text, "extraInfo": extra}}
    Path(os.environ["TORCHELASTIC_ERROR_FILE"]).write_text(json.dumps(data))


def main(way: str) -> None:
    print("ready", flush=True)
    end = time.monotonic() + LIFETIME_S
    while not Path("go").exists() and time.monotonic() < end:
        time.sleep(0.02)
    if way in ERRORS:
        write_error(ERRORS[way])
    if way == "own":
        sys.exit(1)
    if way == "peers":
        os._exit(1)
    thread = threading.Thread(target=fail, name="uploader")
    thread.start()
    thread.join()
    print("lost", flush=True)
    time.sleep(LIFETIME_S)


if __name__ == "__main__":
    main(sys.argv[1])
