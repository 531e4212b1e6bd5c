"""The certificate that the TCP listener shows.

Rules of this file: loaded only where a certificate is asked for, and so with it `ssl`; no socket.
A key that needs a pass phrase is refused: nobody is there to type it.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import NamedTuple

from ..errors import BadSetting
from ..settings import Settings

_END = "-----END CERTIFICATE-----"


class Certificate(NamedTuple):
    """What a listener shows.

    Attributes:
        context: How it encrypts.
        fingerprint: SHA-256 of the certificate, by which clients may pin it.
    """

    context: ssl.SSLContext
    fingerprint: str


def load_certificate(settings: Settings) -> Certificate:
    """Read the certificate and its key.

    Raises:
        BadSetting: They cannot be read, or do not belong together.
    """
    path, key = settings.tls_cert, settings.tls_key or settings.tls_cert
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        text = Path(path).read_text("utf-8", "replace")
        context.load_cert_chain(path, key, password=_refuse)
        der = ssl.PEM_cert_to_DER_cert(text[text.index("-----BEGIN C") : _end_of_first(text)])
    except ssl.SSLError as error:
        what = error.reason or "what they hold is no certificate and key in PEM"
        raise BadSetting("PROBING_TLS_CERT", f"{path} with the key in {key}: {what}") from None
    except OSError as error:
        raise BadSetting("PROBING_TLS_CERT", f"{error.filename or key}: {error.strerror}") from None
    except ValueError as error:
        raise BadSetting("PROBING_TLS_CERT", f"{path} with the key in {key}: {error}") from None
    return Certificate(context, hashlib.sha256(der).hexdigest())


def _end_of_first(text: str) -> int:
    """Where the first certificate of a file ends."""
    return text.index(_END) + len(_END)


def _refuse() -> str:
    """What is called for a pass phrase."""
    raise ValueError("the key needs a pass phrase")
