"""Prints the layout of each Python named, or of this one, and whether the table has it right."""

from __future__ import annotations

import subprocess
import sys

from probing.attach.injectors.layouts import PendingLayout
from tests.attach.layouts.derive import derive, equals_the_table


def main(pythons: list[str]) -> int:
    """Print and compare; returns the exit code."""
    wrong = 0
    for python in pythons or [sys.executable]:
        try:
            version, layout, bit = derive(python)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"{python}: {getattr(error, 'stderr', None) or error}")
            wrong += 1
            continue
        is_right = equals_the_table(version, layout, bit)
        wrong += not is_right
        print(f"# {python}: {'equals the table' if is_right else 'DIFFERS from the table'}")
        print(f"    {version}: {_as_source(layout)},")
    return 1 if wrong else 0


def _as_source(layout: PendingLayout) -> str:
    """A layout as it stands in the table."""
    fields = [f"{name}={value}" for name, value in zip(layout._fields, layout, strict=True)]
    return f"PendingLayout({', '.join(fields)})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
