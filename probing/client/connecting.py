"""Finds the process that a user names, and how it is reached.

Rules of this file: nothing is sent to it yet.
"""

from __future__ import annotations

import os

from ..messages.limits import DEFAULT_TIMEOUT_S
from ..reach.endpoint import Local, Stranger, resolve
from ..reach.trust import Trust, read_fingerprint
from ..rundir.folders import from_env
from .base import Process
from .transports import ByAddress, OnThisMachine, Transport, WithoutAgent


def connect(
    endpoint: str | int,
    *,
    token: str | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    tls_ca: str | None = None,
    tls_fingerprint: str | None = None,
) -> Process:
    """Find a process without the verdicts and reports of `api.process.connect`, which see.

    Raises:
        BadEndpoint: The endpoint is of no kind that is known, or fits several processes.
        NoSuchProcess: Nothing matches it.
    """
    transport = transport_to(endpoint, token=token, tls_ca=tls_ca, tls_fingerprint=tls_fingerprint)
    return Process(str(endpoint), transport, timeout_s)


def transport_to(
    endpoint: str | int, *, token: str | None, tls_ca: str | None, tls_fingerprint: str | None
) -> Transport:
    """How what the user names is reached; see `connect`.

    Raises:
        BadEndpoint: It names no process, or several.
        NoSuchProcess: Nothing matches it.
    """
    trust = None
    if tls_ca is not None or tls_fingerprint is not None:
        pinned = (read_fingerprint(tls_fingerprint),) if tls_fingerprint else ()
        said = Trust.from_env(os.environ)
        trust = said._replace(ca=tls_ca or "", fingerprints=pinned)
    place = resolve(endpoint, from_env(), token=token, trust=trust)
    if isinstance(place, Local):
        return OnThisMachine(place.folder)
    if isinstance(place, Stranger):
        return WithoutAgent(place.pid)
    return ByAddress(place)
