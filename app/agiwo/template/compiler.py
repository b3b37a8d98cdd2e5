"""A template's statements to Python closures that write to a sink: text, `{{ }}`, if, for and set, and nothing else.

What a statement cannot do is left out of this file, not checked for at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes

from agiwo.errors import TemplateError
from agiwo.template.absent import Absent, described
from agiwo.template.evaluation import ExpressionCompiler, Frame, never
from agiwo.template.reads import targets

MAX_LOOPS = 4  #: how deep `for` may stand in `for`
Exec = Callable[[Frame], None]


@dataclass(slots=True)
class Compiler(ExpressionCompiler):
    """Compiles one template's body and, as what it inherits, its expressions."""

    _loops: int = 0

    def prepare(self, body: Sequence[nodes.Node]) -> None:
        """Note the names that the template sets itself; these are looked up before the scope's."""
        for node in body:
            for setter in ([node] if isinstance(node, nodes.For | nodes.Assign) else []) + list(node.find_all((nodes.For, nodes.Assign))):
                self.assigned.update(targets(setter.target))
                if isinstance(setter, nodes.For):
                    self.assigned.add("loop")

    def body(self, statements: Sequence[nodes.Node]) -> Exec:
        """Statements as one procedure that writes to the frame's sink."""
        steps: list[Exec] = []
        for node in statements:
            if isinstance(node, nodes.Output):
                steps.extend(self._output(child) for child in node.nodes)
            elif isinstance(node, nodes.If):
                steps.append(self._if(node))
            elif isinstance(node, nodes.For):
                steps.append(self._for(node))
            elif isinstance(node, nodes.Assign):
                steps.append(self._assign(node))
            else:
                self.complain(f"`{type(node).__name__.lower()}` is not allowed; only if, for, set and raw are statements", node)
        if len(steps) == 1:
            return steps[0]

        def run(frame: Frame) -> None:
            for step in steps:
                step(frame)

        return run

    def _output(self, node: nodes.Expr) -> Exec:
        if isinstance(node, nodes.TemplateData):
            data = node.data
            return lambda frame: frame.sink.constant(data)
        value = self.loose(node, root=True)

        def write(frame: Frame) -> None:
            found = value(frame)
            if type(found) is Absent:
                if not frame.lenient:
                    raise TemplateError(found.message())
                found = None
            frame.sink.insert(found)

        return write

    def _if(self, node: nodes.If) -> Exec:
        cases = [(self.strict(case.test), self.body(case.body)) for case in (node, *node.elif_)]
        otherwise = self.body(node.else_)

        def run(frame: Frame) -> None:
            for test, body in cases:
                if test(frame):
                    body(frame)
                    return
            otherwise(frame)

        return run

    def _for(self, node: nodes.For) -> Exec:
        if node.recursive or self._loops == MAX_LOOPS:
            self.complain("a recursive loop is not allowed" if node.recursive else f"loops are nested deeper than {MAX_LOOPS}", node)
            return never
        self._loops += 1
        bind = self._binder(node.target)
        # Work inside that counts nothing itself must not be free: a long body costs more a round.
        cost = sum(1 for part in (*node.body, node.test) if part is not None for _ in part.find_all(nodes.Node)) // 10
        chosen = self._chosen(node, bind, cost)
        body = self.body(node.body)
        self._loops -= 1
        otherwise = self.body(node.else_)
        shows_loop = any(name.name == "loop" for part in node.body for name in part.find_all(nodes.Name))

        def run(frame: Frame) -> None:
            outer = frame.locals
            rounds = chosen(frame, outer)
            for index, element in enumerate(rounds):
                frame.meter.walk(cost + len(outer))
                frame.locals = dict(outer)
                bind(frame, element)
                if shows_loop:
                    frame.locals["loop"] = _loop(index, len(rounds))
                body(frame)
            frame.locals = outer
            if not rounds:
                otherwise(frame)

        return run

    def _chosen(self, node: nodes.For, bind: Callable[[Frame, Any], None], cost: int) -> Callable[[Frame, dict[str, object]], list[Any]]:
        """The elements that a loop goes over: all of its list, or those for which its `if` holds."""
        items = self.strict(node.iter)
        test = self.strict(node.test) if node.test is not None else None

        def run(frame: Frame, outer: dict[str, object]) -> list[Any]:
            elements = items(frame)
            if not isinstance(elements, list | tuple | dict | str):
                raise TemplateError(f"`for` needs a list, found {described(elements)}")
            frame.meter.walk(len(elements))
            if test is None:
                return list(elements)
            rounds = []
            for element in elements:
                frame.meter.walk(cost)
                frame.locals = dict(outer)
                bind(frame, element)
                if test(frame):
                    rounds.append(element)
            return rounds

        return run

    def _assign(self, node: nodes.Assign) -> Exec:
        value, bind = self.strict(node.node), self._binder(node.target)
        return lambda frame: bind(frame, value(frame))

    def _binder(self, target: nodes.Node) -> Callable[[Frame, Any], None]:
        if isinstance(target, nodes.Name):
            name = target.name

            def one(frame: Frame, value: Any) -> None:
                frame.locals[name] = value

            return one
        if not isinstance(target, nodes.Tuple):
            self.complain("only a name can be set", target)
            return lambda frame, value: None
        parts = [self._binder(item) for item in target.items]

        def many(frame: Frame, value: Any) -> None:
            if not isinstance(value, list | tuple) or len(value) != len(parts):
                size = f" of {len(value)}" if isinstance(value, list | tuple) else ""
                raise TemplateError(f"{len(parts)} names are set from {described(value)}{size}; a list of {len(parts)} is needed")
            for bind, item in zip(parts, value, strict=True):
                bind(frame, item)

        return many


def _loop(index: int, length: int) -> dict[str, Any]:
    return {
        "index": index + 1,
        "index0": index,
        "revindex": length - index,
        "revindex0": length - index - 1,
        "first": index == 0,
        "last": index == length - 1,
        "length": length,
    }
