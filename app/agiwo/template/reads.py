"""What a template may read, found in its tree without running it, and which of these reads are guarded.

Publishing proves with this that every read has a value; a path is exact wherever the author wrote it out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes

from agiwo.template.absent import Path, nearest, path_text

#: Every name that a template may begin with.
ROOTS: frozenset[str] = frozenset({
    "input", "context", "state", "steps", "item", "index", "iteration", "error", "original", "result", "instance", "secrets",
    "compensation", "payload", "event", "budget",
})  # fmt: skip

Place = tuple[str | int, ...]  # a root and its path
Fact = tuple[bool, Place]  # the place is there (True) or is not (False)
Facts = frozenset[Fact]
Complain = Callable[[str, nodes.Node], None]
_NOTHING: Facts = frozenset()


@dataclass(frozen=True, slots=True)
class Read:
    """One thing that an expression may read.

    `guarded`: read only where the same expression made sure that it is there, or passes it to `default` or `is defined`.
    `unless`: the places (root first) of which at least the named ones are all absent when this is read: b in `a | default(b)` has (a,).
    """

    root: str
    path: Path
    guarded: bool
    unless: tuple[Place, ...] = ()


def constant_path(node: nodes.Node) -> Place | None:
    """Root and path of a node like a.b['c'][0], or None."""
    parts: list[str | int] = []
    while not isinstance(node, nodes.Name):
        if isinstance(node, nodes.Getattr):
            parts.append(node.attr)
        elif isinstance(node, nodes.Getitem) and (key := _constant_key(node.arg)) is not None:
            parts.append(key)
        else:
            return None
        node = node.node
    return (node.name, *reversed(parts))


def _constant_key(node: nodes.Node) -> str | int | None:
    if isinstance(node, nodes.Neg) and isinstance(node.node, nodes.Const) and type(node.node.value) is int:
        return -node.node.value
    if isinstance(node, nodes.Const) and (isinstance(node.value, str) or type(node.value) is int):
        return node.value
    return None


class Reader:
    """Walks a tree once and collects its reads; complains of names that cannot be."""

    def __init__(self, names: Collection[str], complain: Complain) -> None:
        self._roots = ROOTS | set(names)
        self._complain = complain
        self._found: dict[Read, None] = {}

    @property
    def reads(self) -> tuple[Read, ...]:
        return tuple(self._found)

    def statements(self, body: Iterable[nodes.Node], bound: set[str], facts: Facts = _NOTHING) -> None:
        """Read statements in order; `bound` grows by what they set."""
        for node in body:
            if isinstance(node, nodes.Output):
                for child in node.nodes:
                    self.expression(child, bound, facts)
            elif isinstance(node, nodes.If):
                self._if(node, bound, facts)
            elif isinstance(node, nodes.For):
                self._for(node, bound, facts)
            elif isinstance(node, nodes.Assign):
                self.expression(node.node, bound, facts)
                for name in targets(node.target):
                    if name in self._roots:
                        self._complain(f"`{name}` is the name of something given; set another name", node)
                    bound.add(name)

    def _if(self, node: nodes.If, bound: set[str], facts: Facts) -> None:
        inner = set(bound)
        for case in (node, *node.elif_):
            self.expression(case.test, bound, facts)
            holds, fails = self._facts(case.test, bound)
            branch = set(bound)
            self.statements(case.body, branch, facts | holds)
            inner |= branch
            facts |= fails
        branch = set(bound)
        self.statements(node.else_, branch, facts)
        bound |= inner | branch

    def _for(self, node: nodes.For, bound: set[str], facts: Facts) -> None:
        self.expression(node.iter, bound, facts)
        inner = bound | set(targets(node.target))
        for name in targets(node.target):
            if name in ("secrets", "steps", "loop"):
                self._complain(f"`{name}` cannot be the name of a loop's element", node)
        if node.test is not None:
            self.expression(node.test, inner, facts)
            facts |= self._facts(node.test, inner)[0]
        self.statements(node.body, inner | {"loop"}, facts)
        self.statements(node.else_, set(bound), facts)

    def expression(self, node: nodes.Node, bound: set[str], facts: Facts = _NOTHING, *, may_be_absent: bool = False) -> None:
        """Collect what an expression reads; `may_be_absent` where its user takes a name that is not there."""
        match node:
            case nodes.Name() | nodes.Getattr() | nodes.Getitem():
                self._path(node, bound, facts, may_be_absent)
            case nodes.And() | nodes.Or() | nodes.CondExpr():
                self._choice(node, bound, facts, may_be_absent)
            case nodes.Filter(name="default" | "d") if node.node is not None:
                self._default(node.node, list(node.args), list(node.kwargs), bound, facts, may_be_absent)
            case nodes.Call(node=nodes.Name(name="default")) if node.args:
                self._default(node.args[0], list(node.args[1:]), list(node.kwargs), bound, facts, may_be_absent)
            case nodes.Test(name="defined" | "undefined"):
                self.expression(node.node, bound, facts, may_be_absent=True)
            case nodes.Sub() if hint := hyphen_hint(node.left, node.right, self._roots | bound):
                self._complain(hint, node)
            case _:
                for child in node.iter_child_nodes():
                    # The name of a function is no read.
                    if not (isinstance(node, nodes.Call) and child is node.node and isinstance(child, nodes.Name)):
                        self.expression(child, bound, facts)

    def _choice(self, node: nodes.And | nodes.Or | nodes.CondExpr, bound: set[str], facts: Facts, may_be_absent: bool) -> None:
        """Conditions: what one part makes sure of holds in the part that is only reached because of it."""
        if isinstance(node, nodes.CondExpr):
            self.expression(node.test, bound, facts)
            holds, fails = self._facts(node.test, bound)
            self.expression(node.expr1, bound, facts | holds, may_be_absent=may_be_absent)
            if node.expr2 is not None:
                self.expression(node.expr2, bound, facts | fails, may_be_absent=may_be_absent)
            return
        self.expression(node.left, bound, facts)
        holds, fails = self._facts(node.left, bound)
        self.expression(node.right, bound, facts | (holds if isinstance(node, nodes.And) else fails))

    def _default(self, subject: nodes.Node, args: list[nodes.Expr], named: list[Any], bound: set[str], facts: Facts, absent: bool) -> None:
        self.expression(subject, bound, facts, may_be_absent=True)
        for child in (*args[:1], *(k.value for k in named)):
            self.expression(child, bound, facts | self._if_absent(subject, bound), may_be_absent=absent)
        for child in args[1:]:
            self.expression(child, bound, facts)

    def _if_absent(self, node: nodes.Node, bound: set[str]) -> Facts:
        """What is absent when this is: a place itself, and of `a | default(b)` both."""
        match node:
            case nodes.Filter(name="default" | "d", args=[other, *_]) if node.node is not None:
                return self._if_absent(node.node, bound) | self._if_absent(other, bound)
            case nodes.Call(node=nodes.Name(name="default"), args=[first, other, *_]):
                return self._if_absent(first, bound) | self._if_absent(other, bound)
        place = self._given(node, bound)
        return frozenset({(False, place)}) if place else _NOTHING

    def _given(self, node: nodes.Node, bound: set[str]) -> Place | None:
        """The constant place that a node reads, unless it begins with a local name."""
        place = constant_path(node)
        return place if place is not None and place[0] not in bound else None

    def _path(self, node: nodes.Expr, bound: set[str], facts: Facts, may_be_absent: bool) -> None:
        suffix: list[str | int] = []
        exact = True
        while not isinstance(node, nodes.Name):
            if isinstance(node, nodes.Getattr):
                suffix.append(node.attr)
            elif isinstance(node, nodes.Getitem):
                key = _constant_key(node.arg)
                if key is None:
                    # What stands behind an index known only at run time is not known either: the prefix counts as read.
                    self.expression(node.arg, bound, facts)
                    suffix, exact = [], False
                else:
                    suffix.append(key)
            else:
                self.expression(node, bound, facts, may_be_absent=may_be_absent)
                return
            node = node.node
        if node.name in bound:
            return
        path = tuple(reversed(suffix))
        if node.name not in self._roots:
            self._unknown(node, bound)
        elif node.name == "steps" and len(path) < 2 and not (exact and len(path) == 1 and may_be_absent):
            self._complain(_whole_steps(path, exact), node)
        elif node.name != "secrets":
            place: Place = (node.name, *path)
            absent = tuple(sorted((p for there, p in facts if not there), key=repr))
            self._found[Read(node.name, path, may_be_absent or _guards(facts, place), absent)] = None

    def _unknown(self, node: nodes.Name, bound: set[str]) -> None:
        known = sorted(self._roots | bound)
        near = nearest(node.name, known)
        self._complain(f"there is no `{node.name}`{f'; did you mean `{near}`?' if near else ''} known here: {', '.join(known)}", node)

    def _facts(self, node: nodes.Node, bound: set[str]) -> tuple[Facts, Facts]:
        """What is known when a condition holds, and when it fails."""
        match node:
            case nodes.Not():
                holds, fails = self._facts(node.node, bound)
                return fails, holds
            case nodes.And():
                left, right = self._facts(node.left, bound), self._facts(node.right, bound)
                return left[0] | right[0], left[1] & right[1]
            case nodes.Or():
                left, right = self._facts(node.left, bound), self._facts(node.right, bound)
                return left[0] & right[0], left[1] | right[1]
            case nodes.Test(name="defined" | "undefined"):
                place = self._given(node.node, bound)
                if place is None:
                    return _NOTHING, _NOTHING
                known: tuple[Facts, Facts] = (frozenset({(True, place)}), frozenset({(False, place)}))
                return known if node.name == "defined" else known[::-1]
            case nodes.Compare(ops=[nodes.Operand(op="eq" | "ne") as operand]):
                succeeded = self._succeeded(node.expr, operand.expr, bound) or self._succeeded(operand.expr, node.expr, bound)
                if succeeded is None:
                    return _NOTHING, _NOTHING
                known = (frozenset({(True, succeeded)}), frozenset({(False, succeeded)}))
                return known if operand.op == "eq" else known[::-1]
            case nodes.Filter(name="default" | "d", args=[nodes.Const() as other, *_]) if node.node is not None and not other.value:
                place = self._given(node.node, bound)
                return (frozenset({(True, place)}) if place else _NOTHING), _NOTHING
        return _NOTHING, _NOTHING

    def _succeeded(self, status: nodes.Node, text: nodes.Node, bound: set[str]) -> Place | None:
        """The output that is there when `steps.X.status` equals 'SUCCESS'."""
        place = self._given(status, bound)
        if place is None or len(place) != 3 or place[0] != "steps" or place[2] != "status":
            return None
        return ("steps", place[1], "output") if isinstance(text, nodes.Const) and text.value == "SUCCESS" else None


def targets(node: nodes.Node) -> list[str]:
    """The names that an assignment or a loop sets."""
    if isinstance(node, nodes.Name):
        return [node.name]
    if isinstance(node, nodes.Tuple):
        return [name for item in node.items for name in targets(item)]
    return []


def _guards(facts: Facts, place: Place) -> bool:
    """Whether a known place says that this one can be read: one lies within the other; for steps, the same member of the same step."""
    for there, known in facts:
        if not there or (place[0] == "steps" and len(known) < 3):
            continue
        shared = min(len(known), len(place), 3 if place[0] == "steps" else 100)
        if known[:shared] == place[:shared]:
            return True
    return False


def _whole_steps(path: Path, exact: bool) -> str:
    if not exact:
        return "which step is read must be known before: write `steps.NAME.output`, not an index that is worked out"
    step = path_text("steps", path or ("NAME",))
    return f"`{path_text('steps', path)}` is a group of names, not a value; write `{step}.output`, `{step}.status` or the like"


def hyphen_hint(left: nodes.Node, right: nodes.Node, roots: Collection[str]) -> str | None:
    """What to say of a.b-c where c is no name: the hyphen was meant as part of a name."""
    a, b = constant_path(left), constant_path(right)
    if a is None or b is None or len(a) < 2 or b[0] in roots:
        return None
    if a[0] == "steps":
        return f"`{path_text('steps', a[1:])}-{b[0]}` reads as minus: a step's id has no hyphen, only letters, digits and _"
    return f"`{path_text(str(a[0]), a[1:])}-{b[0]}` reads as minus: write {path_text(str(a[0]), (*a[1:-1], f'{a[-1]}-{b[0]}'))}"
