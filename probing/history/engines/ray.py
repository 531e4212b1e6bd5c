"""A history as Daft reads it on Ray: a cluster whose workers see its place under the same name.

`RAY_ADDRESS` says which, by Ray's own rules; without it Ray finds the one that runs on this
machine, else starts one for this statement. Whoever has connected already stays connected.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ...errors import UsageError
from ..scanning.source import Source
from .daft import Daft
from .quiet import kept_quiet, reason, set_quiet


class Ray(Daft):
    """See `asking.Engine`.

    Raises:
        UsageError: Ray cannot be reached, or does not start.
        StoreUnreachable: There are no credentials for the store.
    """

    name = "ray"

    def __init__(self, source: Source) -> None:
        set_quiet()
        import ray

        super().__init__(source)
        self._ray: Any = ray
        self._is_ours = not ray.is_initialized()
        with kept_quiet():
            try:
                if self._is_ours:
                    ray.init(log_to_driver=False, logging_level="ERROR", include_dashboard=False)
                self._daft.set_runner_ray(noop_if_initialized=True)
            except Exception as error:  # noqa: BLE001 - what they raise has no class in common
                self.close()
                raise UsageError(
                    f"Ray does not start: {reason(str(error).splitlines(), error)}.",
                    help="RAY_ADDRESS says which cluster; its Python and Ray are those of here.",
                ) from None

    def ask(self, sql: str, most: int | None) -> pa.Table:
        """See `asking.Engine`; of what a worker raises, the line that says what."""
        try:
            return super().ask(sql, most)
        except self._ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise RuntimeError(lines[-1] if lines else type(error).__name__) from None

    def close(self) -> None:
        """See `asking.Engine`."""
        super().close()
        if self._is_ours:
            self._ray.shutdown()
