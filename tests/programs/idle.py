"""Does nothing, with a few Python threads of its own."""

from __future__ import annotations

import threading
import time


def sleeper() -> None:
    time.sleep(6000)


if __name__ == "__main__":
    threading.Thread(target=sleeper, name="sleeper", daemon=True).start()
    print("ready", flush=True)
    time.sleep(6000)
