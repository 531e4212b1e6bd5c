"""Which servers a client believes when they say who they are, and so gives its token to.

Rules of this file: files and TLS contexts, no socket. A certificate that is pinned by its
fingerprint needs no authority and no fitting name; any other needs both.
"""

from __future__ import annotations

import functools
import hashlib
import re
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from .errors import Untrusted, UsageError

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class Trust(NamedTuple):
    """What was said about the certificates of servers; nothing said means those of public ones.

    Attributes:
        ca: A file of certificates, of authorities or of the servers themselves.
        fingerprints: Of the servers' certificates: SHA-256 in lower-case hexadecimal.
    """

    ca: str = ""
    fingerprints: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Trust:
        """What the environment says.

        Raises:
            UsageError: A fingerprint is none.
        """
        words = env.get("PROBING_TLS_FINGERPRINT", "").replace(",", " ").split()
        return cls(
            ca=env.get("PROBING_TLS_CA", "").strip(),
            fingerprints=tuple(read_fingerprint(word) for word in words),
        )

    def check(self, address: str, certificate: bytes | None) -> None:
        """Compare the certificate that a server has shown with those that are pinned, if any are.

        Args:
            certificate: As DER.

        Raises:
            Untrusted: It is none of them.
        """
        if not self.fingerprints:
            return
        shown = hashlib.sha256(certificate or b"").hexdigest()
        if shown not in self.fingerprints:
            raise Untrusted(address, f"its fingerprint is sha256:{shown}")


NOTHING_SAID = Trust()


def read_fingerprint(text: str) -> str:
    """A fingerprint as people and tools write it, in the one form that is compared.

    Raises:
        UsageError: It is none.
    """
    plain = text.rpartition("=")[2].strip().lower().removeprefix("sha256:").replace(":", "")
    if not _FINGERPRINT.fullmatch(plain):
        raise UsageError(
            f"{text[:100]!r} is no SHA-256 fingerprint.",
            help="`openssl x509 -noout -fingerprint -sha256 -in CERTIFICATE` tells it.",
        )
    return plain


@functools.lru_cache(maxsize=8)
def context_for(trust: Trust) -> ssl.SSLContext:
    """How connections are made under a trust.

    Raises:
        UsageError: The file of certificates cannot be read.
    """
    if trust.fingerprints:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # compared as soon as it is seen, see `Trust.check`
        return context
    try:
        context = ssl.create_default_context(cafile=trust.ca or None)
    except (OSError, ssl.SSLError) as error:
        reason = "it holds no certificates" if isinstance(error, ssl.SSLError) else error.strerror
        raise UsageError(
            f"cannot read the certificates in {trust.ca}: {reason}.",
            help="--tls-ca and PROBING_TLS_CA name a PEM file of certificates.",
        ) from None
    if trust.ca:
        # The server's own certificate may stand there, and one's own authority may be a plain one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
