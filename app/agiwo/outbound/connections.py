"""Named connections: what the configuration says of databases, mail servers and services, and the pools that are open to them.

A definition names a connection and never sees its address; an address with its password must not appear in any error or log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from agiwo.errors import StepError
from agiwo.names import nearest
from agiwo.outbound.guard import Guard

T = TypeVar("T")
Close = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """One connection as configured.

    `kind` is `postgres`, `sqlite`, `smtp`, `http` or `folder`; `url` may hold a password and is never shown. `options` by kind: `pool_size`
    (postgres, connections of one process, default 5); `sender`, `domain`, `timeout` (seconds), `max_bytes`, `reconcile_url` (smtp);
    `headers`, `auth`, `ca_file` (http); `writable`, `max_bytes` (folder). `tenants` and `tools` are who may use it; None is everybody.
    """

    name: str
    kind: str
    url: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    tenants: frozenset[str] | None = None
    tools: frozenset[str] | None = None

    def barred(self, tenant: str, tool: str) -> str | None:
        """Why a tool may not use it for a tenant; None if it may."""
        if self.tenants is not None and tenant not in self.tenants:
            return f"the connection {self.name!r} is not for the tenant {tenant!r}"
        if self.tools is not None and tool not in self.tools:
            return f"the connection {self.name!r} is not for the tool {tool!r}"
        return None


class Connections:
    """The connections by name, and what is open to them: one pool for each name and event loop, opened at first use.

    `guard` says what calls to addresses without a connection may reach.
    """

    def __init__(self, specs: Iterable[ConnectionSpec] = (), guard: Guard | None = None) -> None:
        self.guard = guard or Guard()
        self._specs = {spec.name: spec for spec in specs}
        self._whose: tuple[str, str] | None = None
        self._open: dict[tuple[str, str, int], tuple[Any, Close, asyncio.AbstractEventLoop]] = {}

    def seen_by(self, tenant: str, tool: str) -> Connections:
        """The same connections, and the same pools, as one tool may use them for one tenant."""
        seen = Connections(guard=self.guard)
        seen._specs, seen._open, seen._whose = self._specs, self._open, (tenant, tool)
        return seen

    def barred(self, tenant: str, tool: str, name: str) -> str | None:
        """Why a tool may not use the connection `name` for a tenant; None if it may, or if there is none."""
        spec = self._specs.get(name)
        return None if spec is None else spec.barred(tenant, tool)

    def names(self) -> list[str]:
        """Of those that may be used here."""
        return sorted(name for name, spec in self._specs.items() if self._whose is None or spec.barred(*self._whose) is None)

    def get(self, name: str, *kinds: str) -> ConnectionSpec:
        """The connection called `name`.

        Raises StepError: NotFound if there is none, or none of these kinds; PermissionDenied if it is not for whoever asks.
        """
        spec = self._specs.get(name)
        if spec is not None and self._whose is not None and (why := spec.barred(*self._whose)) is not None:
            raise StepError(why, type="PermissionDenied", not_done=True)
        if spec is None:
            near = nearest(name, self.names())
            there = f"there are: {', '.join(names)}" if (names := self.names()) else "none is configured; see docs/configuration.md"
            hint = f"; did you mean {near!r}?" if near is not None else f"; {there}"
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
