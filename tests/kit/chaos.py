"""The weekly report on real servers that outlive its service: starts and kills the service, drives reports through the API, checks the end.

Nothing here is timed by an assertion; every wait has a bound after which the test fails and shows the end of the service's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from agiwo.cli.demo.proof import Mail, findings, mails
from agiwo.testing.model_server import ModelServer
from agiwo.testing.sales import WEEK, create_sqlite, expected_table, generate
from agiwo.testing.smtp import LoopbackMail
from kit.process import ROOT, SECRET, clean_environment, free_port

WORKFLOW = "weekly_report_workflow"
STEPS = ("fetch_sales_data", "transform_data", "generate_report", "send_email")
REVIEWER = "reviewer@example.com"
PATIENCE = 90.0  # seconds after which a wait counts as failed
LOOK = 0.02  # seconds between two looks
PROGRAM = Path(__file__).with_name("killed_service.py")


@dataclass(frozen=True, slots=True)
class Point:
    """The `nth` such event in the life of a service; with a `record`, only a commit that holds it."""

    happening: str
    step: str | None = None
    record: str | None = None
    nth: int = 1

    def __str__(self) -> str:
        return "-".join(str(part) for part in (self.happening, self.step, self.record) if part) + (f"-{self.nth}" if self.nth > 1 else "")


def points_of(step: str) -> list[Point]:
    """After the commit before the call, at the call, after the call before the commit."""
    return [Point("committed", step, "step.started"), Point("attempt_started", step), Point("attempt_returned", step)]


class Site:
    """All that outlives the service, and the service. Use `site(…)`."""

    def __init__(self, folder: Path, database: str, model: ModelServer, mail_folder: Path, connection: dict[str, str]) -> None:
        self.folder = folder
        self.database = database
        self.model = model
        self.mail_folder = mail_folder
        self.sales = folder / "sales.sqlite"
        self.workflows = ROOT / "workflows"
        self.lives = 0
        self.ready_after: list[float] = []
        self._calls = folder / "calls.jsonl"
        self._config = folder / "config.yaml"
        self._log = folder / "service.log"
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._port}", timeout=30)
        create_sqlite(self.sales, generate(7))
        sales = {"kind": "sqlite", "url": f"sqlite:///{self.sales}"}
        self._config.write_text(json.dumps({"connections": {"sales": sales, "mail": {"kind": "smtp", **connection}}}))

    # ------------------------------------------------------------ the service

    def begin(self, point: Point | None = None, **settings: str) -> None:
        """Start the service, under the name that it always has."""
        own = {
            "AGIWO_DATABASE_URL": self.database,
            "AGIWO_SECRET_KEY": SECRET,
            "AGIWO_NODE_NAME": "chaos",
            "AGIWO_LLM_BASE_URL": self.model.base_url,
            "AGIWO_LLM_MODEL": "agiwo-scripted",
            "CHAOS_CALLS": str(self._calls),
            **settings,
        }
        if point is not None:
            own["CHAOS_POINT"] = json.dumps(asdict(point))
        environment = clean_environment(**own)
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "app"), str(ROOT / "tests")])
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), str(self._config), str(self.workflows), str(self._port)],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=self.folder, env=environment,
            )  # fmt: skip
        self.lives += 1

    async def ready(self) -> bool:
        """Whether it answers; False if it has ended before."""
        began = time.monotonic()
        while not self.gone():
            if await self._answers():
                self.ready_after.append(time.monotonic() - began)
                return True
            self._bounded(began, "the service is not ready")
            await asyncio.sleep(LOOK)
        return False

    async def start(self, point: Point | None = None, **settings: str) -> None:
        self.begin(point, **settings)
        if not await self.ready():
            raise AssertionError(f"the service ended at its start\n{self.log_end()}")

    async def _answers(self) -> bool:
        try:
            return (await self.client.get("/readyz")).status_code == 200
        except httpx.TransportError:
            return False

    def gone(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def signal(self, number: signal.Signals) -> None:
        """Send it to the service; nothing happens if that is gone."""
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self, within: float = PATIENCE) -> int | None:
        """The exit status once it has ended; None if it still runs after `within` seconds."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, within)
        status = self._process.poll()
        if status is not None and self._process.stdin is not None:
            self._process.stdin.close()
        return status

    @asynccontextmanager
    async def restarted(self) -> AsyncIterator[None]:
        """Meanwhile, a service that has died at its point is started again, without one."""

        async def keep() -> None:
            while True:
                if self.gone():
                    await self.died_at_its_point()
                    await self.start()
                await asyncio.sleep(LOOK)

        try:
            async with asyncio.TaskGroup() as group:
                keeping = group.create_task(keep())
                yield
                keeping.cancel()
        except ExceptionGroup as exc:
            raise exc.exceptions[0] from None

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.ended()

    async def died_at_its_point(self) -> None:
        status = await self.ended()
        assert status == -signal.SIGKILL, f"ended with {status}\n{self.log_end()}"

    def log_end(self) -> str:
        return self._log.read_text(errors="replace")[-6000:]

    def _bounded(self, began: float, what: str) -> None:
        if time.monotonic() - began > PATIENCE:
            raise AssertionError(f"{what} after {PATIENCE:g} s\n{self.log_end()}")

    # ------------------------------------------------------------ what a client does

    async def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        """A call, repeated as it is until the service has answered it; gives the answer's JSON."""
        began = time.monotonic()
        headers = {"idempotency-key": key} if key else {}
        while True:
            try:
                answer = await self.client.request(method, path, json=body, headers=headers)
                if answer.status_code < 500:
                    assert answer.status_code < 300, answer.text
                    return answer.json()
            except httpx.TransportError:
                pass
            self._bounded(began, f"{method} {path} has no answer")
            await asyncio.sleep(LOOK)

    async def trigger(self, name: str, workflow: str = WORKFLOW) -> str:
        """Start the report for the recipient `name`; the same name is the same call. Gives the instance."""
        started = await self.call("POST", f"/v1/workflows/{workflow}/trigger", trigger_body(name), key=f"key-{name}")
        instance: str = started["instance_id"]
        return instance

    async def until(self, what: str, found: Callable[[], Awaitable[Any]]) -> Any:
        """What `found` gives, once that is something."""
        began = time.monotonic()
        while not (result := await found()):
            self._bounded(began, f"{what}: not")
            await asyncio.sleep(LOOK)
        return result

    async def pending(self, instance: str | None = None) -> list[dict[str, Any]]:
        asked = f"&instance_id={instance}" if instance else ""
        items: list[dict[str, Any]] = (await self.call("GET", f"/v1/approvals?status=pending&limit=200{asked}"))["items"]
        return items

    async def approve(self, approval: dict[str, Any]) -> None:
        await self.call("POST", f"/v1/approvals/{approval['approval_id']}/approve", {"digest": approval["digest"]})

    async def asked(self, instance: str) -> dict[str, Any]:
        """The approval that this instance waits for."""
        approval: dict[str, Any] = (await self.until("asked for a decision", lambda: self.pending(instance)))[0]
        return approval

    async def view(self, instance: str) -> dict[str, Any]:
        view: dict[str, Any] = await self.call("GET", f"/v1/instances/{instance}")
        return view

    async def over(self, instance: str) -> dict[str, Any]:
        """The instance when it has ended."""

        async def found() -> dict[str, Any] | None:
            view = await self.view(instance)
            return view if view["ended_at"] is not None else None

        view: dict[str, Any] = await self.until(f"{instance} ended", found)
        return view

    async def at(self, instance: str, step: str, status: str) -> dict[str, Any]:
        """The instance when that step has that status."""

        async def found() -> dict[str, Any] | None:
            view = await self.view(instance)
            return view if view["steps"][step]["status"] == status else None

        view: dict[str, Any] = await self.until(f"{step} of {instance} {status}", found)
        return view

    async def reached(self, lives: int) -> None:
        """Returns in the given life of the service; what comes later than all else may still be on its way."""

        async def found() -> bool:
            return self.lives >= lives

        await self.until(f"life {lives} of the service", found)

    async def until_parked(self, instance: str) -> None:
        """Returns when no node holds the instance."""
        connection = await asyncpg.connect(self.database)

        async def found() -> bool:
            return await connection.fetchval("SELECT owner IS NULL AND due_at > now() FROM agiwo.run WHERE id = $1::uuid", instance) is True

        try:
            await self.until(f"{instance} parked", found)
        finally:
            await connection.close()

    async def stuck(self, deaths: int) -> bool:
        """Whether an instance that is in somebody's hands, or should be, has cost so many nodes in a row and got no further since."""
        connection = await asyncpg.connect(self.database)
        try:
            return bool(
                await connection.fetchval(
                    """
                    SELECT count(*) FROM agiwo.run r
                    WHERE r.deaths >= $1 AND (r.owner IS NOT NULL OR r.due_at <= now()) AND NOT (
                        SELECT count(*) = 2
                        FROM (SELECT h.epoch FROM agiwo.history h WHERE h.instance_id = r.id ORDER BY h.seq DESC LIMIT 2) AS latest
                        WHERE latest.epoch = r.epoch
                    )
                    """,
                    deaths,
                )
            )
        finally:
            await connection.close()

    async def trigger_and_hang_up(self, name: str, workflow: str = WORKFLOW) -> None:
        """The call of `trigger`, by a client that is gone before it could be answered."""
        _, writer = await asyncio.open_connection("127.0.0.1", self._port)
        body = json.dumps(trigger_body(name)).encode()
        head = f"POST /v1/workflows/{workflow}/trigger HTTP/1.1\r\nHost: x\r\nIdempotency-Key: key-{name}\r\n"
        writer.write(head.encode() + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def history(self, instance: str) -> list[dict[str, Any]]:
        """All records, whose numbers are without a gap."""
        items: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = await self.call("GET", f"/v1/instances/{instance}/history?after={after}&limit=1000")
            items += page["items"]
            after = page["next_after"]
        assert [record["seq"] for record in items] == list(range(1, len(items) + 1)), items
        return items

    # ------------------------------------------------------------ what came of it

    def calls(self, instance: str | None = None) -> Counter[tuple[str, str]]:
        """How often each step of each instance was called, as written down at the call."""
        lines = [json.loads(line) for line in self._calls.read_text().splitlines()] if self._calls.exists() else []
        return Counter((call["instance"], call["path"]) for call in lines if instance in (None, call["instance"]))

    def reports(self) -> dict[str, list[Mail]]:
        """The reports that arrived, by their recipient; notices of approvals are not among them."""
        out: dict[str, list[Mail]] = {}
        for mail in mails(self.mail_folder):
            if mail.to != REVIEWER:
                out.setdefault(mail.to, []).append(mail)
        return out

    def notices(self) -> Counter[str]:
        return Counter(mail.message_id for mail in mails(self.mail_folder) if mail.to == REVIEWER)

    async def succeeded(self, instances: dict[str, str]) -> None:
        """Each of these (recipient's name to instance) ended well, with one mail that says what SQL says; and there is nothing else."""
        reports = self.reports()
        table = expected_table(self.sales, WEEK)
        assert sorted(reports) == sorted(map(address, instances)), "reports for others, or for too few"
        for name, instance in instances.items():
            view = await self.over(instance)
            assert view["status"] == "SUCCESS", (view["error"], self.log_end())
            assert all(step["status"] in ("SUCCESS", "SKIPPED") for step in view["steps"].values()), view["steps"]
            found = reports[address(name)]
            assert [mail.message_id for mail in found] == [view["output"]["message_id"]], f"{name}: {found}"
            said = findings(found[0], 1, view["output"]["summary"], table)
            assert all(one.holds for one in said), said
            history = await self.history(instance)
            assert history[-1]["type"] == "instance.ended"
        await self.nothing_is_left(len(instances))

    async def nothing_is_left(self, instances: int) -> None:
        """The database holds so many instances, all ended, nothing owned, and nothing undelivered."""
        connection = await asyncpg.connect(self.database)
        try:
            assert await connection.fetchval("SELECT count(*) FROM agiwo.instance") == instances
            assert await connection.fetchval("SELECT count(*) FROM agiwo.instance WHERE ended_at IS NULL") == 0
            assert await connection.fetchval("SELECT count(*) FROM agiwo.run") == 0

            async def delivered() -> bool:
                return bool(await connection.fetchval("SELECT count(*) = 0 FROM agiwo.outbox WHERE state <> 'delivered'"))

            await self.until("all notices delivered", delivered)
        finally:
            await connection.close()

    async def close(self) -> None:
        if self._process is not None:
            if not self.gone():
                await self.kill()
            await self.ended()
        await self.client.aclose()


def address(name: str) -> str:
    return f"{name}@example.com"


def trigger_body(name: str) -> dict[str, Any]:
    return {"input": {"week": WEEK, "recipient": address(name)}}


@asynccontextmanager
async def site(folder: Path, database: str, *, mail: LoopbackMail | None = None, probe: bool = True) -> AsyncIterator[Site]:
    """The servers around a service that is not yet started.

    The mail server is a process of its own unless `mail` is given (with its folder at `folder / "mail"`); without `probe` the
    connection cannot be asked what became of a mail.
    """
    mail_folder = folder / "mail"
    async with ModelServer() as model:
        if mail is None:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "agiwo.testing.smtp", "--folder", str(mail_folder), stdout=subprocess.PIPE, env=clean_environment()
            )
            assert process.stdout is not None
            connection = json.loads(await process.stdout.readline())
        else:
            process = None
            connection = {"url": mail.url, "reconcile_url": mail.probe_url}
        if not probe:
            del connection["reconcile_url"]
        made = Site(folder, database, model, mail_folder, connection)
        try:
            yield made
        finally:
            await made.close()
            if process is not None:
                process.terminate()
                await process.wait()
