"""Template text to a syntax tree, by Jinja's own lexer and parser; its compiler and runtime are not used.

Nothing is evaluated here, not even a constant, so no text can cost more than its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from agiwo.errors import ValueRefused
from agiwo.template.meter import MAX_SOURCE
from agiwo.values import check

MAX_NESTING = 100
_MARKS = ("{{", "{%", "{#")
# Jinja turns every line end into \n; a carriage return travels as a character that its lexer takes for white space.
_STAND_INS = ("\x1f", "\x1e", "\x1d", "\x1c", "\x85", "\u2028")
_ENVIRONMENT = Environment(keep_trailing_newline=True, optimized=False, autoescape=False)  # noqa: S701 - only its parser is used


class Broken(Exception):
    """The text is no template; `offset` is the place in it."""

    def __init__(self, message: str, offset: int = 0) -> None:
        super().__init__(message)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Parsed:
    """A template's tree, and where in the source each `{{ }}` stands, in order."""

    source: str
    body: tuple[nodes.Node, ...]
    spans: tuple[tuple[int, int], ...]

    @property
    def single(self) -> nodes.Expr | None:
        """The expression, if the template is exactly one `{{ expression }}`."""
        outputs = [child for node in self.body for child in (node.nodes if isinstance(node, nodes.Output) else [node])]
        if len(outputs) == 1 and isinstance(outputs[0], nodes.Expr) and not isinstance(outputs[0], nodes.TemplateData):
            return outputs[0]
        return None


def is_template(text: str) -> bool:
    """Whether a text holds any template syntax, so that it has to be rendered."""
    return "{" in text and any(mark in text for mark in _MARKS)


def parse_template(source: str) -> Parsed:
    """The tree of a text with templates in it. Raises Broken."""
    text, stand_in = _prepared(source)
    try:
        tree = Parser(_ENVIRONMENT, text).parse()
        spans = tuple(_spans(text))
    except (TemplateSyntaxError, ValueError, OverflowError, RecursionError) as exc:
        raise _broken(text, exc) from None
    _inspect(tree, stand_in)
    return Parsed(source, tuple(tree.body), spans)


def parse_expression(source: str) -> nodes.Expr:
    """The tree of one expression, bare or as exactly one `{{ }}`. Raises Broken."""
    stripped = source.strip()
    if stripped.startswith(("{{", "{%", "{#")):
        single = parse_template(stripped).single
        if single is None:
            raise Broken("an expression stands alone or as exactly one {{ }}; nothing may stand around the braces")
        return single
    if not stripped:
        raise Broken("an expression is missing")
    text, stand_in = _prepared(source)
    try:
        parser = Parser(_ENVIRONMENT, text, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            parser.fail("chunk after expression", parser.stream.current.lineno)
    except (TemplateSyntaxError, ValueError, OverflowError, RecursionError) as exc:
        if "{{" in source or "}}" in source:
            raise Broken("an expression stands alone or as exactly one {{ }}; nothing may stand around the braces") from None
        raise _broken(text, exc) from None
    _inspect(tree, stand_in)
    return tree


def _prepared(source: str) -> tuple[str, str]:
    if len(source) > MAX_SOURCE:
        raise Broken(f"the template is longer than {MAX_SOURCE:,} characters ({len(source):,})")
    try:
        check(source)
    except ValueRefused as exc:
        raise Broken(exc.message) from None
    if "\r" not in source:
        return source, ""
    stand_in = next((c for c in _STAND_INS if c not in source), "")
    return (source.replace("\r", stand_in) if stand_in else source), stand_in


def _broken(text: str, exc: Exception) -> Broken:
    if isinstance(exc, TemplateSyntaxError):
        lines = text.split("\n")
        offset = sum(len(line) + 1 for line in lines[: exc.lineno - 1])
        return Broken(_plain(exc.message or "syntax error"), min(offset, len(text)))
    if isinstance(exc, RecursionError):
        return Broken("the template is nested too deep")
    return Broken("a number in the template is too long")


def _plain(message: str) -> str:
    if message == "chunk after expression":
        return "something stands behind the end of the expression"
    if message.startswith("Encountered unknown tag"):
        return "e" + message[1:].split(".", 1)[0] + "; only if, for, set and raw are statements"
    hint = "; to write these signs as text, put it between {% raw %} and {% endraw %}" if "end of" in message.lower() else ""
    return message[0].lower() + message[1:].rstrip(".") + hint


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each {{ … }} begins and ends."""
    at = start = 0
    for _, kind, value in _ENVIRONMENT.lexer.tokeniter(text, None):
        at = text.index(value, at)
        if kind == "variable_begin":
            start = at
        at += len(value)
        if kind == "variable_end":
            yield start, at - len(value) + len(value.rstrip())


def _inspect(tree: nodes.Node, stand_in: str) -> None:
    """Refuse trees that are too deep and text that cannot be kept; put carriage returns back."""
    level: list[nodes.Node] = [tree]
    depth = 0
    while level:
        depth += 1
        if depth > MAX_NESTING:
            raise Broken(f"the template is nested deeper than {MAX_NESTING}")
        for node in level:
            if isinstance(node, nodes.TemplateData) and stand_in:
                node.data = node.data.replace(stand_in, "\r")
            elif isinstance(node, nodes.Const) and not isinstance(node, nodes.TemplateData):
                if stand_in and isinstance(node.value, str):
                    node.value = node.value.replace(stand_in, "\r")
                try:
                    check(node.value)
                except ValueRefused as exc:
                    raise Broken(exc.message) from None
        level = [child for node in level for child in node.iter_child_nodes()]
