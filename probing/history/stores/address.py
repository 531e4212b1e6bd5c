"""What names a place of runs: a folder, or the address of a store, and which server that asks.

Rules of this file: names only; nothing is asked, and nothing heavy imported. Whoever takes the name
of a place asks here what it is: an address that is mistyped is no folder, which would be filled.
"""

from __future__ import annotations

import os
import re

from ...errors import UsageError

_STORE = re.compile(r"(s3|gs|gcs)://([^/?#\s]+)/?([^?#]*)")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_NEARLY = re.compile(r"(s3[an]?|gc?s)(?:[:;]+/*|//+)(.*)", re.IGNORECASE | re.DOTALL)
"""The address of a store that lacks a colon or a slash, or has more of them."""
_LIKE_ONE = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_SERVER = re.compile(r"https?://[^/]", re.IGNORECASE)


def is_url(place: str) -> bool:
    """Whether a place is one of an object store, as `s3://bucket`, and no folder.

    Raises:
        UsageError: It is neither: an address that is mistyped, or of what is not known.
    """
    if _STORE.fullmatch(place) is not None:
        return True
    nearly = _NEARLY.match(place)
    if nearly is not None:
        kind = "s3" if nearly[1].lower().startswith("s3") else "gs"
        meant = f"{kind}://{nearly[2].lstrip('/')}"
        if _STORE.fullmatch(meant) is not None:
            raise _no_place(place, f" Did you mean {meant}?")
    if nearly is not None or _LIKE_ONE.match(place) is not None:
        raise _no_place(place, "")
    return False


def parts_of(url: str) -> tuple[str, str, str]:
    """What an address says: the kind of store, the bucket, and where in it.

    Raises:
        UsageError: It is none of a store that is known.
    """
    found = _STORE.fullmatch(url)
    if found is None:
        raise _no_place(url, "")
    return found[1], found[2], found[3]


def _no_place(place: str, hint: str) -> UsageError:
    folder = "" if _URL.match(place) else f"; a folder that is called so is ./{place}"
    return UsageError(
        f"{place} is no place for a history.{hint}",
        help="Name a folder, or a place in an object store: s3://BUCKET/PREFIX or"
        f" gs://BUCKET/PREFIX{folder}.",
    )


def s3_endpoint() -> str | None:
    """The address of the server that speaks as S3 does; None of S3 itself.

    Raises:
        UsageError: The variable that names it does not begin as an address.
    """
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        named = os.environ.get(name)
        if named:
            if _SERVER.match(named) is None:
                raise UsageError(
                    f"{name} is {named!r}, which does not begin with http:// or https://.",
                    help=f"For example: {name}=http://127.0.0.1:9000",
                )
            return named
    return None


def endpoint_of(url: str) -> str | None:
    """The address of the server that is asked for a store; None of one that has no other.

    Raises:
        UsageError: See `s3_endpoint`.
    """
    return s3_endpoint() if parts_of(url)[0] == "s3" else None


def shown_of(url: str) -> str:
    """A store as errors name it: with the server that is asked."""
    endpoint = endpoint_of(url)
    return url if endpoint is None else f"{url} at {endpoint}"


def store_of(place: str) -> str:
    """The same of a place, as a statement that is asked of it has it; nothing of a folder."""
    return f"the store {shown_of(place)}" if is_url(place) else ""


def check_place(place: str) -> None:
    """See that a place is a folder or the address of a store, and that it is known whom to ask.

    Raises:
        UsageError: It is not.
    """
    if is_url(place):
        endpoint_of(place)
