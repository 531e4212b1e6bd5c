"""What a rule of the doctor is made of, for plugins: `Rule`, `Sign`, `NotLookedAt`, `Facts`.

Rules of this file: names for people; what they are stands in `probing.diagnosis.doctor`. Not to be
imported in a training: a plugin does so in the function that gives its rules.
"""

from __future__ import annotations

from .diagnosis.doctor.facts import Facts
from .diagnosis.doctor.findings import Rule, Sign
from .diagnosis.doctor.not_looked_at import NotLookedAt

__all__ = ["Facts", "NotLookedAt", "Rule", "Sign"]
