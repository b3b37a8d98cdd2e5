"""The address guard against a table of tricks; names are resolved by a stub at the resolver's place."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiwo.errors import NetworkError, PermissionDeniedError, StepError, ValidationError
from agiwo.outbound.guard import Guard, special

PUBLIC, OTHER = "93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946"
NAMES: dict[str, list[str]] = {
    "public.example": [PUBLIC, OTHER],
    "inside.example": ["10.1.2.3"],
    "half.example": [PUBLIC, "127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "mapped.example": ["::ffff:192.168.0.1"],
    "link.example": ["fe80::1%eth0"],
    "empty.example": [],
    "xn--bcher-kva.example": [PUBLIC],
    "127.0.0.1.nip.io": ["127.0.0.1"],
}


class Names:
    """A resolver that knows NAMES and counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return NAMES[host]


REFUSED_HOSTS = [
    "0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "169.254.169.254", "168.63.129.16",
    "172.31.0.1",
    "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.9", "224.0.0.1", "240.0.0.1",
    "255.255.255.255", "::", "::1", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1",
    "::ffff:127.0.0.1", "::ffff:7f00:1", "::127.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::8.8.8.8",
    "2002:7f00:1::1", "2002:c0a8:101::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2a00:1450::5efe:10.0.0.1",
    "2a00:1450::200:5efe:127.0.0.1",
    "4000::1", "5f00::1", "fe80::1%eth0", "fe80::1%25eth0",
    "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "1.2.3", "1.2.3.4.5", "256.256.256.256",
    "010.0.0.1", "127.0.0.1.", "0x7f.1.", "0", "0x",
    "localhost", "LOCALHOST", "localhost.", "localhost.localdomain", "localhost6", "foo.localhost", "foo.localhost.", "a.localdomain",
    "inside.example", "half.example", "metadata.google.internal", "mapped.example", "link.example", "127.0.0.1.nip.io", "INSIDE.example.",
]  # fmt: skip


@pytest.mark.parametrize("host", REFUSED_HOSTS)
async def test_host_that_is_not_for_the_world_is_refused(host: str) -> None:
    with pytest.raises(PermissionDeniedError) as caught:
        await Guard(resolve=Names()).addresses(host, 80)
    assert caught.value.not_done and caught.value.type == "PermissionDenied"
    assert "the call was not made" in caught.value.message


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        (PUBLIC, [PUBLIC]),
        (f"{PUBLIC}.", [PUBLIC]),
        (OTHER.upper(), [OTHER]),
        ("public.example", [PUBLIC, OTHER]),
        ("PUBLIC.example.", [PUBLIC, OTHER]),
        ("bücher.example", [PUBLIC]),
        ("64:ff9b::8.8.8.8", ["64:ff9b::808:808"]),
    ],
)
async def test_host_of_the_world_gives_the_addresses_to_connect_to(host: str, addresses: list[str]) -> None:
    assert await Guard(resolve=Names()).addresses(host, 443) == addresses


@pytest.mark.parametrize("host", ["localhost", "foo.localhost", "2130706433", "127.0.0.1", "::1", "0177.0.0.1"])
async def test_no_resolver_is_asked_about_what_is_refused_by_its_spelling(host: str) -> None:
    names = Names()
    with pytest.raises(PermissionDeniedError):
        await Guard(resolve=names).addresses(host, 80)
    assert names.asked == []


@pytest.mark.parametrize(
    ("allow", "host", "port", "let"),
    [
        (["10.1.0.0/16"], "inside.example", 80, True),
        (["10.2.0.0/16"], "inside.example", 80, False),
        (["10.1.2.3"], "inside.example", 80, True),
        (["10.1.2.3:8080"], "10.1.2.3", 8080, True),
        (["10.1.2.3:8080"], "10.1.2.3", 80, False),
        (["inside.example"], "Inside.Example.", 1, True),
        (["inside.example:8080"], "inside.example", 8080, True),
        (["inside.example:8080"], "inside.example", 5432, False),
        (["example"], "inside.example", 80, False),
        (["127.0.0.0/8"], "half.example", 80, True),
        (["192.168.0.0/24"], "mapped.example", 80, True),
        (["[::1]:9000"], "::1", 9000, True),
        (["::1"], "0:0:0:0:0:0:0:1", 9000, True),
        (["::/0"], "127.0.0.1", 80, False),
        (["127.0.0.0/8"], "2130706433", 80, False),
        (["127.0.0.0/8"], "::ffff:127.0.0.1", 80, True),
    ],
)
async def test_operator_allows_by_network_address_or_name(allow: list[str], host: str, port: int, let: bool) -> None:
    guard = Guard(allow, resolve=Names())
    if let:
        assert await guard.addresses(host, port)
    else:
        with pytest.raises(PermissionDeniedError):
            await guard.addresses(host, port)


