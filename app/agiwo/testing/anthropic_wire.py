"""The Anthropic messages protocol of the scripted model: what a request must hold, and what an answer looks like.

Says nothing of its own: which text is answered is told by whoever calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agiwo.values import JSON

_REASONS = {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal", "tool_calls": "tool_use"}


def fault(body: Mapping[str, Any], headers: Mapping[str, str]) -> str | None:
    """Why a request is none of this protocol; None if it is one."""
    if "anthropic-version" not in headers:
        return "anthropic-version: header is required"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens: Field required"
    for message in body["messages"]:
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            return "messages: the role must be user or assistant"
        if not message.get("content"):
            return "messages: text content blocks must be non-empty"
    return None


def prompt_of(body: Mapping[str, Any]) -> str:
    """All that was said to the model, as one text."""
    said = [body.get("system"), *(message.get("content") for message in body["messages"])]
    return "\n\n".join(text for text in said if isinstance(text, str))


def schema_of(body: Mapping[str, Any]) -> Mapping[str, JSON] | None:
    """The schema that the answer has to fit, None if any text will do."""
    forced = _forced(body)
    if forced is not None:
        return next((tool["input_schema"] for tool in body.get("tools", ()) if tool.get("name") == forced), None)
    form = (body.get("output_config") or {}).get("format")
    return form.get("schema") if isinstance(form, dict) else None


def message(body: Mapping[str, Any], number: str, text: str, finish: str | None, *, as_tool: bool) -> dict[str, JSON]:
    """An answer; where the request forces a tool (and with `as_tool`) the text is what the tool is called with."""
    reason = None if finish is None else _REASONS.get(finish, finish)
    content: list[JSON] = [{"type": "text", "text": text}] if text else []
    forced = _forced(body)
    if forced is not None and as_tool and reason == "end_turn":
        content = [{"type": "tool_use", "id": f"toolu_{number}", "name": forced, "input": _loaded(text)}]
        reason = "tool_use"
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
    }


def _forced(body: Mapping[str, Any]) -> str | None:
    choice = body.get("tool_choice")
    return choice.get("name") if isinstance(choice, dict) and choice.get("type") == "tool" else None


def _loaded(text: str) -> JSON:
    try:
        return json.loads(text)
    except ValueError:
        return text
