"""A call that follows redirects: a bounded number, each address checked, and nothing entrusted to one origin carried to another.

It must not follow unless asked to, and never says of a call that began that nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urljoin, urlsplit

from agiwo.errors import StepError
from agiwo.outbound.guard import PORTS
from agiwo.outbound.http import Answer, HttpCalls

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
#: All that another origin gets to see of the headers; any other may be a credential.
_FOR_ALL = ("accept", "accept-language", "user-agent")


@dataclass(frozen=True, slots=True)
class Request:
    """One call as it is to be made; header names in small letters."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


async def call_following(
    calls: HttpCalls, request: Request, *, remaining: Callable[[], float], max_body: int, redirects: int = MAX_REDIRECTS
) -> Answer:
    """The last answer after at most `redirects` redirects; `remaining` gives the seconds that are left for all of it.

    Raises as HttpCalls.call does, and StepError for a redirect too many.
    """
    for hop in range(redirects + 1):
        try:
            answer = await calls.call(
                request.method, request.url, within=remaining(), headers=request.headers, body=request.body, max_body=max_body
            )
        except StepError as exc:
            exc.not_done = exc.not_done and hop == 0  # what was asked of the first address may be done
            raise
        location = answer.headers.get("location")
        if not redirects or answer.status not in _REDIRECTS or location is None:
            return answer
        request = _next(request, answer.status, location)
    raise StepError(f"the answer was a redirect for the {redirects + 1}th time, followed are {redirects}", status=answer.status)


def _next(request: Request, status: int, location: str) -> Request:
    try:
        url = urljoin(request.url, location).partition("#")[0]
        same = _origin(url) == _origin(request.url)
    except ValueError:
        raise StepError("the answer redirects to what is no valid URL", status=status) from None
    to_get = (status == 303 and request.method != "HEAD") or (status in (301, 302) and request.method == "POST")
    if to_get:
        headers = {name: value for name, value in request.headers.items() if not name.startswith("content-")}
        request = replace(request, method="GET", headers=headers, body=None)
    if not same:
        headers = {name: value for name, value in request.headers.items() if name in _FOR_ALL}
        request = replace(request, headers=headers, body=None)
    return replace(request, url=url)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or PORTS.get(parts.scheme)
