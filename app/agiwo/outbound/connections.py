"""Named connections: what the configuration says of databases, mail servers and services, and the pools that are open to them.

A definition names a connection and never sees its address; an address with its password must not appear in any error or log.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agiwo.errors import StepError
from agiwo.outbound.guard import Guard

T = TypeVar("T")
Close = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """One connection as configured.

    `kind` is `postgres`, `sqlite`, `smtp`, `http` or `folder`; `url` may hold a password and is never shown. `options` by kind: `pool_size`
    (postgres, connections of one process, default 5); `sender`, `domain`, `timeout` (seconds), `max_bytes`, `reconcile_url` (smtp);
    `headers`, `auth`, `ca_file` (http); `writable`, `max_bytes` (folder).
    """

    name: str
    kind: str
    url: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)


class Connections:
    """The connections by name, and what is open to them: one pool for each name and event loop, opened at first use.

    `guard` says what calls to addresses without a connection may reach.
    """

    def __init__(self, specs: Iterable[ConnectionSpec] = (), guard: Guard | None = None) -> None:
        self.guard = guard or Guard()
        self._specs = {spec.name: spec for spec in specs}
        self._open: dict[tuple[str, str, int], tuple[Any, Close, asyncio.AbstractEventLoop]] = {}

    def names(self) -> list[str]:
        return sorted(self._specs)

    def get(self, name: str, *kinds: str) -> ConnectionSpec:
        """The connection called `name`; raises StepError (NotFound) if there is none, or none of these kinds."""
        spec = self._specs.get(name)
        if spec is None:
            close = difflib.get_close_matches(name, self._specs, 1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(self.names()) or 'none'}"
            raise StepError(f"there is no connection {name!r}{hint}", type="NotFound", not_done=True)
        if kinds and spec.kind not in kinds:
            expected = " or ".join(kinds)
            raise StepError(f"the connection {name!r} is of kind {spec.kind}, expected {expected}", type="NotFound", not_done=True)
        return spec

    def pool(self, spec: ConnectionSpec, make: Callable[[ConnectionSpec], tuple[T, Close]]) -> T:
        """What `make` opened for this connection in the running loop; opened now if it was not yet.

        `make` gives the pool and the way to close it, and must not wait: a pool connects at its first use.
        """
        loop = asyncio.get_running_loop()
        key = (spec.kind, spec.name, id(loop))
        held = self._open.get(key)
        if held is None or held[2] is not loop:
            pool, close = make(spec)
            self._open[key] = (pool, close, loop)
            return pool
        found: T = held[0]
        return found

    async def close(self) -> None:
        """Close everything that was opened in the running loop; what another loop opened ends with that loop."""
        loop = asyncio.get_running_loop()
        mine = [key for key, held in self._open.items() if held[2] is loop]
        for key in mine:
            await self._open.pop(key)[1]()
        for key in [key for key, held in self._open.items() if held[2].is_closed()]:
            del self._open[key]
