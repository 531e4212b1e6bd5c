"""Does to the standard library what eventlet and gevent do; with `first`, before the agent starts.

There is no poll and no epoll any more, threads are not begun by the interpreter's own function but
never, and the main thread has another number than the interpreter has for it. Prints `ready` and
sleeps.
"""

from __future__ import annotations

import _thread
import select
import selectors
import sys
import threading
import time
import types
from typing import Any


def patch() -> None:
    """Put other things in the place of those that wait, and keep them as gevent does."""
    monkey: Any = types.ModuleType("gevent.monkey")
    monkey.saved = {
        "_thread": {"start_new_thread": _thread.start_new_thread},
        "select": {"poll": select.poll},
    }
    sys.modules["gevent.monkey"] = monkey
    for name in ("poll", "epoll"):
        delattr(select, name)
    modules: Any = selectors
    modules.DefaultSelector = selectors.SelectSelector
    functions: Any = _thread
    functions.start_new_thread = lambda *_: 0
    greenlet: Any = types.ModuleType("greenlet")
    greenlet.greenlet = type("greenlet", (), {"gr_frame": property(), "parent": property()})
    sys.modules["greenlet"] = greenlet
    main: Any = threading.main_thread()
    known: Any = threading
    known._active[id(main)] = known._active.pop(main._ident)
    main._ident = id(main)


def sleep_long() -> None:
    time.sleep(10**6)


if __name__ == "__main__":
    patch()
    if sys.argv[1:] == ["first"]:
        import probing

        probing.start()
    print("ready", flush=True)
    sleep_long()
