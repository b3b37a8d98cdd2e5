"""Which addresses an outbound call may reach: global unicast ones, and what the operator allows by name or network.

The answer is the list of addresses to connect to, never a yes to a name, so that what DNS says later cannot matter. It must not connect.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from agiwo.errors import NetworkError, PermissionDeniedError, ValidationError
from agiwo.values import shown

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

PORTS = {"http": 80, "https": 443}
MAX_URL = 8_000
MAX_ADDRESSES = 8
_LOCAL = ("localhost", "localhost.localdomain", "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback")
_NAME = re.compile(r"(?=.{1,253}$)([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_LIKE_A_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2000-\u200f\u2028-\u202f\u205f-\u2064\u3000\ufeff]")

#: What is not for the world to reach, by the registries of special-purpose addresses; all else of IPv4 is global unicast.
_SPECIAL_4 = [
    (IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"), ("10.0.0.0/8", "private"), ("100.64.0.0/10", "shared"), ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "metadata"), ("169.254.169.254/32", "metadata"), ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"), ("192.0.0.0/24", "reserved"), ("192.0.2.0/24", "documentation"), ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"), ("198.18.0.0/15", "reserved"), ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"), ("224.0.0.0/4", "multicast"), ("255.255.255.255/32", "broadcast"), ("240.0.0.0/4", "reserved"),
    )
]  # fmt: skip
_SPECIAL_6 = [
    (IPv6Network(network), kind)
    for network, kind in (
        ("::/128", "unspecified"), ("::1/128", "loopback"), ("64:ff9b:1::/48", "local NAT64"), ("100::/64", "reserved"),
        ("2001::/32", "Teredo"), ("2001::/23", "reserved"), ("2001:db8::/32", "documentation"), ("3fff::/20", "documentation"),
        ("fd00:ec2::254/128", "metadata"), ("fc00::/7", "private"), ("fe80::/10", "link-local"), ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
]  # fmt: skip
_GLOBAL_6 = IPv6Network("2000::/3")
#: Networks whose addresses stand for an IPv4 address, and by how many bits that is shifted in them.
_WRAPPED = [
    (IPv6Network("::ffff:0:0/96"), "mapped", 0), (IPv6Network("::/96"), "compatible", 0), (IPv6Network("::ffff:0:0:0/96"), "translated", 0),
    (IPv6Network("64:ff9b::/96"), "NAT64", 0), (IPv6Network("2002::/16"), "6to4", 80),
]  # fmt: skip
_ISATAP = (0x00005EFE, 0x02005EFE)


async def resolved(host: str, port: int) -> Sequence[str]:
    """The addresses of a name by the machine's resolver; raises OSError, or UnicodeError for what can be no name."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Guard:
    """What outbound calls may reach.

    `allow` has networks (`10.1.0.0/16`), addresses and names (`crm.internal`), the latter two with a port or without; a name that is
    allowed may have any address. `never` are hosts with their ports that stay refused whatever is allowed: the service's own database.
    Raises ValueError for an entry that is none of these.
    """

    def __init__(self, allow: Iterable[str] = (), *, never: Iterable[tuple[str, int]] = (), resolve: Resolve = resolved) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: set[tuple[str, int | None]] = set()
        self._never = frozenset((_canonical(host), port) for host, port in never)
        self._resolve = resolve
        for entry in allow:
            try:
                self._networks.append(ip_network(entry))
            except ValueError:
                self._names.add(_named(entry))

    def allowing(self, url: str) -> Guard:
        """A guard that lets through the origin of `url` too, which the operator configured; raises StepError if it is no usable URL."""
        parts = self.check_url(url)
        more = Guard(resolve=self._resolve)
        more._networks, more._never = self._networks, self._never
        more._names = {*self._names, (_canonical(parts.hostname or ""), parts.port or PORTS[parts.scheme])}
        return more

    def check_url(self, url: str) -> SplitResult:
        """The parts of a URL whose form is allowed: http or https, no credentials. The address is looked at when it is connected to.

        Raises PermissionDeniedError for what is refused, ValidationError for what is no URL; neither repeats the URL: it may hold a secret.
        """
        if len(url) > MAX_URL:
            raise ValidationError(f"the URL has {len(url)} characters, allowed are {MAX_URL}", not_done=True)
        if odd := _NEVER_IN_A_URL.search(url):
            raise ValidationError(f"the URL holds {shown(odd[0])}, which has to be percent-encoded", not_done=True)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValidationError("this is no valid URL: its host or port is wrong", not_done=True) from None
        if parts.scheme not in PORTS:
            found = shown(parts.scheme[:40]) if "://" in url or parts.scheme else "none"
            raise _refused(f"only http and https are allowed, the scheme is {found}")
        if "@" in parts.netloc:
            raise _refused("credentials in a URL are not allowed: use a connection")
        if not parts.hostname or port == 0:
            raise ValidationError("the URL has no host" if port != 0 else "port 0 cannot be connected to", not_done=True)
        return parts

    async def addresses(self, host: str, port: int) -> list[str]:
        """The addresses that stand for the host now, each of them allowed: connect to one of these and to nothing else.

        Raises PermissionDeniedError if one of them is refused, NetworkError if there is none, ValidationError if this is no host.
        """
        found = await self._reachable(_canonical(host), port)
        for own in [own for own, at in self._never if at == port]:
            if own == _canonical(host) or not _plain(found).isdisjoint(_plain(await self._own(own, port))):
                raise _refused(f"{shown(host)}, port {port}, is a part of this service itself")
        return found

    async def _own(self, host: str, port: int) -> Sequence[str]:
        if _address(host) is not None:
            return [host]
        try:
            return await self._resolve(host, port)
        except (OSError, UnicodeError):
            return ()

    async def _reachable(self, name: str, port: int) -> list[str]:
        named = not self._names.isdisjoint({(name, None), (name, port)})
        literal = _literal(name)
        if literal is not None:
            return [str(literal)] if named else [self._checked(literal, name)]
        if not named and (name in _LOCAL or name.endswith((".localhost", ".localdomain"))):
            self._checked(IPv4Address("127.0.0.1"), name)
        try:
            found = list(dict.fromkeys(await self._resolve(name, port)))
        except UnicodeError:
            raise ValidationError(f"{shown(name[:100])} is no valid host name", not_done=True) from None
        except OSError as exc:
            raise NetworkError(f"the name {shown(name)} cannot be resolved ({exc.strerror or type(exc).__name__})", not_done=True) from None
        if not found:
            raise NetworkError(f"the name {shown(name)} has no address", not_done=True)
        if named:
            return found[:MAX_ADDRESSES]
        return [self._checked(_address(text), name) for text in found][:MAX_ADDRESSES]

    def _checked(self, address: Address | None, name: str) -> str:
        if address is None:
            raise _refused(f"{shown(name)} has an address that belongs to one link only")
        plain = address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
        if any(plain in network for network in self._networks if network.version == plain.version):
            return str(address)
        kind = special(address)
        if kind is not None:
            told = f"{address} is {kind}" if name == str(address) else f"{shown(name)} leads to {address}, which is {kind}"
            raise _refused(f"{told}; only global addresses and what the operator allows may be called")
        return str(address)