async def test_connection_allows_its_own_origin_and_no_other_port() -> None:
    guard = Guard(resolve=Names())
    own = guard.allowing("http://inside.example:8080/api")
    assert await own.addresses("inside.example", 8080) == ["10.1.2.3"]
    for asked in (own.addresses("inside.example", 5432), own.addresses("127.0.0.1", 8080), guard.addresses("inside.example", 8080)):
        with pytest.raises(PermissionDeniedError):
            await asked


@pytest.mark.parametrize("host", ["nowhere.example", "empty.example"])
async def test_name_without_address_is_a_network_error_and_nothing_was_done(host: str) -> None:
    with pytest.raises(NetworkError) as caught:
        await Guard(resolve=Names()).addresses(host, 80)
    assert caught.value.not_done


@pytest.mark.parametrize("host", ["", ".", "a..b", "-a.example", "a" * 64 + ".example", "a b", "ex%41mple", "bü" + "c" * 70])
async def test_what_is_no_host_name_is_refused_as_such(host: str) -> None:
    with pytest.raises(ValidationError):
        await Guard(resolve=Names()).addresses(host, 80)


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("file:///etc/passwd", PermissionDeniedError),
        ("gopher://h/", PermissionDeniedError),
        ("ftp://h/", PermissionDeniedError),
        ("javascript:alert(1)", PermissionDeniedError),
        ("//h/x", PermissionDeniedError),
        ("h/x", PermissionDeniedError),
        ("unix:///run/x.sock", PermissionDeniedError),
        ("http://user:hush@h/", PermissionDeniedError),
        ("http://hush@h/", PermissionDeniedError),
        ("http://@h/", PermissionDeniedError),
        ("http://public.example#@127.0.0.1/", None),
        ("http://public.example/?u=a@b", None),
        ("http://h:0/", ValidationError),
        ("http://h:99999/", ValidationError),
        ("http://h:x/", ValidationError),
        ("http://", ValidationError),
        ("http:///x", ValidationError),
        ("http://[::1/", ValidationError),
        ("http://a\\@b/", ValidationError),
        ("http://h/\r\nX: y", ValidationError),
        (" http://h/", ValidationError),
        ("http://h/\u2028", ValidationError),
        ("http://h/" + "a" * 8000, ValidationError),
        ("HTTP://h/", None),
        ("https://[2606:2800::1]:8443/x?y", None),
    ],
)
def test_form_of_a_url_is_checked_and_never_repeated(url: str, error: type[StepError] | None) -> None:
    if error is None:
        Guard().check_url(url)
        return
    with pytest.raises(error) as caught:
        Guard().check_url(url)
    assert caught.value.not_done and "hush" not in caught.value.message


@pytest.mark.parametrize("entry", ["", "10.0.0.1/8", "http://h", "h/x", "h:0", "h:70000", "0x7f.1", "a b", "*.example"])
def test_entry_that_allows_nothing_sensible_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="no network, address or host name"):
        Guard([entry])


@given(st.integers(0, 2**32 - 1))
def test_wrapping_makes_no_address_better(value: int) -> None:
    plain = IPv4Address(value)
    kind = special(plain)
    assert (kind is None) == plain.is_global or kind in ("metadata", "multicast", "reserved") or str(plain).startswith("192.0.0.")
    for wrapped in (0xFFFF << 32 | value, 0x64FF9B << 96 | value, 0x2002 << 112 | value << 80, 0x2A001450 << 96 | 0x5EFE << 32 | value):
        assert (special(IPv6Address(wrapped)) is None) == (kind is None)
