"""The command ``probing`` of a shell of the tests: has it run by the warm commands.

    python -IS tests/harness/forward.py SOCKET ARGUMENTS

Rules of this file: imports next to nothing, for that is its purpose. The command has this process's
streams, folder and environment; signals are handed on, and its exit code is this one's.
"""

import array
import json
import os
import select
import signal
import socket
import sys


def main() -> int:
    """Run the command; returns its exit code."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        answers = server.makefile("rb")
        argv = [sys.executable, "-m", "probing", *sys.argv[2:]]
        request = {"argv": argv, "env": dict(os.environ), "cwd": os.getcwd(), "session": False}
        body = json.dumps(request).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (0, 1, 2)))]
        server.sendmsg([b"%8d" % len(body)], rights)
        server.sendall(body)
        pid = json.loads(answers.readline())["pid"]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        select.select([os.pidfd_open(pid)], [], [])
        body = json.dumps({"reap": pid}).encode()
        server.sendall(b"%8d" % len(body) + body)
        code = json.loads(answers.readline())["code"]
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
