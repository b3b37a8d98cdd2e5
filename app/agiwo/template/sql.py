"""Reading the author's SQL around its templates, so that data can only ever be bound: quotes, comments, names are refused places.

It parses no SQL beyond what decides where a parameter may stand, and never rewrites a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jinja2 import nodes

_WORD = re.compile(r"[\w$]")
_DOLLAR = re.compile(r"\$(?:[^\W\d]\w*)?\$")
_COLON_NAME = re.compile(r":(\w+)")
_LITERAL = re.compile(r"\{\{.*?\}\}|[eE]?'((?:[^'{]|\{(?!\{)|\{\{.*?\}\}|'')*)'", re.DOTALL)
_HOLE = re.compile(r"(\{\{.*?\}\})", re.DOTALL)
_NAMES_FOLLOW = frozenset({"join", "into", "update", "table", "by", "index", "schema", "as"})
_FROM_OF_FUNCTIONS = frozenset({"extract", "substring", "trim", "overlay", "position"})
_MAX_STATES = 16
_NO_NAME = "and a name cannot come from data; write the name itself, or choose among written names with {% if %}"
Complain = Callable[[str, nodes.Node], None]


@dataclass(frozen=True, slots=True)
class State:
    """Where in SQL the text has arrived: inside what (`mode`), and what stood just before."""

    mode: str = "code"  # code, ', e', ", `, --, /*N, or a dollar quote's tag
    glue: str = ""  # the last character, "" after a space or at the start
    word: str = ""  # the last word, lower case
    words_before: tuple[str, ...] = ()  # the word before, for IS DISTINCT FROM
    parens: tuple[str, ...] = ()  # the word before each open parenthesis
    hole: str = ""  # a template stands directly before: in this very text, or at the end of a statement ("border")


def colon_names(body: Iterable[nodes.Node]) -> frozenset[str]:
    """The names behind colons in the author's own text, which parameters must not take."""
    return frozenset(name for node in body for data in _data(node) for name in _COLON_NAME.findall(data))


def _data(node: nodes.Node) -> Iterable[str]:
    if isinstance(node, nodes.TemplateData):
        return [node.data]
    return [child.data for child in node.find_all(nodes.TemplateData)]


class SqlCheck:
    """Walks a template's body and complains of every `{{ }}` that stands where no parameter can."""

    def __init__(self, source: str, span_of: Callable[[nodes.Node], tuple[int, int] | None], complain: Complain) -> None:
        self._source = source
        self._span_of = span_of
        self._complain = complain
        self._said: set[int] = set()

    def run(self, body: Sequence[nodes.Node]) -> None:
        """Check a whole parameter."""
        self._body(body, frozenset({State()}))

    def _body(self, body: Sequence[nodes.Node], states: frozenset[State]) -> frozenset[State]:
        for node in body:
            if isinstance(node, nodes.Output):
                for child in node.nodes:
                    states = self._text(child, states) if isinstance(child, nodes.TemplateData) else self._hole(child, states)
            elif isinstance(node, nodes.If):
                states = self._plain(node, states)
                ends = [self._body(branch, states) for branch in (node.body, *(e.body for e in node.elif_), node.else_)]
                states = self._plain(node, frozenset().union(*ends))
            elif isinstance(node, nodes.For):
                states = self._plain(node, states)
                once = self._plain(node, states | self._body(node.body, states))
                states = self._plain(node, once | self._body(node.body, once) | self._body(node.else_, states))
        return states

    def _plain(self, node: nodes.Node, states: frozenset[State]) -> frozenset[State]:
        """At the border of a statement no quote or comment may be open: its end would depend on data."""
        if any(state.mode != "code" for state in states):
            self._say("a quote or comment must not be open where `if` or `for` begins or ends in SQL", node)
            return frozenset({State()})
        return frozenset(replace(s, hole=s.hole and "border") for s in sorted(states, key=repr)[:_MAX_STATES])

    def _text(self, node: nodes.TemplateData, states: frozenset[State]) -> frozenset[State]:
        out = set()
        for state in states:
            if state.hole and node.data and state.mode == "code" and (_WORD.match(node.data) or node.data[0] in '."`('):
                self._say(f"{self._shown(None, node)}the text directly behind makes it part of a name; a name cannot come from data", node)
            out.add(advance(state, node.data))
        return frozenset(out)

    def _hole(self, node: nodes.Node, states: frozenset[State]) -> frozenset[State]:
        for state in sorted(states, key=repr):
            problem = _problem(state)
            if problem:
                self._say(f"{self._shown(node, node)}{problem}{self._corrected(node, state)}", node)
                break
        return frozenset(
            replace(state, glue="", hole="here", word="", words_before=()) if state.mode == "code" else state for state in states
        )

    def _say(self, message: str, node: nodes.Node) -> None:
        if id(node) not in self._said:
            self._said.add(id(node))
            self._complain(message, node)

    def _shown(self, node: nodes.Node | None, at: nodes.Node) -> str:
        span = self._span_of(node) if node is not None else None
        return f"`{self._source[span[0] : span[1]]}`: " if span else f"`{self._line(at.lineno or 1)}`: "

    def _line(self, number: int) -> str:
        lines = self._source.split("\n")
        return lines[min(number, len(lines)) - 1].strip()

    def _corrected(self, node: nodes.Node, state: State) -> str:
        span = self._span_of(node)
        if state.mode not in ("'", "e'") or span is None:
            return ""
        begin = self._source.rfind("\n", 0, span[0]) + 1
        end = self._source.find("\n", span[1])
        line = self._source[begin : end if end >= 0 else None]
        fixed = _LITERAL.sub(_without_quotes, line)
        return f": write `{fixed.strip()}`" if fixed != line else ""


