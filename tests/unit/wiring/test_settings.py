"""Settings: where they come from, and that every mistake is named by its place without showing a secret."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

import pytest

from agiwo.clock import SystemClock
from agiwo.leases.redis_link import RedisLink
from agiwo.models.profile import ModelProfile
from agiwo.settings import Settings, load_settings, own_secret_key, secrets_of
from agiwo.settings.parts import CONNECTION_OPTIONS, SettingsRefused
from agiwo.store.memory import MemoryDatabase
from agiwo.store.memory_webhooks import MemoryDeliveries, MemoryWebhooks
from agiwo.tools.builtin import standard_registry
from agiwo.wiring.credentials import hidden_texts
from agiwo.wiring.webhooks import webhook_parts
from agiwo.wiring.world import build_world


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AGIWO_"):
            monkeypatch.delenv(name)


def refused(config: Path | None = None, **given: object) -> str:
    with pytest.raises(SettingsRefused) as caught:
        load_settings(config, **given)
    return caught.value.message


def test_an_option_beats_the_environment_and_that_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agiwo.yaml"
    file.write_text("port: 1111\nlease: 20\nhost: 127.0.0.2\n")
    monkeypatch.setenv("AGIWO_PORT", "2222")
    monkeypatch.setenv("AGIWO_LEASE", "30")
    settings = load_settings(file, port=3333, host=None)
    assert (settings.port, settings.lease, settings.host) == (3333, 30.0, "127.0.0.2")
    monkeypatch.setenv("AGIWO_CONFIG", str(file))
    assert load_settings().host == "127.0.0.2"


def test_links_come_from_the_configured_address_or_where_it_listens() -> None:
    assert load_settings(port=8701).url == "http://127.0.0.1:8701"
    assert load_settings(host="::1").url == "http://[::1]:8700"
    assert load_settings(public_url="https://flows.example.com/").url == "https://flows.example.com"


def test_the_node_keeps_its_name_over_restarts() -> None:
    assert load_settings(port=8701).node == load_settings(port=8701).node
    assert load_settings(port=8701).node != load_settings(port=8702).node


def test_every_mistake_of_a_file_is_named_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "agiwo.yaml"
    file.write_text("lease: 1\nconections: {}\nconnections:\n  sales: {kind: sqlit, url: x}\napi_keys:\n  - {name: a}\n")
    message = refused(file)
    assert f"{file}:1:8: /lease: " in message
    assert f"{file}:2:1: " in message and "did you mean `connections`?" in message
    assert f"{file}:4:17: /connections/sales/kind: " in message
    assert f"{file}:6:5: /api_keys/0: exactly one of `sha256` and `env`" in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("sendr: a@b", "a connection of kind smtp has no `sendr`; did you mean `sender`?"),
        ("pool_size: 3", "a connection of kind smtp has no `pool_size`"),
        ("timeout: soon", '`timeout` is "soon", expected a number of seconds'),
        ("timeout: 0", "`timeout` is 0, expected a number of seconds"),
        ("max_bytes: true", "`max_bytes` is true, expected a whole number of bytes"),
        ("starttls: 1", "`starttls` is 1, expected true or false"),
    ],
)
def test_an_option_that_a_connection_does_not_have_is_refused(tmp_path: Path, options: str, said: str) -> None:
    file = tmp_path / "agiwo.yaml"
    file.write_text(f"connections:\n  mail: {{kind: smtp, url: 'smtp://h', sender: x@y, {options}}}\n")
    message = refused(file)
    assert said in message
    assert f"{file}:2:" in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "connections:\n  mail: {kind: smpt, url: hush-hush}",
            ":2:16: /connections/mail/kind: expected 'postgres', 'sqlite'",
        ),
        ("connections:\n  mail: {kind: smpt, url: hush-hush}", "did you mean 'smtp'?"),
        ("connections:\n  - hush-hush", ": /connections: expected a mapping"),
        ("lease: ten", ":1:8: /lease: expected a number"),
        ("lease: 1", ":1:8: /lease: expected at least 2"),
        ("log_level: inof", "did you mean 'info'?"),
        ("hooks:\n  bank: {secret: hush-hush, signl: {event: paid}}", "there is no `signl` here; did you mean `signal`?"),
        ("hooks:\n  bank: {secret: hush-hush, signal: {event: a, corelation_key: b}}", "did you mean `correlation_key`?"),
        ("breakers:\n  http.request: {failurs: 3}", "there is no `failurs` here; did you mean `failures`?"),
        ("api_keys:\n  - {name: a, evn: CI}", "there is no `evn` here; did you mean `env`?"),
        ("rates:\n  crm.find: {per: 3}", "/rates/crm.find/limit: is required and not there"),
    ],
)
def test_what_a_file_has_wrong_is_told_with_what_was_expected_and_the_nearest_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "agiwo.yaml"
    file.write_text(text)
    message = refused(file)
    assert said in message
    assert "hush" not in message and "Input should" not in message


PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()


def test_every_setting_and_every_option_stands_in_the_documentation() -> None:
    for name in Settings.model_fields:
        assert f"| `{name}` |" in PAGE or f"## `{name}`" in PAGE, name
    for kind, options in CONNECTION_OPTIONS.items():
        for name in (kind, *options):
            assert f"`{name}`" in PAGE, name


def test_the_documented_file_is_a_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agiwo.yaml"
    file.write_text(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
    settings = load_settings(file)
    assert set(settings.connections) == {"sales", "mail"}
    assert settings.api_keys and settings.roles and settings.channels
    for name, profile in settings.profiles().items():
        ModelProfile.from_mapping(name, profile, {"OPENAI_API_KEY": "k"})


def test_misspelt_variables_are_refused_and_those_of_kubernetes_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGIWO_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("AGIWO_PORT_8700_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("AGIWO_PORT", "tcp://10.0.0.1:8700")
    assert load_settings().port == 8700
    assert load_settings(port=8701).port == 8701
    monkeypatch.setenv("AGIWO_PORT", "tcp:8700")
    assert "AGIWO_PORT" in refused()
    monkeypatch.delenv("AGIWO_PORT")
    monkeypatch.setenv("AGIWO_DATABSE_URL", "postgresql://h/d")
    assert "did you mean AGIWO_DATABASE_URL?" in refused()


@pytest.mark.parametrize(
    ("name", "value"),
    [("AGIWO_SECRET_KEY", "hush-hush"), ("AGIWO_API_KEYS", "hush-hush"), ("AGIWO_CONNECTIONS", '{"a": {"kind": "x", "url": "hush-hush"}}')],
)
def test_a_wrong_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    message = refused()
    assert name in message
    assert "hush" not in message


def test_keys_come_as_texts_in_the_environment_or_as_digests_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGIWO_API_KEYS", "first-key-0123456789, second-key-0123456789")
    digests = [key.digest({}) for key in load_settings().api_keys]
    assert digests[1] == hashlib.sha256(b"second-key-0123456789").hexdigest()
    monkeypatch.delenv("AGIWO_API_KEYS")
    file = tmp_path / "agiwo.yaml"
    file.write_text("api_keys:\n  - {name: ci, env: CI_KEY, roles: [viewer]}\n")
    (key,) = load_settings(file).api_keys
    assert key.digest({"CI_KEY": "k"}) == hashlib.sha256(b"k").hexdigest()
    with pytest.raises(SettingsRefused, match="CI_KEY, which is not set"):
        key.digest({})


def test_the_shortcut_for_a_model_makes_the_default_profile() -> None:
    settings = load_settings(llm_base_url="http://127.0.0.1:1/v1", llm_model="m", llm_api_key="k")
    assert settings.profiles() == {"default": {"base_url": "http://127.0.0.1:1/v1", "model": "m", "api_key": "k"}}
    with pytest.raises(SettingsRefused, match="which model"):
        load_settings(llm_base_url="http://127.0.0.1:1/v1").profiles()


def test_secrets_for_templates_are_not_the_signing_key() -> None:
    environment = {"AGIWO_SECRET_KEY": "sign", "AGIWO_SECRET_TOKEN": "t", "AGIWO_SECRET_": "x", "OTHER": "y"}
    assert secrets_of(environment) == {"TOKEN": "t"}


def test_the_signing_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    first = own_secret_key(folder)
    assert len(first) >= 32
    assert own_secret_key(folder) == first
    assert stat.S_IMODE((folder / "secret_key").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["secret_key"]


def test_a_data_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsRefused, match="cannot be used"):
        own_secret_key(tmp_path / "file" / "below")


def test_no_key_and_no_password_may_stand_in_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "agiwo.yaml"
    file.write_text(
        "connections:\n  a: {kind: smtp, url: 'smtp://u:pass-%40@h'}\n  b: {kind: postgres, url: 'env:B_URL'}\n"
        "llm_profiles:\n  p: {base_url: 'http://h', model: m, api_key: 'env:P_KEY'}\n"
        "  q: {base_url: 'http://h', model: m, api_key: q-key}\n"
        "api_keys:\n  - {name: ci, env: CI_KEY}\n"
    )
    for name, value in (("B_URL", "postgresql://u:b-pass@h/d"), ("P_KEY", "p-key"), ("CI_KEY", "ci-key"), ("AGIWO_SECRET_TOKEN", "token")):
        monkeypatch.setenv(name, value)
    settings = load_settings(file, database_url="postgresql://u:db-pass@h/d", redis_url="redis://:r-pass@h", secret_key="s" * 32)
    held = {"pass-%40", "pass-@", "b-pass", "p-key", "q-key", "ci-key", "token", "db-pass", "r-pass", "s" * 32}
    assert set(hidden_texts(settings)) == held
    monkeypatch.setenv("AGIWO_API_KEYS", "first-key-0123456789, second-key-0123456789")
    assert {"first-key-0123456789", "second-key-0123456789"} <= set(hidden_texts(load_settings()))


def test_the_names_of_a_service_are_those_of_loopback_and_its_public_one() -> None:
    assert load_settings(public_url="https://flows.example.com:8443/x").names == {"127.0.0.1", "::1", "localhost", "flows.example.com"}
    assert "127.0.0.2" in load_settings(host="127.0.0.2").names


def test_a_breaker_of_a_tool_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    settings = load_settings(breakers={"http.requset": {"failures": 3}})
    with pytest.raises(SettingsRefused, match=r"did you mean `http\.request`"):
        build_world(settings, standard_registry(), SystemClock())
    known = load_settings(breakers={"http.request": {"failures": 3}, "llm_task": {"open_for": 5}})
    build_world(known, standard_registry(), SystemClock())
    assert known.breaker_policies() == {"http.request": {"failures": 3}, "llm_task": {"open_for": 5.0}}


GOOD = "whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo="


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hooks: {shop: {secret: 'env:NOT_SET', workflow: w}}", "hooks.shop.secret is to stand in the variable NOT_SET"),
        ("hooks: {shop: {secret: 'hush-hush', workflow: w}}", "hooks.shop.secret is no secret of a webhook"),
        (f"hooks: {{shop: {{secret: {GOOD}, workflow: w, input: '{{{{ input.x }}}}'}}}}", "hooks.shop.input reads `input`"),
        (f"hooks: {{shop: {{secret: {GOOD}, workflow: w, input: '{{{{ payload. }}}}'}}}}", "hooks.shop.input"),
        (f"hooks: {{shop: {{secret: {GOOD}}}}}", "exactly one of `workflow` and `signal`"),
        (f"hooks: {{shop: {{secret: {GOOD}, signal: {{event: e}}}}}}", "exactly one of `correlation_key` and `instance`"),
        (f"approval_channels: {{chat: {{secret: {GOOD}, deciders: ['role:x']}}}}", "deciders"),
        (f"approval_channels: {{chat: {{secret: [{GOOD}, 'env:NOT_SET'], deciders: ['user:*@x.y']}}}}", "NOT_SET"),
        ("callback_secrets: {default: 'env:NOT_SET'}", "callback_secrets.default"),
    ],
)
def test_a_hook_that_cannot_work_is_refused_at_start(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "agiwo.yaml"
    file.write_text(text)
    with pytest.raises(SettingsRefused) as caught:
        webhook_parts(load_settings(file), "k" * 40, MemoryWebhooks(), MemoryDeliveries(MemoryDatabase()))
    assert said in caught.value.message
    assert "hush-hush" not in caught.value.message and GOOD not in caught.value.message


def test_a_rate_of_a_tool_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    settings = load_settings(rates={"http.requset": {"limit": 3}})
    with pytest.raises(SettingsRefused, match=r"`rates` names .* did you mean `http\.request`"):
        build_world(settings, standard_registry(), SystemClock())
    build_world(load_settings(rates={"http.request": {"limit": 3, "per": 1}}), standard_registry(), SystemClock())


@pytest.mark.parametrize(
    "url",
    [
        "my-password", "http://:my-password@h", "redis://", "redis://:my-password@h:99999", "redis://:my-password@h/zero",
        "redis://:my-password@h?max_connections=1", "unix://", "redis://:my-password@[h",
    ],
)  # fmt: skip
def test_a_redis_url_that_cannot_be_one_is_refused_and_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGIWO_REDIS_URL", url)
    with pytest.raises(SettingsRefused, match="a Redis URL") as refused:
        load_settings()
    assert refused.value.problems[0].pointer == "AGIWO_REDIS_URL"
    assert "my-password" not in str(refused.value) + repr(refused.value.problems)


@pytest.mark.parametrize("url", ["redis://h", "rediss://u:p@h:6380/3?ssl_cert_reqs=required", "unix:///run/redis.sock?db=2", "redis://h/"])
def test_a_redis_url_is_taken(url: str) -> None:
    settings = load_settings(redis_url=url)
    assert settings.redis_url is not None
    assert RedisLink(settings.redis_url.get_secret_value()).up
