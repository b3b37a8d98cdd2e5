"""Publishing definitions: everything that is wrong in one answer, and a version that never changes once it stands.

It judges nothing itself; the definition's own checks do, and the storage decides which of two uploads was first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from agiwo.definition import Checked, ToolContract, check, content_hash, load
from agiwo.errors import Conflict, DefinitionRefused, Problem
from agiwo.ports.records import NewVersion, Published, PublishResult, Records
from agiwo.service.beside import beside
from agiwo.service.callers import AUTHOR, Caller
from agiwo.service.changes import PLAIN, Change
from agiwo.service.definitions import Catalog
from agiwo.service.ranks import label_of, rank
from agiwo.values import shown

#: Why a tenant (the first) may not use, with a tool, a connection by its name; None if it may.
Barring = Callable[[str, str, str], str | None]
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Examined:
    """What was read from a text, and all that is wrong with it."""

    checked: Checked
    source: str

    def to_json(self) -> dict[str, Any]:
        workflow = self.checked.workflow
        document = self.checked.document if isinstance(self.checked.document, Mapping) else {}
        return {
            "workflow_id": _text(document.get("id")),
            "version": _text(document.get("version")),
            "content_hash": content_hash(self.checked.document) if workflow is not None else None,
            "reads_as": self.checked.reads_as or None,
            "order": list(self.checked.order),
            "problems": [p.to_json() for p in self.checked.problems],
        }


@dataclass(frozen=True, slots=True)
class Publication:
    """A version that stands now; not `created` if the same content stood there before."""

    workflow: str
    version: str
    created: bool
    examined: Examined


class Publishing:
    """The verbs `validate` and `publish`; `models` and `secrets` are the names of model profiles and of secrets (None: not checked).

    `barred` says why a tenant's tool may not use a connection.
    """

    def __init__(
        self,
        records: Records,
        catalog: Catalog,
        tools: Callable[[], Mapping[str, ToolContract]],
        models: Collection[str] | None = None,
        secrets: Collection[str] | None = None,
        barred: Barring | None = None,
    ) -> None:
        self._records = records
        self._catalog = catalog
        self._tools = tools
        self._models = models
        self._secrets = secrets
        self._barred = barred

    async def validate(self, text: bytes, tenant: str | None = None) -> Examined:
        """Read YAML or JSON and judge it, for a tenant if one is named; stores nothing and never raises for a bad document."""
        return await beside(self._judged, text, tenant)

    def _judged(self, text: bytes, tenant: str | None) -> Examined:
        barred = None if self._barred is None or tenant is None else partial(self._barred, tenant)
        checked = check(load(text), self._tools(), models=self._models, secrets=self._secrets, barred=barred)
        return Examined(checked, text.decode("utf-8", "replace"))

    async def publish(self, caller: Caller, text: bytes, change: Change = PLAIN) -> Publication:
        """Keep a version for ever; the same content again changes nothing.

        Raises DefinitionRefused with every error and warning, Conflict for other content under the same version or a version of equal rank,
        Denied for a caller who is no author.
        """
        caller.need(AUTHOR)
        examined = await self.validate(text, caller.tenant)
        workflow = examined.checked.workflow
        if workflow is None:
            count = len(examined.checked.errors)
            raise DefinitionRefused(
                f"the definition has {count} error{'s' if count != 1 else ''}",
                problems=examined.checked.problems,
                reads_as=examined.checked.reads_as or None,
                order=list(examined.checked.order),
            )
        document = examined.checked.document
        version = NewVersion(
            workflow=workflow.id,
            version=workflow.version,
            rank=rank(workflow.version),
            label=label_of(workflow.version),
            content_hash=content_hash(document),
            source=examined.source,
            document=document,
            created_by=caller.principal,
        )
        if change.dry:
            result = await self._standing(caller, version)
        else:
            result = await self._records.publish_version(caller.tenant, version)
            self._catalog.changed(caller.tenant, workflow.id)
        if result.answer is Published.CONFLICT:
            raise await self._other_content(caller, version)
        if result.answer is Published.DELETED:
            raise Conflict(
                f"version {workflow.version} of {workflow.id} was deleted, and its name stands for what it was: take a new one",
                code="version_deleted",
            )
        if result.answer is Published.EQUAL_RANK:
            there = result.existing.version if result.existing is not None else "?"
            raise Conflict(
                f"version {workflow.version} is equal to version {there}, which is published already", code="equal_version", existing=there
            )
        created = result.answer is Published.CREATED
        if created and not change.dry:
            data = {"content_hash": version.content_hash, "reason": change.reason}
            await self._records.audit(caller.tenant, caller.principal, "publish", f"workflow/{workflow.id}/{workflow.version}", data)
        return Publication(workflow.id, workflow.version, created, examined)

    async def _standing(self, caller: Caller, version: NewVersion) -> PublishResult:
        """What publishing would be answered with."""
        if await self._records.deleted_content(caller.tenant, version.workflow, version.version) not in (None, version.content_hash):
            return PublishResult(Published.DELETED)
        after = None
        while lines := await self._records.list_versions(caller.tenant, version.workflow, after=after):
            for line in lines:
                if line.version == version.version:
                    same = line.content_hash == version.content_hash
                    return PublishResult(Published.UNCHANGED if same else Published.CONFLICT, line)
                if rank(line.version) == version.rank:
                    return PublishResult(Published.EQUAL_RANK, line)
            after = (version.workflow, rank(lines[-1].version))
        return PublishResult(Published.CREATED)

    async def _other_content(self, caller: Caller, version: NewVersion) -> Conflict:
        stored = await self._catalog.stored(caller.tenant, version.workflow, version.version)
        problems = differences(stored.document, version.document)
        return Conflict(
            f"version {version.version} of {version.workflow} is published with other content; a version never changes: take a new one",
            code="version_exists",
            problems=problems[:_SHOWN],
            content_hash=stored.content_hash,
        )


def differences(old: Any, new: Any, at: str = "") -> list[Problem]:
    """Where two documents part, each place once."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for key in [*old, *(k for k in new if k not in old)]:
            place = at + "/" + str(key).replace("~", "~0").replace("/", "~1")
            if key not in new:
                found.append(Problem("differs", "was there and is not any more", place, found="nothing", expected=shown(old[key])))
            elif key not in old:
                found.append(Problem("differs", "was not there", place, found=shown(new[key]), expected="nothing"))
            else:
                found += differences(old[key], new[key], place)
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [problem for i, (a, b) in enumerate(zip(old, new, strict=True)) for problem in differences(a, b, f"{at}/{i}")]
    if type(old) is type(new) and old == new:
        return []
    return [Problem("differs", "is published with another value", at, found=shown(new), expected=shown(old))]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
