"""The approval page: shows a matter to one person and takes that person's decision, with no script and nothing from elsewhere.

Opening it never decides. It knows the services and nothing of how anything is stored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse, RedirectResponse, Response

from agiwo.console.form import fields, values
from agiwo.console.texts import Texts, texts_for
from agiwo.definition.compiled import Kind
from agiwo.definition.contract import Effect
from agiwo.errors import AgiwoError, Changed, Conflict, Denied, Gone, InvalidInput, NotFound, ServiceError, TooLarge, ValueRefused
from agiwo.ports.queries import Approval
from agiwo.ports.store import StoreUnavailable
from agiwo.service.approvals import Consequence, Verdict
from agiwo.service.callers import APPROVER, Caller
from agiwo.service.services import Services
from agiwo.service.tokens import Link
from agiwo.service.view import decision_view, time_text
from agiwo.values import decode_strict, encode

_HERE = Path(__file__).parent
_FORM = "application/x-www-form-urlencoded"
#: What the page may load and where its form may go; nothing else, and no frame around it.
SECURITY = {
    "content-security-policy": "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex",
}


def approval_page(services: Services) -> APIRouter:
    """The routes of the page and its style sheet."""
    page = _Page(services)
    routes = APIRouter()
    routes.add_api_route("/approve/{token}", page.show, methods=["GET", "HEAD"], response_class=HTMLResponse)
    routes.add_api_route("/approve/{token}", page.decide, methods=["POST"], response_class=HTMLResponse)
    routes.add_api_route("/console/static/approval.css", _style_sheet, methods=["GET", "HEAD"])
    return routes


_STYLE = (_HERE / "static" / "approval.css").read_bytes()


async def _style_sheet() -> Response:
    headers = {"cache-control": "public, max-age=3600", "x-content-type-options": "nosniff"}
    return Response(_STYLE, media_type="text/css", headers=headers)


#: The line under the head of a text table, as the filter `table` writes it.
_RULE = re.compile(r"-+(?:  -+)+")


def pieces(text: str) -> list[tuple[str, str]]:
    """A text cut into ("prose", lines) and ("table", lines): a table is a paragraph with a rule of dashes under its first line."""
    out: list[tuple[str, str]] = []
    for paragraph in re.split(r"(\n(?:[ \t]*\n)+)", text):
        _, _, below = paragraph.strip("\n").partition("\n")
        if _RULE.fullmatch(below.partition("\n")[0].rstrip()):
            out.append(("table", paragraph.strip("\n")))
        elif out and out[-1][0] == "prose":
            out[-1] = ("prose", out[-1][1] + paragraph)
        else:
            out.append(("prose", paragraph))
    if len(out) == 1:
        return out
    # Between a table and prose the page makes the space.
    return [(kind, part.strip("\n")) for kind, part in out if part.strip("\n")]


#: Marks that turn the order in which a line is read: a figure could stand in another's column.
_TURNS = re.compile("[\u202a-\u202e\u2066-\u2069]")


def marked(text: str) -> str:
    """A text to be read, never to be edited: marks of direction are shown as what they are (`\\u202e`) and turn nothing."""
    return _TURNS.sub(lambda mark: f"\\u{ord(mark.group()):04x}", text)


def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    made.filters["json"] = encode
    made.filters["pieces"] = pieces
    made.filters["marked"] = marked
    made.filters["moment"] = lambda text: f"{text[:10]} {text[11:16]} UTC"
    return made


class _Page:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._template = _environment().get_template("approval.html")

    async def show(self, request: Request, token: str) -> Response:
        """The matter, or what was decided. Never changes anything."""
        texts = texts_for(request.headers.get("accept-language", ""))
        try:
            link = self._link(token)
            approval = await self._approval(link)
            return await self._shown(texts, link, approval)
        except (ServiceError, StoreUnavailable) as exc:
            return self._sorry(texts, exc)

    async def decide(self, request: Request, token: str) -> Response:
        """Take the decision of the form, then show what was decided; or the form again with what is wrong."""
        texts = texts_for(request.headers.get("accept-language", ""))
        try:
            link = self._link(token)
            approval = await self._approval(link)
            typed = await _typed(request)
        except (ServiceError, StoreUnavailable) as exc:
            return self._sorry(texts, exc)
        problems: dict[str, str] = {}
        try:
            if typed.get("action") not in ("approve", "reject"):
                raise InvalidInput("the form says neither approve nor reject")
            verdict, problems = _verdict(approval, typed, texts)
            if problems and approval.state == "pending":
                raise InvalidInput("the form cannot be read")
            # A link is made for those who are asked: where nobody is named it is the right to decide.
            caller = Caller(link.tenant, link.principal, frozenset({link.role or APPROVER}))
            await self._services.approvals.decide(caller, link.approval, verdict, "link")
        except (ServiceError, StoreUnavailable) as exc:
            return await self._refused(texts, link, exc, typed, problems)
        # See other: whoever loads the page again sends no second decision.
        return RedirectResponse(token, 303, SECURITY)

    def _link(self, token: str) -> Link:
        return self._services.links.read(token, self._services.clock.now())

    async def _approval(self, link: Link) -> Approval:
        approval = await self._services.approvals.find(link.tenant, link.approval)
        over = approval.state == "pending" and self._services.clock.now() >= approval.expires_at
        if over or approval.state in ("expired", "cancelled", "void"):
            raise Gone("the approval is over", code="approval_over")
        return approval

    async def _refused(self, texts: Texts, link: Link, error: Exception, typed: Mapping[str, str], problems: dict[str, str]) -> Response:
        if isinstance(error, InvalidInput | Changed | Conflict | Denied):
            try:
                approval = await self._approval(link)
                if isinstance(error, InvalidInput):
                    problems |= _by_field(error)
                elif isinstance(error, Changed):
                    typed = {"comment": typed.get("comment", "")}
                status, notice = _worded(error, texts)
                return await self._shown(texts, link, approval, status=status, notice=notice, typed=typed, problems=problems)
            except (ServiceError, StoreUnavailable) as exc:
                error = exc
        return self._sorry(texts, error)

    def _sorry(self, texts: Texts, error: Exception) -> Response:
        status, notice = _worded(error, texts)
        return HTMLResponse(self._template.render(t=texts, approval=None, notice=notice), status, SECURITY)

    async def _shown(
        self,
        texts: Texts,
        link: Link,
        approval: Approval,
        *,
        status: int = 200,
        notice: str | None = None,
        typed: Mapping[str, str] | None = None,
        problems: Mapping[str, str] | None = None,
    ) -> Response:
        typed, problems = typed or {}, problems or {}
        body = approval.body
        matter = body.get("matter")
        consequence = await self._services.approvals.consequence(link.tenant, approval)
        html = self._template.render(
            t=texts,
            notice=notice,
            approval=approval,
            principal=link.principal,
            asked_at=time_text(approval.asked_at),
            expires_at=time_text(approval.expires_at),
            decision=decision_view(approval),
            show=body.get("show"),
            matter=matter,
            matter_heading=texts["matter_before" if body.get("at") == "before" else "matter_after"],
            matter_is_text=isinstance(matter, str),
            editable=bool(body.get("editable")),
            output=typed.get("output", _as_text(matter)),
            output_problem=problems.get("output"),
            digest=approval.digest,
            form=fields(body.get("fields"), typed, problems),
            comment=typed.get("comment", ""),
            if_approved=_if_approved(consequence, body, texts),
            if_rejected=texts["reject_call" if consequence.tool is not None else "reject_other"],
        )
        return HTMLResponse(html, status, SECURITY)


def _as_text(matter: Any) -> str:
    return matter if isinstance(matter, str) else encode(matter)


def _if_approved(consequence: Consequence, body: Mapping[str, Any], texts: Texts) -> str:
    if consequence.tool is not None:
        said = texts["approve_before"].format_map({"tool": consequence.tool})
        return f"{said} {texts['approve_irreversible']}" if consequence.effect in (Effect.WRITE, Effect.IRREVERSIBLE) else said
    return texts["approve_gate" if consequence.kind is Kind.APPROVAL or body.get("matter") is None else "approve_after"]


async def _typed(request: Request) -> dict[str, str]:
    """The fields of the form. Raises InvalidInput for anything else than one small urlencoded form, TooLarge for a large one."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise InvalidInput("the page's form is sent urlencoded", code="unsupported_media_type")
    async with request.form(max_files=0, max_fields=500) as form:
        out: dict[str, str] = {}
        for key, value in form.multi_items():
            if not isinstance(value, str) or key in out:
                raise InvalidInput(f"the field {key[:80]!r} is given twice or is no text", code="malformed")
            # Browsers send a line end as two characters whatever was shown.
            out[key] = value.replace("\r\n", "\n")
    return out


