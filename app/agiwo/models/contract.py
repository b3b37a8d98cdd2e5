"""What a profile says to the definition that names it: keys that it does not allow, schemas that it cannot ask for as it would like to.

Judges by the profile alone; whether the endpoint keeps what the profile promises shows when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agiwo.definition.contract import Remark
from agiwo.errors import InvalidInput
from agiwo.models.ladder import why_not
from agiwo.models.profile import ModelProfile
from agiwo.models.protocol import Mode


class ProfileContract:
    """A ModelContract of one profile."""

    def __init__(self, profile: ModelProfile) -> None:
        self._profile = profile

    def remarks(self, llm: Mapping[str, Any], schema: Mapping[str, Any] | None, *, fallback: bool) -> Sequence[Remark]:
        try:
            options = self._profile.fallback_options(llm) if fallback else self._profile.options(llm)
        except InvalidInput as exc:
            return [
                Remark(
                    f"profile `{self._profile.name}`: {problem.message}",
                    problem.pointer.strip("/") or None,
                    True,
                    problem.found,
                    problem.expected,
                )
                for problem in exc.problems
            ]
        return [] if schema is None else self._about(schema, options.structured)

    def _about(self, schema: Mapping[str, Any], modes: tuple[Mode, ...]) -> list[Remark]:
        reasons = [(mode, why_not(schema, mode, self._profile.kind)) for mode in modes]
        usable = [mode for mode, why in reasons if why is None]
        said = "; ".join(f"not as `{mode}`: {why}" for mode, why in reasons if why is not None)
        name = self._profile.name
        if not usable:
            return [Remark(f"the profile `{name}` has no way to ask for this `output_schema`: {said}")]
        if reasons[0][1] is None:
            return []
        return [Remark(f"the profile `{name}` asks for this `output_schema` as `{usable[0]}`, {said}", error=False)]
