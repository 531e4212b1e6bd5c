"""The command ``probing`` of a shell of the tests: has it run by the warm commands.

    python -IS tests/harness/forward.py SOCKET ARGUMENTS

Rules of this file: imports next to nothing, for that is its purpose. The command has this process's
streams, folder and environment; signals are handed on, and its exit code is this one's.
"""

import json
import os
import select
import signal
import socket
import sys


def main() -> int:
    """Run the command; returns its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(sys.argv[1])
        argv = [sys.executable, "-m", "probing", *sys.argv[2:]]
        env = dict(os.environ)
        request = {"id": 1, "argv": argv, "env": env, "cwd": os.getcwd(), "session": False}
        socket.send_fds(server, [json.dumps(request).encode()], (0, 1, 2))
        pid = json.loads(server.recv(4096))["pid"]
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        select.select([os.pidfd_open(pid)], [], [])
        code = None
        while code is None:  # somebody traces it
            server.send(json.dumps({"id": 2, "reap": pid}).encode())
            code = json.loads(server.recv(4096))["code"]
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
