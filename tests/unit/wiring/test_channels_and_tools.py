"""Who is told over which channel, and which tools a service has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agiwo.errors import Problem, StepError
from agiwo.toolkit import tool
from agiwo.wiring.channels import Channel, Channels, Members
from agiwo.wiring.toolbox import ToolsRefused, toolbox


class Told:
    """A channel that remembers."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Mapping[str, Any]]] = []

    async def deliver(self, target: str, body: Mapping[str, Any]) -> None:
        self.told.append((target, body))


def notice(to: str) -> dict[str, Any]:
    return {"about": "approval", "approval": "a1", "to": to, "subject": "s", "text": "t", "link": "l"}


async def test_a_person_is_told_under_a_key_that_stays_the_same() -> None:
    mail = Told()
    channels = Channels({"mail": Channel(mail, addressed=True)})
    for _ in range(2):
        await channels.deliver("mail", notice("user:eve@example.com"))
        await channels.deliver("mail", notice("user:ann@example.com"))
    assert [target for target, _ in mail.told] == ["eve@example.com", "ann@example.com"] * 2
    assert mail.told[:2] == mail.told[2:]
    assert len({body["key"] for _, body in mail.told}) == 2


def test_behind_a_role_are_its_members_and_behind_anybody_else_nobody_else() -> None:
    members = Members({"finance": ("ann@example.com", "user:bob@example.com"), "empty": ()})
    assert members("role:finance") == ["user:ann@example.com", "user:bob@example.com"]
    for principal in ("user:eve@example.com", "role:nobody", "role:empty", "key:ci", "finance"):
        assert members(principal) == [principal]


@pytest.mark.parametrize(
    ("channel", "to"), [("chat", "user:eve@example.com"), ("mail", "role:nobody"), ("mail", "key:ci"), ("mail", "user:eve")]
)
async def test_whoever_cannot_be_told_is_an_error_that_says_why(channel: str, to: str) -> None:
    with pytest.raises(StepError) as caught:
        await Channels({"mail": Channel(Told(), addressed=True)}).deliver(channel, notice(to))
    assert caught.value.not_done
    assert (channel if channel == "chat" else to) in caught.value.message


async def test_channel_without_addresses_is_told_once_and_of_whom_it_is_for() -> None:
    chat, mail = Told(), Told()
    channels = Channels(
        {"chat": Channel(chat), "ann": Channel(chat, principal="user:ann@example.com"), "mail": Channel(mail, addressed=True)}
    )
    assert [channels.reader(name) for name in ("chat", "ann", "mail", "nothing")] == [None, "user:ann@example.com", "each", "each"]
    await channels.deliver("chat", notice("role:finance"))
    assert chat.told == [("", {"subject": "s", "text": "t", "key": "approval.a1.role.finance", "trace_id": None})]


async def test_step_tells_who_it_names_or_those_of_the_channel() -> None:
    chat, mail = Told(), Told()
    channels = Channels(
        {
            "chat": Channel(chat, tenants=frozenset({"acme"})),
            "mail": Channel(mail, addressed=True, to=("ops@example.com",)),
            "bare": Channel(mail, addressed=True),
        }
    )
    body = {"subject": "s", "text": "t", "key": "k"}
    assert await channels.tell("acme", "chat", [], body) == []
    assert await channels.tell("acme", "mail", [], body) == ["ops@example.com"]
    assert await channels.tell("acme", "mail", ["a@b", "c@d"], body) == ["a@b", "c@d"]
    assert [target for target, _ in chat.told + mail.told] == ["", "ops@example.com", "a@b\nc@d"]
    for tenant, name, to, type in (
        ("other", "chat", [], "PermissionDenied"),
        ("acme", "chat", ["a@b"], "ValidationError"),
        ("acme", "bare", [], "ValidationError"),
        ("acme", "none", [], "NotFound"),
    ):
        with pytest.raises(StepError) as caught:
            await channels.tell(tenant, name, to, body)
        assert caught.value.type == type and caught.value.not_done


def test_tools_of_a_file_are_registered_and_their_warnings_told(tmp_path: Path) -> None:
    file = tmp_path / "tools_of_a_file.py"
    file.write_text("from agiwo.toolkit import tool\n\n@tool(name='file.one')\ndef one() -> int:\n    return 1\n")
    warned: list[Problem] = []
    registry = toolbox([str(file)], warned.append)
    assert "file.one" in registry and "debug.echo" in registry
    assert {problem.code for problem in warned} >= {"effect_undeclared", "sync_tool"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\n", "has no tools"),
        ("import nothing_of_that_name\n", "cannot be imported: ModuleNotFoundError"),
        (
            "from agiwo.toolkit import tool\n\n@tool(name='debug.echo', effect='pure')\nasync def e() -> int:\n    return 1\n",
            "registered already",
        ),
    ],
)
def test_a_module_that_gives_no_tools_is_refused(tmp_path: Path, source: str, said: str) -> None:
    file = tmp_path / f"refused_{abs(hash(said))}.py"
    file.write_text(source)
    with pytest.raises(ToolsRefused, match=said):
        toolbox([str(file)])


def test_the_programs_own_tools_come_last() -> None:
    @tool(name="mine.one", effect="pure")
    async def one() -> int:
        return 1

    assert toolbox(more=[one]).get("mine.one") is one
