"""Certificates for tests of TLS, made by the `openssl` of the machine."""

from __future__ import annotations

import subprocess
from pathlib import Path


def make_certificate(folder: Path, name: str, *, phrase: str = "") -> tuple[str, str]:
    """A self-signed certificate for localhost, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    secret = ["-passout", f"pass:{phrase}"] if phrase else ["-nodes"]
    words = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -days 2 -subj /CN=node1"
        f" -addext subjectAltName=DNS:localhost,DNS:node1 -keyout {key} -out {cert}"
    )
    subprocess.run([*words.split(), *secret], check=True, capture_output=True)
    return str(cert), str(key)
