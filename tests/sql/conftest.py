"""How long workers of SQL have here to die, and those who tell how."""

from __future__ import annotations

import pytest

from probing.server.sql_worker import apart, worker_process
from tests.harness.targets import DEADLINE_S

_WAITS = ((worker_process, "_END_S"), (worker_process, "_TOLD_S"), (apart, "_REAP_S"))


@pytest.fixture(autouse=True)
def _is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them needs a processor for it, of which a busy machine may have none for seconds."""
    for module, name in _WAITS:
        monkeypatch.setattr(module, name, DEADLINE_S)
