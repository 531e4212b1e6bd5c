"""Runs one check in this process: ``python -m tests.gpu.check NAME [--fake]``."""

from __future__ import annotations

import sys
import traceback

from tests.gpu.findings import FAILED, Finding, encode_finding


def main(name: str, *, is_fake: bool) -> int:
    """Print each finding as it comes; what goes wrong is one, too."""
    from tests.gpu.checks import CHECKS
    from tests.gpu.devices import device_of

    try:
        for finding in CHECKS[name](device_of(is_fake=is_fake)):
            print(encode_finding(finding), flush=True)
    except Exception as error:  # noqa: BLE001 - whatever it is, the table tells it
        traceback.print_exc()
        told = f"{type(error).__name__}: {error}".partition("\n")[0][:200]
        print(encode_finding(Finding("the check itself", told, "it runs", FAILED)), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], is_fake="--fake" in sys.argv[2:]))
