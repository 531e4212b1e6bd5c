"""A node server of a version that did not yet hand questions on to others."""

from __future__ import annotations

import sys

from probing.messages import routes

LACKING = {"union_tree", "collect"}

if __name__ == "__main__":
    routes.NODE_ROUTES = tuple(r for r in routes.NODE_ROUTES if r.name not in LACKING)
    from probing.cluster.node.__main__ import main

    sys.exit(main(sys.argv[1:]))
