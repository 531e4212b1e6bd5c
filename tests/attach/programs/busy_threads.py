"""Python threads that compute, sleep, fail, come and go; MODE says what the main thread does.

busy: allocates without end. blocked: waits in a read for one byte from stdin, says "awake", and
sleeps a little at a time.
"""

import contextlib
import json
import os
import random
import re
import sys
import threading
import time
import zlib


def work() -> None:
    while True:
        numbers = {str(i): [i] * 5 for i in range(200)}
        json.loads(json.dumps(numbers))
        re.sub("a+", "b", "aaab" * 50)
        zlib.compress(os.urandom(2000))
        with contextlib.suppress(ValueError):
            int("x")


def nap() -> None:
    while True:
        time.sleep(random.random() / 100)


def come_and_go() -> None:
    while True:
        thread = threading.Thread(target=sum, args=(range(2000),))
        thread.start()
        thread.join()


def main(mode: str) -> None:
    if mode == "blocked":
        print("ready", flush=True)
        os.read(0, 1)
        print("awake", flush=True)
        while True:
            time.sleep(0.01)
    for function in (work, work, nap, nap, come_and_go):
        threading.Thread(target=function, daemon=True).start()
    print("ready", flush=True)
    while True:
        [bytearray(70000) for _ in range(5)]


if __name__ == "__main__":
    main(sys.argv[1])
