"""Calls a model in what gevent makes of threads: locals that are each greenlet's, and end with it.

Prints `ready`; then the program waits to be ended.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

GIVEN: Any = weakref.WeakKeyDictionary()


class Greenlet:
    """Stands in for one; it runs in the thread that makes it."""

    current: Any = None

    def __init__(self) -> None:
        self.values: Any = weakref.WeakKeyDictionary()

    def run(self, work: Any) -> None:
        """Do something as this one."""
        Greenlet.current, before = self, Greenlet.current
        work()
        Greenlet.current = before


class Local:
    """As `gevent.local.local`."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        made = object.__new__(cls)
        GIVEN[made] = args, kwargs
        return made

    def __getattribute__(self, name: str) -> Any:
        of_all = Greenlet.current.values
        if self not in of_all:
            of_all[self] = {}
            args, kwargs = GIVEN[self]
            type(self).__init__(self, *args, **kwargs)
        object.__setattr__(self, "__dict__", of_all[self])
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _ = self.__dict__
        object.__setattr__(self, name, value)


def main() -> None:
    """Train in one greenlet, and call the model in others once that is gone."""
    Greenlet.current = Greenlet()
    modules: Any = threading
    modules.local = Local

    import torch  # the agent starts by this
    from torch import nn

    model = nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    def infer() -> None:
        with torch.no_grad():
            model(torch.ones(2, 4))

    Greenlet().run(train)
    gc.collect()
    for _ in range(50):
        Greenlet().run(infer)


if __name__ == "__main__":
    main()
    print("ready", flush=True)
    time.sleep(600)
