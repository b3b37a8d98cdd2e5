"""The verb `preview`: finds or judges the definition, checks what it is given, and follows the path beside the event loop.

Nothing is called, nobody is asked and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from agiwo.clock import Clock
from agiwo.definition.compiled import Workflow
from agiwo.errors import DefinitionRefused, InvalidInput, Problem
from agiwo.names import nearest
from agiwo.service.beside import beside
from agiwo.service.callers import Caller
from agiwo.service.definitions import Catalog
from agiwo.service.preview import PreviewCall, preview
from agiwo.service.publish import Publishing
from agiwo.service.trigger import TriggerCall, check_call
from agiwo.values import encode, pointer, shown

ACTIONS = ("approve", "reject")
_DECISION = frozenset({"action", "values", "output", "comment"})


class Previewing:
    """Dry runs of published and of other definitions."""

    def __init__(self, catalog: Catalog, publishing: Publishing, clock: Clock) -> None:
        self._catalog = catalog
        self._publishing = publishing
        self._clock = clock

    async def published(self, caller: Caller, workflow: str, version: str | None, call: PreviewCall) -> dict[str, Any]:
        """Of a published version, or of the one that a trigger takes. Raises NotFound, and InvalidInput for what does not fit."""
        return await self._followed(caller, await self._catalog.standing(caller.tenant, workflow, version), call)

    async def document(self, caller: Caller, definition: Mapping[str, Any] | str, call: PreviewCall) -> dict[str, Any]:
        """Of a definition that need not be published, as YAML text or as JSON.

        Raises DefinitionRefused for one with errors, and InvalidInput for what does not fit.
        """
        text = definition if isinstance(definition, str) else encode(dict(definition))
        checked = (await self._publishing.validate(text.encode("utf-8", "replace"), caller.tenant)).checked
        if checked.workflow is None:
            raise DefinitionRefused("the definition has errors", problems=checked.problems)
        return await self._followed(caller, checked.workflow, call)

    async def _followed(self, caller: Caller, workflow: Workflow, call: PreviewCall) -> dict[str, Any]:
        check_call(workflow, TriggerCall(workflow.id, "", call.input, call.context))
        problems = [*_unknown(workflow, "results", call.results), *_unknown(workflow, "decisions", call.decisions)]
        problems += [problem for name, given in call.decisions.items() if (problem := _no_decision(name, given)) is not None]
        if problems:
            raise InvalidInput("the dry run cannot be made with this", problems=problems)
        return await beside(preview, workflow, call, self._clock.now(), caller.tenant)


def _unknown(workflow: Workflow, field: str, given: Mapping[str, Any]) -> list[Problem]:
    known = workflow.body.number
    return [
        Problem(
            "unknown_step",
            f"there is no step {shown(name)}",
            pointer(field, name),
            found=shown(name),
            nearest=nearest(name, islice(known, 200)),
        )
        for name in given
        if name.partition("~")[0] not in known
    ]


def _no_decision(name: str, given: Any) -> Problem | None:
    said = {"action": given} if isinstance(given, str) else given
    good = isinstance(said, Mapping) and said.get("action") in ACTIONS and _DECISION.issuperset(said)
    good = good and isinstance(said.get("values"), Mapping | None) and isinstance(said.get("comment"), str | None)
    if good:
        return None
    expected = "approve, reject, or an object with action, and with values (an object), output or comment (a text)"
    return Problem("wrong_value", f"expected {expected}", pointer("decisions", name), found=shown(given), expected=expected)