def special(address: Address) -> str | None:
    """What an address is instead of global unicast, wrapped ones by what is in them; None if it is global."""
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _SPECIAL_4 if address in network), None)
    for network6, kind in _SPECIAL_6:
        if address in network6:
            return kind
    value = int(address)
    for wrapping, how, shift in _WRAPPED:
        if address in wrapping:
            inner = special(IPv4Address(value >> shift & 0xFFFFFFFF))
            return None if inner is None else f"{inner} ({how} in IPv6)"
    if value >> 32 & 0xFFFFFFFF in _ISATAP and (inner := special(IPv4Address(value & 0xFFFFFFFF))) is not None:
        return f"{inner} (ISATAP)"
    return None if address in _GLOBAL_6 else "reserved"


def _canonical(host: str) -> str:
    """The host as names and addresses are compared: small letters, no final dot, ASCII, an IPv6 address in its short form."""
    name = host.strip("[]").lower()
    if not name.isascii():
        try:
            name = name.encode("idna").decode().lower()
        except UnicodeError:
            raise ValidationError(f"{shown(host[:100])} is no valid host name", not_done=True) from None
    name = name.removesuffix(".")
    try:
        return str(ip_address(name))
    except ValueError:
        return name


def _literal(name: str) -> Address | None:
    """The address that a host is if it is one; raises PermissionDeniedError for other spellings of one, and for what is no name."""
    if "%" in name and ":" in name:
        raise _refused(f"{shown(name[:100])} is an address with a zone")
    try:
        return ip_address(name)
    except ValueError:
        pass
    if _LIKE_A_NUMBER.fullmatch(name.rpartition(".")[2]):
        raise _refused(f"{shown(name[:100])} is an unusual spelling of an address; write four decimal numbers")
    if not _NAME.fullmatch(name):
        raise ValidationError(f"{shown(name[:100])} is no valid host name", not_done=True)
    return None


def _address(text: str) -> Address | None:
    try:
        return None if "%" in text else ip_address(text)
    except ValueError:
        return None


def _plain(texts: Iterable[str]) -> set[Address | None]:
    """Addresses as they are compared: one that is wrapped in IPv6 is the one that it stands for."""
    found = map(_address, texts)
    return {one.ipv4_mapped or one if isinstance(one, IPv6Address) else one for one in found} - {None}


def _named(entry: str) -> tuple[str, int | None]:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/\s]+)(?::([0-9]{1,5}))?", entry)
    try:
        if found is None or not 0 < int(found[2] or 1) < 65536:
            raise ValueError
        name = _canonical(found[1])
        _literal(name)
    except (ValueError, PermissionDeniedError, ValidationError):
        raise ValueError(f"{shown(entry[:100])} is no network, address or host name, with a port or without") from None
    return name, int(found[2]) if found[2] else None


def _refused(why: str) -> PermissionDeniedError:
    return PermissionDeniedError(f"the call was not made: {why}", not_done=True)