def _without_quotes(match: re.Match[str]) -> str:
    inner = match.group(1)
    if inner is None or "{{" not in inner:
        return match.group()
    return " || ".join(piece if piece.startswith("{{") else f"'{piece}'" for piece in _HOLE.split(inner) if piece)


def _problem(state: State) -> str | None:
    """Why no parameter can stand here, or None."""
    if state.mode in ("'", "e'"):
        return "a value is never put inside quotes, it is bound as a parameter"
    if state.mode in ('"', "`"):
        return "a quoted name cannot come from data; write the name itself, or choose among written names with {% if %}"
    if state.mode.startswith("$"):
        return "a value is never put inside a dollar-quoted text"
    if state.mode != "code":
        return "a value inside a comment has no effect; remove the comment or the template"
    if state.hole == "here":
        return "two values stand side by side; put an operator or a comma between them"
    if state.glue == ":":
        return "directly behind a colon it would read as a cast or a name; put a space before it, or write the type itself"
    if state.glue and (_WORD.match(state.glue) or state.glue in '."`@#'):
        return f"it would become part of a name, {_NO_NAME}"
    from_function = bool(state.parens) and state.parens[-1] in _FROM_OF_FUNCTIONS
    names_table = state.word == "from" and state.words_before != ("distinct",) and not from_function
    if not state.glue and (state.word in _NAMES_FOLLOW or names_table):
        return f"behind {state.word.upper()} stands a name, {_NO_NAME}"
    return None


def advance(state: State, text: str) -> State:
    """The state behind `text`."""
    at = 0
    while at < len(text):
        at, state = (_code if state.mode == "code" else _quoted)(state, text, at)
    return replace(state, hole="") if text else state


def _code(state: State, text: str, at: int) -> tuple[int, State]:
    char, two = text[at], text[at : at + 2]
    if char == "'":
        # E'…' knows backslashes; the letter must be a word of its own.
        return at + 1, replace(state, mode="e'" if state.glue in ("e", "E") and state.word == "e" else "'", hole="")
    if char in '"`':
        return at + 1, replace(state, mode=char, hole="")
    if two in ("--", "/*"):
        return at + 2, replace(state, mode="--" if two == "--" else "/*1", hole="")
    if char == "$" and not (state.glue and _WORD.match(state.glue)) and (tag := _DOLLAR.match(text, at)):
        return tag.end(), replace(state, mode=tag.group(), hole="")
    if _WORD.match(char):
        joined = bool(state.glue) and _WORD.match(state.glue) is not None
        before = state.words_before if joined else ((state.word,) if state.word else ())
        return at + 1, replace(state, glue=char, word=(state.word if joined else "") + char.lower(), words_before=before, hole="")
    if char.isspace():
        return at + 1, replace(state, glue="", hole="")
    if char == "(":
        return at + 1, replace(state, glue=char, parens=(*state.parens[-20:], state.word), word="", words_before=(), hole="")
    parens = state.parens[:-1] if char == ")" else state.parens
    return at + 1, replace(state, glue=char, parens=parens, word="", words_before=(), hole="")


def _quoted(state: State, text: str, at: int) -> tuple[int, State]:
    mode = state.mode
    two = text[at : at + 2]
    closed = replace(state, mode="code", glue=mode[-1], word="", words_before=())
    if mode == "--":
        return at + 1, replace(closed, glue="") if text[at] in "\n\r" else state
    if mode.startswith("/*"):
        depth = int(mode[2:]) + (1 if two == "/*" else -1 if two == "*/" else 0)
        if two not in ("/*", "*/"):
            return at + 1, state
        return at + 2, replace(state, mode=f"/*{depth}") if depth else replace(closed, glue="")
    if mode.startswith("$"):
        end = text.find(mode, at)
        return (len(text), state) if end < 0 else (end + len(mode), closed)
    if mode == "e'" and text[at] == "\\":
        return at + 2, state
    if text[at] == mode[-1]:
        return (at + 2, state) if two == text[at] * 2 else (at + 1, closed)
    return at + 1, state


def split_statement(statement: str, values: Mapping[str, object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A rendered statement as its texts and, between them, the names of the values to bind: n + 1 texts, n names.

    This is how a tool binds: only a name in `values` is a parameter, each stands once, and everything else that has a colon
    (a cast, a time in a literal, an array's bounds) is the author's own text.
    """
    texts, names, start = [], [], 0
    for match in _COLON_NAME.finditer(statement):
        if match.group(1) in values:
            texts.append(statement[start : match.start()])
            names.append(match.group(1))
            start = match.end()
    return (*texts, statement[start:]), tuple(names)
