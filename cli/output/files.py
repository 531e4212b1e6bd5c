"""The file that ``-o`` names: there whole, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from ...errors import UsageError


def write_file(path: str, chunks: Iterable[bytes]) -> None:
    """Write the chunks to a file that takes its name only once it is complete.

    What is no regular file (a device, a pipe) is written to as it is.

    Raises:
        UsageError: The file cannot be written.
    """
    final = os.path.realpath(path)
    direct = os.path.exists(final) and not os.path.isfile(final)
    written = final if direct else f"{final}.{os.getpid()}.part"
    with _saying_what_failed(path):
        file = open(written, "wb" if direct else "xb")  # noqa: SIM115  closed where it may fail
    try:
        for chunk in chunks:
            with _saying_what_failed(path):
                file.write(chunk)
        with _saying_what_failed(path):
            file.close()
            if not direct:
                os.replace(written, final)
    except BaseException:
        with contextlib.suppress(OSError):
            file.close()
        if not direct:
            os.unlink(written)
        raise


@contextlib.contextmanager
def _saying_what_failed(path: str) -> Iterator[None]:
    """Turn an error of the file into a sentence; errors of the rows pass by elsewhere."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}.") from None
