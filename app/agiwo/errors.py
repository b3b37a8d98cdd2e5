"""The error vocabulary of the product: the tree of step failures, and the exceptions our own code raises.

A step failure is data (`Failure`): its type is a name in `TREE`, so that a route for a parent takes its children.
An exception carries such a type (`StepError`) or says what a caller did wrong (`ServiceError`); no exception knows HTTP.

    Transient     NetworkError  Timeout  RateLimited  Unavailable  NodeLost
    Permanent     ValidationError  PermissionDenied  NotFound  Conflict  ToolError  OutputInvalid  Truncated  Refused
                  ContextTooLong  TemplateError  GuardFailed  NoMatchingCase  LoopLimitExceeded  DepthExceeded
                  BudgetExceeded  PayloadTooLarge  ApprovalRejected  ApprovalTimeout  Cancelled
    CircuitOpen   UnknownOutcome                       (apart: neither transient nor permanent)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TRANSIENT = ("NetworkError", "Timeout", "RateLimited", "Unavailable", "NodeLost")
PERMANENT = (
    "ValidationError", "PermissionDenied", "NotFound", "Conflict", "ToolError", "OutputInvalid", "Truncated", "Refused",
    "ContextTooLong", "TemplateError", "GuardFailed", "NoMatchingCase", "LoopLimitExceeded", "DepthExceeded",
    "BudgetExceeded", "PayloadTooLarge", "ApprovalRejected", "ApprovalTimeout", "Cancelled",
)  # fmt: skip

#: Every built-in failure type with its parent; the roots have none.
TREE: Mapping[str, str | None] = {
    "Transient": None,
    "Permanent": None,
    "CircuitOpen": None,
    "UnknownOutcome": None,
    **dict.fromkeys(TRANSIENT, "Transient"),
    **dict.fromkeys(PERMANENT, "Permanent"),
}

#: The articles' spellings, and the upper-case codes of `ToolExecutionError`.
ALIASES: Mapping[str, str] = {
    "PermissionDeniedError": "PermissionDenied",
    "TimeoutError": "Timeout",
    "NotFoundError": "NotFound",
    "ConflictError": "Conflict",
    "RateLimitError": "RateLimited",
    "ToolExecutionError": "ToolError",
    "NETWORK_ERROR": "NetworkError",
    "VALIDATION_ERROR": "ValidationError",
    "PERMISSION_DENIED": "PermissionDenied",
    "PERMISSION_DENIED_ERROR": "PermissionDenied",
    "TIMEOUT": "Timeout",
    "RATE_LIMITED": "RateLimited",
    "UNAVAILABLE": "Unavailable",
    "NOT_FOUND": "NotFound",
    "CONFLICT": "Conflict",
    "TOOL_ERROR": "ToolError",
}


def canonical_type(name: str) -> str:
    """The tree's spelling of a failure type; a name that it does not know is a tool's own and stays as it is."""
    return ALIASES.get(name, name)


def is_a(name: str, ancestor: str) -> bool:
    """Whether failure type `name` is `ancestor` or below it; a tool's own type counts as below ToolError."""
    here: str | None = canonical_type(name)
    wanted = canonical_type(ancestor)
    while here is not None:
        if here == wanted:
            return True
        here = TREE.get(here, "ToolError")
    return False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt or a step failed; stored in the history and seen by templates as `error`.

    `not_done` marks a failure that proves that nothing happened outside, so that even an unsafe call may be tried again.
    `retry_after` is the least wait in seconds that the other side asked for.
    """

    type: str
    message: str
    step: str | None = None
    path: str | None = None
    status: int | None = None
    details: Any = None
    not_done: bool = False
    retry_after: float | None = None
    cause: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"type": self.type, "message": self.message}
        for name in ("step", "path", "status", "details", "retry_after"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        if self.not_done:
            out["not_done"] = True
        if self.cause is not None:
            out["cause"] = dict(self.cause)
        return out

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Failure:
        return Failure(
            type=data["type"],
            message=data["message"],
            step=data.get("step"),
            path=data.get("path"),
            status=data.get("status"),
            details=data.get("details"),
            not_done=bool(data.get("not_done", False)),
            retry_after=data.get("retry_after"),
            cause=data.get("cause"),
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a document that somebody sent: where, what stood there, what belongs there.

    `pointer` is a JSON Pointer into the document; `line` and `column` count from 1 and are None where the document has no text.
    `via` names the offending path through the graph (a, b, c) where there is one.
    """

    code: str
    message: str
    pointer: str = ""
    line: int | None = None
    column: int | None = None
    found: str | None = None
    expected: str | None = None
    nearest: str | None = None
    severity: str = "error"
    via: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {"code": self.code, "severity": self.severity, "message": self.message, "pointer": self.pointer}
        for name in ("line", "column", "found", "expected", "nearest"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        if self.via:
            out["via"] = list(self.via)
        return out


class AgiwoError(Exception):
    """Anything that this package raises on purpose."""

    code = "error"

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message or (self.__doc__ or "").strip().splitlines()[0])
        self.details = details

    @property
    def message(self) -> str:
        return str(self)


