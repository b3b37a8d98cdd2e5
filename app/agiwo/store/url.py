"""The forms of a database URL: people write any of three schemes, the driver takes one.

Opens nothing and reads no settings.
"""

from __future__ import annotations

import re

_SCHEME = re.compile(r"^postgres(ql)?(\+[a-z0-9]+)?://")


def plain_url(url: str) -> str:
    """The URL as the driver takes it: `postgresql+asyncpg://` and `postgres://` become `postgresql://`.

    Raises ValueError for another scheme; the message leaves the rest of the URL out, since it may hold a password.
    """
    plain, count = _SCHEME.subn("postgresql://", url)
    if not count:
        raise ValueError(f"a database URL begins with postgresql://, not with {url.partition('://')[0][:40]!r}")
    return plain
