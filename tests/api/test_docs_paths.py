"""Every call that a page of docs/ names is one that the service takes, with query parameters that it knows."""

from __future__ import annotations

import re
from pathlib import Path

from kit.api import World

DOCS = Path(__file__).parents[2] / "docs"
CALL = re.compile(r"`(GET|POST|PATCH|DELETE) (/[^`\s?]*)(?:\?([^`\s]*))?")


async def test_every_call_in_the_docs_is_one_of_the_api(world: World) -> None:
    paths = (await world.anonymous.get("/openapi.json")).json()["paths"]
    known = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), methods) for path, methods in paths.items()]
    checked = 0
    for page in DOCS.glob("*.md"):
        for method, path, query in CALL.findall(page.read_text("utf-8")):
            if "…" in path:
                continue
            fitting = [methods[method.lower()] for pattern, methods in known if pattern.fullmatch(path) and method.lower() in methods]
            assert fitting, f"{page.name}: {method} {path}"
            names = {parameter["name"] for operation in fitting for parameter in operation.get("parameters", ())}
            for part in filter(None, re.split(r"[&\[\]]", query)):
                assert part.partition("=")[0] in names, f"{page.name}: {method} {path}?{query}"
            checked += 1
    assert checked > 60