def words_of(error: BaseException) -> str:
    """What an exception says of itself; empty for one that fails even at that."""
    try:
        return str(error)
    except Exception:
        return ""


class StepError(AgiwoError):
    """A step's attempt failed in a way that its workflow may react to.

    Raises nothing itself; `type` is a name of `TREE` or a tool's own name (then below ToolError).
    """

    code = "step_error"
    type = "ToolError"

    def __init__(
        self,
        message: str = "",
        *,
        type: str | None = None,
        error_code: str | None = None,
        status: int | None = None,
        not_done: bool = False,
        retry_after: float | None = None,
        details: Any = None,
    ) -> None:
        super().__init__(message)
        self.type = canonical_type(type or error_code or self.type)
        self.status = status
        self.not_done = not_done
        self.retry_after = retry_after
        self.data = details

    def failure(self) -> Failure:
        return Failure(self.type, self.message, status=self.status, details=self.data, not_done=self.not_done, retry_after=self.retry_after)


class ToolExecutionError(StepError):
    """The tool could not do its work."""


class NetworkError(StepError):
    """The other side could not be reached."""

    type = "NetworkError"


class ValidationError(StepError):
    """A value does not fit what was declared."""

    type = "ValidationError"


class PermissionDeniedError(StepError):
    """The other side, or our own policy, refused."""

    type = "PermissionDenied"


class TemplateError(StepError):
    """A template cannot be rendered."""

    type = "TemplateError"


class ValueRefused(AgiwoError):
    """A value cannot be kept: JSON or Postgres has no place for it."""

    code = "value_refused"

    def __init__(self, message: str, pointer: str = "") -> None:
        super().__init__(message)
        self.pointer = pointer


class ServiceError(AgiwoError):
    """A call was refused; the subclass says in which way, `problems` where and why."""

    code = "refused"

    def __init__(self, message: str = "", *, code: str | None = None, problems: Sequence[Problem] = (), **details: Any) -> None:
        super().__init__(message, **details)
        if code is not None:
            self.code = code
        self.problems = tuple(problems)


class InvalidInput(ServiceError):
    """What was sent does not fit."""

    code = "invalid_input"


class NotFound(ServiceError):
    """There is no such thing, or it is not yours."""

    code = "not_found"


class Conflict(ServiceError):
    """The present state does not allow this."""

    code = "conflict"


class Gone(ServiceError):
    """It was there once and is over."""

    code = "gone"


class Changed(ServiceError):
    """The matter is no longer what the caller saw."""

    code = "changed"


class TooLarge(ServiceError):
    """More was sent than is taken."""

    code = "too_large"


class Unauthenticated(ServiceError):
    """No valid credential was given."""

    code = "unauthenticated"


class Denied(ServiceError):
    """The credential does not allow this."""

    code = "denied"


class Overloaded(ServiceError):
    """Too much is waiting; try again later."""

    code = "overloaded"


class Unavailable(ServiceError):
    """A part that this needs is not there at the moment."""

    code = "unavailable"


class DefinitionRefused(InvalidInput):
    """The definition has errors."""

    code = "definition_refused"