def _verdict(approval: Approval, typed: Mapping[str, str], texts: Texts) -> tuple[Verdict, dict[str, str]]:
    action = typed["action"]
    comment = typed.get("comment", "").strip() or None
    if action != "approve":
        return Verdict(action, comment, digest=typed.get("digest")), {}
    schema = approval.body.get("fields")
    given, problems = values(schema, typed, texts)
    edited: tuple[Any] | None = None
    try:
        edited = _edited(approval, typed.get("output"))
    except ValueRefused:
        problems["output"] = texts["not_json"]
    return Verdict(action, comment, given if schema is not None else None, edited, typed.get("digest")), problems


def _edited(approval: Approval, output: str | None) -> tuple[Any] | None:
    """The changed output; None if nothing was changed. Raises ValueRefused for what is no JSON where JSON was shown."""
    matter = approval.body.get("matter")
    if output is None or not approval.body.get("editable") or output == _as_text(matter).replace("\r\n", "\n"):
        return None
    return (output,) if isinstance(matter, str) else (decode_strict(output.encode("utf-8", "surrogatepass")),)


def _by_field(error: ServiceError) -> dict[str, str]:
    """What is wrong, by field of the form."""
    out: dict[str, str] = {}
    for problem in error.problems:
        parts = problem.pointer.split("/")
        name = "output" if parts[1:2] == ["output"] else parts[2].replace("~1", "/").replace("~0", "~") if len(parts) > 2 else ""
        out.setdefault(name, problem.message)
    return out


_WORDS: Mapping[type[AgiwoError], tuple[int, str]] = {
    InvalidInput: (422, "invalid"),
    Changed: (412, "changed"),
    Conflict: (409, "already"),
    Denied: (403, "denied"),
    NotFound: (404, "unknown_link"),
    Gone: (410, "approval_over"),
    TooLarge: (413, "other_error"),
}

_BY_CODE = {"unsupported_media_type": 415, "malformed": 400}


def _worded(error: Exception, texts: Texts) -> tuple[int, str]:
    if isinstance(error, StoreUnavailable):
        return 503, texts["unavailable"]
    if isinstance(error, AgiwoError):
        if error.code == "link_expired":
            return 410, texts["link_expired"]
        if error.code in _BY_CODE:
            return _BY_CODE[error.code], texts["other_error"]
        for kind, (status, name) in _WORDS.items():
            if isinstance(error, kind):
                return status, texts[name]
    return 400, texts["other_error"]
