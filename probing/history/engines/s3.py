"""What another engine is told so that it reads S3 as the history itself does.

Rules of this file: server, region and patience are those of the history; no engine asks without a
name, also where that would be its way.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..files import line_of
from ..stores.address import s3_endpoint
from ..stores.objects import ANSWER_S, CONNECT_S, TRIES, open_store, unreachable

KIND = "s3://"
"""How the addresses of such histories begin."""


def of_daft(daft: Any, url: str) -> Any:
    """The settings of Daft; workers of Ray get them with the plan.

    Raises:
        StoreUnreachable: There are no credentials.
    """
    key_id, access_key, session_token = _credentials(daft, url)
    return daft.io.IOConfig(
        s3=daft.io.S3Config(
            endpoint_url=s3_endpoint(),
            region_name=open_store(url).fs.region,
            key_id=key_id,
            access_key=access_key,
            session_token=session_token,
            anonymous=False,
            connect_timeout_ms=round(CONNECT_S * 1000),
            read_timeout_ms=round(ANSWER_S * 1000),
            num_tries=TRIES,
        )
    )


def of_spark(url: str, known: Callable[[str], str | None]) -> dict[str, str]:
    """The settings of Spark, but for those that it has; credentials it finds itself.

    Args:
        known: What a setting of its Hadoop is.
    """
    endpoint = s3_endpoint()
    wanted = {"fs.s3a.endpoint": endpoint, "fs.s3a.endpoint.region": open_store(url).fs.region}
    options = {name: value for name, value in wanted.items() if value and not known(name)}
    if endpoint and "fs.s3a.endpoint" in options:
        options["fs.s3a.path.style.access"] = "true"
    return options


def _credentials(daft: Any, url: str) -> tuple[str, str, str | None]:
    """Who asks: by the variables, else by what Daft finds in files and on the machine.

    Raises:
        StoreUnreachable: There are none. Daft itself would ask as nobody.
    """
    known = os.environ.get
    key_id, access_key = known("AWS_ACCESS_KEY_ID"), known("AWS_SECRET_ACCESS_KEY")
    if key_id and access_key:
        return key_id, access_key, known("AWS_SESSION_TOKEN") or None
    try:
        found = daft.io.S3Config.from_env()
    except Exception as error:  # noqa: BLE001 - what it raises has no class in common
        raise unreachable(url, f"Daft finds no credentials: {line_of(error)}") from None
    if found.anonymous or not found.key_id or not found.access_key:
        raise unreachable(url, "Daft finds no credentials")
    return found.key_id, found.access_key, found.session_token
