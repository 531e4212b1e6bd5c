"""Which servers a client believes when they say who they are, and so gives its token to.

Rules of this file: files and TLS contexts, no socket. A certificate that is pinned by its
fingerprint needs no authority and no fitting name; any other needs both. A token goes to who has
shown such a certificate, and unencrypted to nobody but this machine, unless the user said so.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from .. import settings
from ..errors import Unproven, Untrusted, UsageError
from ..settings.values import parse

if TYPE_CHECKING:
    import ssl

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


class Trust(NamedTuple):
    """What was said about the certificates of servers; nothing said means those of public ones.

    Attributes:
        ca: A file of certificates, of authorities or of the servers themselves.
        fingerprints: Of the servers' certificates: SHA-256 in lower-case hexadecimal.
        plaintext: Whether tokens may cross the network unencrypted.
    """

    ca: str = ""
    fingerprints: tuple[str, ...] = ()
    plaintext: bool = False

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
            plaintext=parse(_PLAINTEXT, env.get(_PLAINTEXT.env, "0")),
        )

    @property
    def names_servers(self) -> bool:
        """Whether anything was said of certificates."""
        return bool(self.ca or self.fingerprints)

    def check_plain(self, address: str, peer: str) -> None:
        """Refuse to send a token unencrypted to another machine, unless that was allowed.

        Args:
            peer: The number of who is at the other end of the connection.

        Raises:
            Unproven: It is one.
        """
        if not (self.plaintext or is_loopback(peer)):
            raise Unproven(address, "the token would cross the network unencrypted")

    def check_told(self, address: str, *, tls: bool) -> None:
        """Refuse who was not named by the user and cannot prove to be one that he believes.

        Raises:
            Unproven: It is so.
        """
        if self.names_servers and not tls:
            raise Unproven(address, "others named it, and want it to be asked unencrypted")
        if not (self.names_servers or self.plaintext):
            raise Unproven(address, "others named it, and no certificate proves who it is")

    def check(self, address: str, certificate: bytes | None) -> None:
        """Compare the certificate that a server has shown with those that are pinned, if any are.

        Args:
            certificate: As DER.

        Raises:
            Untrusted: It is none of them.
        """
        if not self.fingerprints:
            return
        import hashlib

        shown = hashlib.sha256(certificate or b"").hexdigest()
        if shown not in self.fingerprints:
            raise Untrusted(address, f"its fingerprint is sha256:{shown}")


NOTHING_SAID = Trust()
_PLAINTEXT = settings.find("insecure_plaintext")


def is_loopback(number: str) -> bool:
    """Whether a numeric address is this machine's own, in whatever way it is written."""
    import ipaddress

    address = ipaddress.ip_address(number.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


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
    import ssl

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
