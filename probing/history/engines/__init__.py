"""Statements over a history that another engine answers: Spark, or Daft, here or on Ray.

Rules of this package: an engine is the user's own, found where it is installed, and reads the files
of the history itself. `statement` has sqlglot say a statement of ours in its SQL; nothing is
translated by hand. What an engine does not take is an error that says so, and no other answer.
"""

from __future__ import annotations

ENGINES = ("spark", "daft", "ray")
"""Their names."""
