"""The demo from its first line to its exit status: start the servers, trigger the report, show it live, decide, prove the mail.

It speaks to the service as any client does, and ends what it has started in every case.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agiwo.cli.client import Client
from agiwo.cli.demo.processes import HOST, Server, accepts, free_port
from agiwo.cli.demo.proof import Finding, Mail, findings, mails
from agiwo.cli.screen import FAILED, WRONG_USE, CommandEnds, give, say
from agiwo.cli.shown import record_line
from agiwo.testing.sales import WEEK, create_sqlite, expected_table, generate

WORKFLOW = "weekly_report_workflow"
ROWS = 400
NOTICE_WITHIN = 30.0  # seconds for the mail with the link


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays. `told` takes what is said to people."""

    folder: Path
    url: str
    yes: bool
    told: Callable[[str], None]

    @property
    def mails(self) -> Path:
        return self.folder / "mail"

    @property
    def sales(self) -> Path:
        return self.folder / "sales.sqlite"


async def demo(yes: bool, seed: int | None, port: int | None, data_dir: Path | None, workflows: Path | None, as_json: bool) -> None:
    """Run it. Raises CommandEnds unless the mail came once and its table equals plain SQL."""
    definitions = _definitions(workflows)
    folder = (data_dir or Path(".agiwo")).absolute() / "demo"
    service_port = port or free_port()
    stage = Stage(folder, f"http://{HOST}:{service_port}", yes, _silent if as_json else say)
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    with _alone(folder), ExitStack() as stack:
        _make_sales(stage, chosen)
        service = await _start(stage, stack, service_port, definitions)
        try:
            proved = await _run(stage, service)
        except (KeyboardInterrupt, asyncio.CancelledError):
            stage.told("\nEnding.")
            raise
        if as_json:
            give({"seed": chosen, **proved})
        if not all(finding["holds"] for finding in proved["findings"]):
            raise CommandEnds(FAILED)
        if not yes:
            stage.told(f"\nThe service stays up at {stage.url}; Ctrl-C ends it and all that belongs to it.")
            await _until_told(service)


def _definitions(workflows: Path | None) -> Path:
    folder = (workflows or Path("workflows")).absolute()
    if not (folder / f"{WORKFLOW}.yaml").is_file():
        raise CommandEnds(WRONG_USE, f"{folder} has no {WORKFLOW}.yaml: start the demo in the checkout, or name the folder by --workflows")
    return folder


