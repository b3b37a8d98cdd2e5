"""Texts of a declaration that are filled in at each call: compiled once, and over the arguments of the call only.

What is filled in is data; a part whose parameter was not given is left out where parts may be missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agiwo.definition.report import Path, Report
from agiwo.errors import PermissionDeniedError, StepError
from agiwo.template import (
    Absent,
    Expression,
    Read,
    TemplateErrors,
    ValueTemplate,
    compile_expression,
    compile_value,
    fill_secrets,
    is_template,
)
from agiwo.tools.context import ToolContext
from agiwo.values import JSON

CALL = ("idempotency_key", "instance", "step", "iteration", "attempt", "tenant", "trace_id")
ANSWER = ("status", "headers", "body")


class _Missing:
    """The mark of a part that is left out."""


MISSING = _Missing()


@dataclass(frozen=True, slots=True)
class Leaf:
    """One text with templates; `needs` are the parameters without which it cannot be filled in, `key` the member that holds the text."""

    template: ValueTemplate
    needs: tuple[str, ...]
    key: str = ""


def scope_of(arguments: Mapping[str, Any], ctx: ToolContext) -> dict[str, Any]:
    """What the texts of a declaration may read."""
    call = {
        "idempotency_key": ctx.idempotency_key, "instance": ctx.instance_id, "step": ctx.step, "iteration": ctx.iteration,
        "attempt": ctx.attempt, "tenant": ctx.tenant, "trace_id": ctx.trace_id,
    }  # fmt: skip
    return {"parameters": arguments, "call": call}


def fill(part: Any, scope: Mapping[str, Any], secrets: Mapping[str, str]) -> Any:
    """A compiled part over a scope, without what was not given (MISSING if that is all of it). Raises StepError."""
    if isinstance(part, Leaf):
        if any(name not in scope["parameters"] for name in part.needs):
            return MISSING
        rendered = part.template.render(scope)
        filled = fill_secrets(rendered.value, rendered.secrets, lambda name: secret_of(secrets, name))[0]
        return filled[part.key] if part.key else filled
    if isinstance(part, dict):
        members = {key: fill(one, scope, secrets) for key, one in part.items()}
        return {key: one for key, one in members.items() if one is not MISSING}
    if isinstance(part, list):
        return [one for one in (fill(item, scope, secrets) for item in part) if one is not MISSING]
    return part


def secret_of(secrets: Mapping[str, str], name: str) -> str:
    """Raises PermissionDeniedError if the configuration has no such secret."""
    try:
        return secrets[name]
    except KeyError:
        raise PermissionDeniedError(f"there is no secret {name!r} in this service's configuration", not_done=True) from None


class Filling:
    """Compiles the texts of one tool and notes what is wrong with them; `known` are its parameters, None if it may have any."""

    def __init__(self, report: Report, known: Sequence[str] | None) -> None:
        self._report = report
        self._known = known

    def part(self, source: JSON, at: Path, *, use: str = "") -> Any:
        """A value whose texts may hold templates; in a text of a `use` (url) each `{{ }}` takes the form that the use needs."""
        if isinstance(source, dict):
            return {key: self.part(one, (*at, key), use=use) for key, one in source.items()}
        if isinstance(source, list):
            return [self.part(one, (*at, index), use=use) for index, one in enumerate(source)]
        if not isinstance(source, str) or not is_template(source):
            return source
        try:
            whole, uses = ({use: source}, {use: use}) if use else (source, None)
            made = compile_value(whole, uses=uses, allow_secrets=True, names=("parameters", "call"))
        except TemplateErrors as exc:
            self._refuse(exc, at)
            return source
        self._reads(made.reads, at, ("parameters", "call"))
        needs = {str(read.path[0]) for read in made.reads if read.root == "parameters" and read.path and not read.guarded}
        return Leaf(made, tuple(sorted(needs)), use)

    def expression(self, source: str, at: Path, roots: Sequence[str]) -> Expression | None:
        """An expression over an answer; None if it has errors."""
        names = (*roots, "parameters", "call")
        try:
            made = compile_expression(source, names=names)
        except TemplateErrors as exc:
            self._refuse(exc, at)
            return None
        self._reads(made.reads, at, names)
        return made

    def _reads(self, reads: Sequence[Read], at: Path, roots: Sequence[str]) -> None:
        for read in reads:
            if read.root not in roots:
                near = self._report.nearest(read.root, roots)
                self._report.error(
                    "unknown_name", f"`{read.root}` is not known in a declared tool", at, found=read.root,
                    expected="one of " + ", ".join((*roots, "secrets")), nearest=near,
                )  # fmt: skip
                continue
            known: Sequence[str] | None = self._known if read.root == "parameters" else CALL if read.root == "call" else None
            if known is None or not read.path or str(read.path[0]) in known:
                continue
            name = str(read.path[0])
            self._report.error(
                "unknown_name", f"`{read.root}` has no `{name[:80]}`", at, found=name[:80],
                expected="one of " + ", ".join(known) if known else "no parameters", nearest=self._report.nearest(name, known),
            )  # fmt: skip

    def _refuse(self, exc: TemplateErrors, at: Path) -> None:
        for error in exc.errors:
            data = error.data if isinstance(error.data, Mapping) else {}
            line = data.get("line")
            self._report.error(
                "template", error.message, at, found=str(data.get("template", ""))[:200], inner=line if isinstance(line, int) else 0
            )


def evaluated(made: Expression, scope: Mapping[str, Any]) -> JSON:
    """What an expression gives over an answer. Raises StepError (OutputInvalid) if it reads what is not there."""
    found = made.evaluate(scope)
    if isinstance(found, Absent):
        raise StepError(f"the answer lacks what the tool's result is made of: {found.message()}", type="OutputInvalid")
    return found


def written(value: Any) -> str | None:
    """A filled-in value as one text: a text itself or a number; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return str(value)
