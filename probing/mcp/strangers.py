"""Which machines the user's token does not go to: those that only an agent has named.

Rules of this file: an agent can be talked into an address by what it reads. An address is believed
that stands in the user's settings file, or shows a certificate that the user has named; that a
public authority vouches for it, or that it is on this machine, says nothing of whose it is. Where
in doubt it is a stranger. Nobody is asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..cli.preferences import preferences
from ..cluster.job.forms import names_many
from ..errors import ProbingError
from ..reach.trust import Trust

_SECURE = "https://"
_URLS = ("http://", _SECURE)
_WITH_PORT = re.compile(r".+:\d{1,5}")
_OPTIONS = ("tls-ca", "tls-fingerprint")
"""What the settings file may say of certificates."""

WITHOUT_TOKEN = ("--token-file", "/dev/null")
"""The options of a command that is to have none, whatever the settings file names."""
VARIABLE = "PROBING_TOKEN"


def is_stranger(word: str, env: Mapping[str, str]) -> bool:
    """Whether an endpoint of an agent's means a machine that may be anybody's.

    Args:
        env: The environment, which may say whose certificates are believed.
    """
    if not _names_machines(word):
        return False
    is_secure = word.startswith(_SECURE)
    try:
        settings = preferences()
        named = (one for words in settings.endpoints.values() for one in words)
        if _place(word) in {_place(n) for n in named if is_secure or not n.startswith(_SECURE)}:
            return False
        told = ((option, settings.defaults.get(option)) for option in _OPTIONS)
        said = {_variable(option): value for option, value in told if isinstance(value, str)}
        trust = Trust.from_env(said | {name: value for name, value in env.items() if value})
        tls = is_secure or (trust.names_servers and not word.startswith(_URLS))
        trust.check_told(word, tls=tls)
    except ProbingError:
        return True
    return False


def _names_machines(word: str) -> bool:
    """Whether it is an address, or a list of nodes; a name that others look up is checked there."""
    kind, _, rest = word.partition(":")
    if kind == "slurm":
        return bool(rest) and not rest.isdecimal()
    if names_many(word) or kind == "rank":
        return False
    return word.startswith(_URLS) or _WITH_PORT.fullmatch(word) is not None


def _place(word: str) -> str:
    """Host and port of an address, however it is asked."""
    return word.partition("://")[2].partition("/")[0] or word


def _variable(option: str) -> str:
    return f"PROBING_{option}".upper().replace("-", "_")
