"""Runs the server of the page: ``python -m probing.web``; `probing web` becomes this.

Rules of this file: the link, and nothing else, goes to stdout. Ctrl-C ends it without a word.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
from collections.abc import Callable, Sequence

from ..errors import ProbingError, Unreachable
from ..page import page_file
from ..server.command import complain, end_by_signals
from ..settings import Settings


def main(argv: Sequence[str]) -> int:
    """Serve until stopped; returns the exit code."""
    options = _parser().parse_args(argv)
    try:
        page_file("page.js")
        _serve(options)
    except ProbingError as error:
        return complain(f"{error}", error.help, error.exit_code)
    except OSError as error:
        what = f"cannot listen on port {options.port}: {error.strerror or error}."
        return complain(what, "--port 0 takes a free one.", Unreachable.exit_code)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="probing web", allow_abbrev=False)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--allow-eval", action="store_true")
    parser.add_argument("endpoints", nargs="*")
    return parser


def _serve(options: argparse.Namespace) -> None:
    """Look at the processes once, and serve.

    Raises:
        ProbingError: Those that were named are not there.
        OSError: The port cannot be bound.
    """
    from .processes import Processes, Target
    from .server import WebServer

    # The token of the agents comes by the environment, where no listing of processes shows it.
    target = Target(
        endpoints=tuple(options.endpoints) or ("all",),
        token=os.environ.get("PROBING_TOKEN") or None,
        timeout_s=options.timeout,
    )
    processes = Processes(target)
    if options.endpoints:  # without any, the page waits for processes to come
        processes.look()
    settings = Settings.from_env(os.environ)
    server = WebServer(settings, processes, options.port, may_eval=options.allow_eval)
    end_by_signals(server.stop)
    threading.Thread(target=_end_with_reader, args=(server.stop,), daemon=True).start()
    server.run(_tell)


def _end_with_reader(stop: Callable[[], None]) -> None:
    """Stop when nobody can read stdout any more, and no terminal is there to type Ctrl-C in.

    So ends what `ssh HOST probing web` has begun with the connection: sshd sends it no signal.
    """
    if sys.stdin is None or sys.stdin.isatty() or sys.stdout.isatty():
        return
    ends = select.poll()
    ends.register(sys.stdout.fileno(), 0)  # errors and hang-ups are always told
    ends.poll()
    stop()


def _tell(link: str) -> None:
    print(link, flush=True)  # noqa: T201 - what the command is for
    if sys.stderr.isatty():
        print("Open it in a browser of this machine. Ctrl-C ends it.", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)  # the engine's library would wait for what was asked last
