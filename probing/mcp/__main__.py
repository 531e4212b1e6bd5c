"""Serves on stdin and stdout: ``python -m probing.mcp``; `probing mcp` becomes this."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import MissingLibrary


def main(argv: Sequence[str]) -> int:
    """Serve until the client goes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="probing mcp", allow_abbrev=False)
    parser.add_argument("--allow-eval", action="store_true")
    parser.add_argument("--allow-act", action="store_true")
    options = parser.parse_args(argv)
    try:
        from .server import make_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        missing = MissingLibrary("probing-agent[mcp]")
        sys.stderr.write(f"error: {missing}\n{missing.help}\n")
        return missing.exit_code
    server = make_server(allow_eval=options.allow_eval, allow_act=options.allow_act)
    try:
        server.run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
