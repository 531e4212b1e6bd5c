"""What tests of injections have in common."""

from __future__ import annotations

import pytest

from probing.attach.injectors.borrowing import tracing
from tests.harness.targets import DEADLINE_S


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that gets no processor for a moment is waited for, and no refusal."""
    monkeypatch.setattr(tracing, "_STOP_S", DEADLINE_S)
