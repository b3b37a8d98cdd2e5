"""`agiwo keys`: the very first key on the database itself, the others over the API."""

from __future__ import annotations

import signal
from pathlib import Path

from kit.process import SECRET, Service, agiwo, free_port


def test_the_first_key_is_made_offline_and_opens_a_service_off_loopback(empty_database: str, tmp_path: Path) -> None:
    where = {"AGIWO_DATABASE_URL": empty_database, "AGIWO_SECRET_KEY": SECRET}
    refused = agiwo("serve", "--host", "0.0.0.0", "--port", str(free_port()), **where)
    assert (refused.status, "without API keys" in refused.err) == (2, True)
    first = agiwo("keys", "create", "boss", "--role", "admin", "--offline", **where)
    assert first.status == 0, first.err
    key = first.out.strip()
    assert key.startswith("agw_") and "shown this once" in first.err
    again = agiwo("keys", "create", "boss", "--role", "admin", "--offline", "--json", **where)
    assert (again.status, "live key called boss" in again.json["error"]) == (1, True)
    service = Service(["--host", "0.0.0.0", "--port", str(free_port())], where, cwd=tmp_path)
    try:
        reach = {"AGIWO_SERVER": service.url.replace("0.0.0.0", "127.0.0.1")}
        assert agiwo("keys", "list", **reach).status == 1, "it asks for a key"
        reach["AGIWO_API_KEY"] = key
        made = agiwo("keys", "create", "ci", "--role", "author", "--role", "operator", "--expires-in", "90d", "--json", **reach)
        assert made.json["status"] == "active" and made.json["key"].startswith("agw_")
        rotated = agiwo("keys", "rotate", made.json["key_id"], "--overlap", "1h", **reach)
        assert rotated.out.startswith("agw_"), rotated.err
        revoked = agiwo("keys", "revoke", made.json["key_id"], "--reason", "it leaked", **reach)
        assert revoked.out.strip().endswith("ci is revoked"), revoked.err
        listed = agiwo("keys", "list", **reach).out.splitlines()
        assert [line.split("  ")[1] for line in listed] == ["ci", "ci", "boss"]
        assert [line.split("  ")[2].split(",")[0] for line in listed] == ["active", "revoked", "active"]
        wrong = agiwo("keys", "revoke", "nonsense", **reach)
        assert (wrong.status, "is no id of a key" in wrong.err) == (2, True)
    finally:
        assert service.end(signal.SIGTERM) == 0