def _silent(text: str) -> None:
    """Programs get one line at the end."""


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One demo at a time on a folder; the lock goes with the process, however it dies."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "demo.lock").open("w")
    except OSError as exc:
        raise CommandEnds(WRONG_USE, f"the data folder {folder} cannot be used: {exc.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandEnds(FAILED, f"another demo runs on {folder}; end it, or name another --data-dir") from None
        yield


def _make_sales(stage: Stage, seed: int) -> None:
    rows = generate(seed, ROWS)
    create_sqlite(stage.sales, rows)
    week = sum(row["week"] == WEEK for row in rows)
    stage.told(f"Sales table: {ROWS} rows from seed {seed}, {week} of them in {WEEK} (again with --seed {seed})")


async def _start(stage: Stage, stack: ExitStack, port: int, definitions: Path) -> Server:
    """All servers at once; the service is `agiwo serve`, as anybody would start it."""
    logs = stage.folder / "logs"
    logs.mkdir(exist_ok=True)
    smtp, probe, model = free_port(), free_port(), free_port()
    mail_server = ["agiwo.testing.smtp", "--folder", str(stage.mails), "--port", str(smtp), "--probe-port", str(probe)]
    servers: list[tuple[Server, Callable[[], Awaitable[bool]]]] = []

    def begin(name: str, arguments: list[str], works: Callable[[], Awaitable[bool]], own: Mapping[str, str]) -> Server:
        server = Server(name, logs / f"{name.replace(' ', '_')}.log", arguments, own)
        stack.callback(server.stop)
        servers.append((server, works))
        return server

    begin("mail server", mail_server, lambda: accepts(probe), {})
    stage.told(f"Mail server: a real SMTP server on {HOST}:{smtp}, mails in {stage.mails}")
    own = {"AGIWO_NODE_NAME": "demo"}
    if os.environ.get("AGIWO_LLM_BASE_URL"):
        stage.told(f"Model: {os.environ.get('AGIWO_LLM_MODEL', '?')} at {os.environ['AGIWO_LLM_BASE_URL']}")
    else:
        begin("model server", ["agiwo.testing.model_server", "--port", str(model)], lambda: accepts(model), {})
        own |= {"AGIWO_LLM_BASE_URL": f"http://{HOST}:{model}/v1", "AGIWO_LLM_MODEL": "agiwo-scripted"}
        stage.told(
            "Model: none is configured, so a scripted server answers in its place: the real protocol, an answer built from the prompt, "
            "no intelligence. Set AGIWO_LLM_BASE_URL and AGIWO_LLM_MODEL for a real one."
        )
    config = stage.folder / "config.yaml"
    config.write_text(json.dumps(_config(stage, smtp, probe), indent=2) + "\n")
    service = begin(
        "service",
        [
            "agiwo", "serve", "--embedded", "--data-dir", str(stage.folder), "--port", str(port), "--config", str(config),
            "--workflows", str(definitions),
        ],
        lambda: _answers(stage.url),
        own,
    )  # fmt: skip
    stage.told(f"Service: agiwo serve --embedded at {stage.url} (log in {service.log})")
    await asyncio.gather(*(server.ready(works) for server, works in servers))
    return service


def _config(stage: Stage, smtp: int, probe: int) -> dict[str, Any]:
    mail = {
        "kind": "smtp",
        "url": f"smtp://{HOST}:{smtp}",
        "sender": "Agiwo demo <agiwo@localhost>",
        "reconcile_url": f"http://{HOST}:{probe}/messages",
    }
    return {"connections": {"sales": {"kind": "sqlite", "url": f"sqlite:///{stage.sales}"}, "mail": mail}}


async def _answers(url: str) -> bool:
    async with Client(url) as client:
        try:
            await client.get("/readyz")
        except CommandEnds:
            return False
    return True


async def _run(stage: Stage, service: Server) -> dict[str, Any]:
    """One report, from the trigger to the proof."""
    async with Client(stage.url) as client:
        started = await client.post(f"/v1/workflows/{WORKFLOW}/trigger", {"input": {"week": WEEK}})
        instance = started["instance_id"]
        stage.told(f"\nTriggered {WORKFLOW} for {WEEK}: instance {instance}")
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(_dies(service))
                await _look_on(stage, client, instance)
                watching.cancel()
        except ExceptionGroup as exc:
            raise exc.exceptions[0] from None
        view = await client.get(f"/v1/instances/{instance}")
    return _proved(stage, view)


async def _look_on(stage: Stage, client: Client, instance: str) -> None:
    async with aclosing(client.events(f"/v1/instances/{instance}/events")) as events:
        async for event in events:
            stage.told("  " + record_line(event.data))
            if event.name == "step.approval_asked":
                await _at_the_approval(stage, client, instance)


async def _dies(service: Server) -> None:
    while True:
        service.check()
        await asyncio.sleep(0.5)


async def _at_the_approval(stage: Stage, client: Client, instance: str) -> None:
    found = await client.get("/v1/approvals", instance_id=instance, status="pending")
    if not found["items"]:
        return  # it was decided by now
    approval = found["items"][0]
    link = await _link(stage, approval["approval_id"])
    stage.told(f"\nA person has to decide on “{approval['title']}”. The link came by mail:\n  {link}")
    if stage.yes:
        await client.post(f"/v1/approvals/{approval['approval_id']}/approve", {"digest": approval["digest"], "comment": "agiwo demo --yes"})
        stage.told("Approved through the API (--yes).\n")
    else:
        stage.told(
            f"Open it and decide, or in another terminal: agiwo approve {approval['approval_id']} --server {stage.url}\n"
            "Waiting for the decision …\n"
        )


async def _link(stage: Stage, approval: str) -> str:
    """The link in the notice about this approval, once the mail has arrived. Raises CommandEnds if it does not."""
    begin = f"{stage.url}/approve/"
    seen = 0
    try:
        async with asyncio.timeout(NOTICE_WITHIN):
            while True:
                there = mails(stage.mails)
                for mail in reversed(there[seen:]):
                    for word in mail.text.split():
                        if word.startswith(begin) and approval.replace("-", "") in mail.message_id.replace("-", ""):
                            return word
                seen = len(there)
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise CommandEnds(
            FAILED, f"no mail with the approval link arrived within {NOTICE_WITHIN:g} s; see {stage.folder / 'logs'}"
        ) from None


def _proved(stage: Stage, view: Mapping[str, Any]) -> dict[str, Any]:
    output = view.get("output") or {}
    id = output.get("message_id")
    same = [mail for mail in mails(stage.mails) if mail.message_id == id]
    mail = same[0] if same else None
    if mail is not None:
        _show(stage, mail)
    ended = Finding(view["status"] == "SUCCESS", f"the instance ended {view['status']}")
    found = [ended, *findings(mail, len(same), str(output.get("summary") or ""), expected_table(stage.sales, WEEK))]
    stage.told("Checked:")
    for one in found:
        stage.told(f"  {'✓' if one.holds else '✗'} {one.said}")
    return {
        "instance_id": view["instance_id"],
        "status": view["status"],
        "message_id": id,
        "url": stage.url,
        "findings": [{"holds": one.holds, "said": one.said} for one in found],
    }


def _show(stage: Stage, mail: Mail) -> None:
    stage.told(f"\nThe mail, as the server received it:\n  To: {mail.to}\n  Subject: {mail.subject}\n  Message-ID: {mail.message_id}\n")
    for line in mail.text.rstrip().splitlines():
        stage.told(f"  {line}")
    stage.told("")


async def _until_told(service: Server) -> None:
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    while not told.is_set():
        service.check()
        try:
            async with asyncio.timeout(0.5):
                await told.wait()
        except TimeoutError:
            continue
