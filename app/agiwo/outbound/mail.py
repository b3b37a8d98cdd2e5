"""Sending mail, for the mail tool and for notices alike: one message over one connection, with an error that says what is certain.

An error marked `not_done` proves that the server did not take the message; once the message was on its way and no answer came, nothing is
proved and the error says so by not being marked. It must not try again by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP as MAIL_POLICY
from email.utils import formatdate
from urllib.parse import quote, unquote, urlsplit

import aiosmtplib

from agiwo.errors import NetworkError, StepError, ValidationError, ValueRefused
from agiwo.outbound.connections import Close, Connections, ConnectionSpec
from agiwo.outbound.http import HttpCalls
from agiwo.values import shown

DEFAULT_SENDER = "agiwo@localhost"
DEFAULT_TIMEOUT = 30.0
MAX_BYTES = 10_000_000
MAX_RECIPIENTS = 100
MAX_SUBJECT = 500
_POLICY = MAIL_POLICY.clone(cte_type="7bit")
_LINE_END = re.compile(r"[\r\n\x00\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Mail:
    """One message; `message_id` with its angle brackets, the same whenever the same message is sent again.

    `trace_id` goes along as the header Agiwo-Trace-Id, so that a mail leads back to the instance that sent it.
    """

    to: tuple[str, ...]
    subject: str
    text: str
    message_id: str
    html: str | None = None
    cc: tuple[str, ...] = ()
    reply_to: str | None = None
    trace_id: str | None = None


def message_id(spec: ConnectionSpec, key: str) -> str:
    """The Message-ID that stands for an idempotency key on this connection."""
    domain = spec.options.get("domain") or _sender(spec).rpartition("@")[2].strip("> ") or "localhost"
    return f"<{key}@{domain}>"


def addresses(texts: Sequence[str], what: str) -> dict[str, str]:
    """From the plain address to the text that a header shows, for `a@b` and `Name <a@b>`.

    Raises ValidationError naming `what` for anything else, line ends above all.
    """
    out: dict[str, str] = {}
    for text in texts:
        if _LINE_END.search(text):
            raise ValidationError(f"{what}: {shown(text)} holds a line end", not_done=True)
        header = _POLICY.header_factory(what, text)
        if header.defects or len(header.addresses) != 1 or not header.addresses[0].username or not header.addresses[0].domain:
            raise ValidationError(f"{what}: {shown(text)} is no mail address; expected name@domain or Name <name@domain>", not_done=True)
        address = header.addresses[0]
        if not address.username.isascii():
            raise ValidationError(f"{what}: {shown(text)}: only ASCII is taken before the @", not_done=True)
        try:
            plain = f"{address.username}@{address.domain.encode('idna').decode()}"
        except UnicodeError:
            raise ValidationError(f"{what}: {shown(text)}: the domain is not valid", not_done=True) from None
        out[plain] = f"{address.display_name} <{plain}>" if address.display_name and address.display_name.isascii() is False else text
    return out


def compose(spec: ConnectionSpec, mail: Mail, at: float) -> tuple[bytes, str, list[str]]:
    """The message as sent, its envelope sender and recipients; `at` is the time for its Date in seconds since 1970.

    Raises ValidationError for what cannot be a message.
    """
    to, cc = addresses(mail.to, "To"), addresses(mail.cc, "Cc")
    recipients = list(dict.fromkeys([*to, *cc]))
    if not to or len(recipients) > MAX_RECIPIENTS:
        raise ValidationError(f"expected 1 to {MAX_RECIPIENTS} recipients, found {len(recipients)}", not_done=True)
    if _LINE_END.search(mail.subject) or len(mail.subject) > MAX_SUBJECT:
        raise ValidationError(f"the subject has to be one line of at most {MAX_SUBJECT} characters", not_done=True)
    sender = addresses([_sender(spec)], "From")
    message = EmailMessage(policy=_POLICY)
    message["Message-ID"] = mail.message_id
    message["Date"] = formatdate(at)
    message["From"] = next(iter(sender.values()))
    message["To"] = ", ".join(to.values())
    if cc:
        message["Cc"] = ", ".join(cc.values())
    if mail.reply_to is not None:
        message["Reply-To"] = next(iter(addresses([mail.reply_to], "Reply-To").values()))
    message["Subject"] = mail.subject
    message["Auto-Submitted"] = "auto-generated"
    if mail.trace_id:
        message["Agiwo-Trace-Id"] = mail.trace_id
    message.set_content(mail.text)
    if mail.html is not None:
        message.add_alternative(mail.html, subtype="html")
    raw = message.as_bytes()
    most = int(spec.options.get("max_bytes", MAX_BYTES))
    if len(raw) > most:
        raise StepError(f"the message has {len(raw)} bytes, allowed are {most}", type="PayloadTooLarge", not_done=True)
    return raw, next(iter(sender)), recipients


async def send_mail(spec: ConnectionSpec, mail: Mail, at: float, within: float | None = None) -> list[str]:
    """Send it and give the addresses that it was accepted for: all of them or, with an error, none.

    `within` bounds each exchange with the server in seconds. Raises StepError (see above on `not_done`).
    """
    raw, sender, recipients = compose(spec, mail, at)
    client = _client(spec, within)
    try:
        await _announce(client, sender, recipients, len(raw))
        await _hand_over(client, raw)
        await _leave(client)
    finally:
        client.close()
    return recipients


async def was_accepted(spec: ConnectionSpec, connections: Connections, wanted: str, within: float, traceparent: str | None = None) -> str:
    """What the mail server's side says of a Message-ID: `done`, `not_done`, `running` or `unavailable`.

    Asks the connection's `reconcile_url` (`{message_id}` in it is replaced, else it is appended): 200 with `accepted: true` is done, 404 is
    not done, 202 is still running, all else is unavailable.
    """
    url = spec.options.get("reconcile_url")
    if not url:
        return "unavailable"
    named = quote(wanted, safe="")
    url = url.replace("{message_id}", named) if "{message_id}" in url else f"{url.rstrip('/')}/{named}"
    calls = connections.pool(spec, _open_http)
    try:
        answer = await calls.call("GET", url, within=within, traceparent=traceparent, max_body=100_000)
        if answer.status == 200:
            body = answer.json()
            return "done" if isinstance(body, dict) and body.get("accepted") is True else "unavailable"
    except (StepError, ValueRefused):
        return "unavailable"
    return {404: "not_done", 202: "running"}.get(answer.status, "unavailable")


def _open_http(spec: ConnectionSpec) -> tuple[HttpCalls, Close]:
    calls = HttpCalls()
    return calls, calls.close


def _sender(spec: ConnectionSpec) -> str:
    return str(spec.options.get("sender") or DEFAULT_SENDER)


def _client(spec: ConnectionSpec, within: float | None) -> aiosmtplib.SMTP:
    at = urlsplit(spec.url)
    if at.scheme not in ("smtp", "smtps") or not at.hostname:
        raise ValidationError(f"the connection {spec.name!r} has no address of the form smtp://host:port", not_done=True)
    most = float(spec.options.get("timeout", DEFAULT_TIMEOUT))
    return aiosmtplib.SMTP(
        hostname=at.hostname,
        port=at.port,
        username=unquote(at.username) if at.username else None,
        password=unquote(at.password) if at.password else None,
        use_tls=at.scheme == "smtps",
        start_tls=spec.options.get("starttls"),
        timeout=most if within is None else max(0.001, min(most, within)),
    )


async def _announce(client: aiosmtplib.SMTP, sender: str, recipients: Sequence[str], size: int) -> None:
    """All up to the message itself; whatever fails here, nothing was sent."""
    try:
        await client.connect()
        await client.mail(sender, options=[f"size={size}"] if client.supports_extension("size") else [])
        for recipient in recipients:
            await client.rcpt(recipient)
    except aiosmtplib.SMTPResponseException as exc:
        raise _refusal(exc) from None
    except aiosmtplib.SMTPTimeoutError:
        raise NetworkError("the mail server did not answer in time; nothing was sent", not_done=True) from None
    except (aiosmtplib.SMTPException, OSError) as exc:
        raise NetworkError(f"the mail server could not be reached ({type(exc).__name__}); nothing was sent", not_done=True) from None


async def _hand_over(client: aiosmtplib.SMTP, raw: bytes) -> None:
    try:
        await client.data(raw)
    except aiosmtplib.SMTPResponseException as exc:
        raise _refusal(exc) from None
    except aiosmtplib.SMTPTimeoutError:
        raise StepError("the mail server took the message and did not say in time what it did with it", type="Timeout") from None
    except (aiosmtplib.SMTPException, OSError) as exc:
        raise NetworkError(f"the connection broke while the message was handed over ({type(exc).__name__})") from None


async def _leave(client: aiosmtplib.SMTP) -> None:
    """Say goodbye; the message is accepted already, so nothing that goes wrong here matters."""
    try:
        await client.quit(timeout=2.0)
    except (aiosmtplib.SMTPException, OSError):
        return


def _refusal(exc: aiosmtplib.SMTPResponseException) -> StepError:
    # A server that answers with 4xx or 5xx has not taken the message, at whatever point it says so (RFC 5321, 4.2.1).
    said = f"the mail server refused with {exc.code}: {exc.message[:200]}"
    if exc.code in (530, 534, 535, 538):
        return StepError(said, type="PermissionDenied", status=exc.code, not_done=True)
    named = "Unavailable" if 400 <= exc.code < 500 else "ToolError"
    return StepError(said, type=named, status=exc.code, not_done=True)
