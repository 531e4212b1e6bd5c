"""How long `doctor` looks: as the user says, and else as the machine is busy."""

from __future__ import annotations

import pytest

from probing.cli.commands import doctor
from probing.cli.target import Target

pytestmark = pytest.mark.anypython


def test_what_the_user_says_holds_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--timeout` is a promise; only where there is none the crowd counts."""
    monkeypatch.setattr(doctor, "examined_s", lambda: 45.0)
    assert doctor._whole_s(Target(timeout_s=7.0)) == 7.0
    assert doctor._whole_s(Target()) == 45.0
