"""A declared command: a program that the operator allows by the tool's name, with a list of arguments and never a shell.

Each argument is filled in by itself, so that data can be no second argument, and no option unless the operator wrote the dash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agiwo.definition.report import Path, Report
from agiwo.errors import PermissionDeniedError, StepError, ValidationError, ValueRefused
from agiwo.tools.context import ToolContext
from agiwo.tools.declared.filling import MISSING, Filling, Leaf, fill, scope_of, secret_of, written
from agiwo.tools.declared.process import Ended, Program, run
from agiwo.tools.declared.statuses import Meaning, meaning_of, meanings
from agiwo.tools.exchange import MAX_BODY
from agiwo.values import check, decode_strict, encode, shown

_SHOWN = 2_000


@dataclass(frozen=True, slots=True)
class CommandTool:
    """What a declared command does when it is called."""

    name: str
    arguments: list[Any]
    environment: Mapping[str, Any]
    folder: str | None
    stdin: Any
    output: str
    max_bytes: int
    errors: tuple[Meaning, ...]
    expect: tuple[int, ...]

    async def call(self, arguments: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Raises StepError: by the declared exit codes, ToolError for any other, and for output that is not what it should be."""
        scope = scope_of(arguments, ctx)
        program = Program(self._arguments(scope, ctx), self._environment(scope, ctx), self.folder, self._stdin(scope, ctx), self.max_bytes)
        ended = await run(program)
        meaning = meaning_of(self.errors, ended.code)
        if meaning is not None:
            message = meaning.message or f"the program ended with exit code {ended.code}"
            raise StepError(message, type=meaning.type, status=ended.code, not_done=meaning.not_done, details=_said(ended))
        if ended.code not in self.expect:
            how = f"was ended by signal {-ended.code}" if ended.code < 0 else f"ended with exit code {ended.code}"
            raise StepError(f"the program {how}", status=ended.code if ended.code >= 0 else None, details=_said(ended))
        return {"code": ended.code, "output": self._result(ended)}

    def _arguments(self, scope: Mapping[str, Any], ctx: ToolContext) -> list[str]:
        out: list[str] = []
        for part in self.arguments:
            value = fill(part, scope, ctx.secrets)
            if value is MISSING:
                continue
            text = written(value)
            if text is None or "\x00" in text:
                raise ValidationError(f"{self.name}: an argument would be {shown(value)}; expected one text or number", not_done=True)
            if text.startswith("-") and isinstance(part, Leaf) and not str(part.template.source).startswith("-") and "--" not in out:
                message = f"{self.name}: the argument {shown(text)} would be an option; the declaration has no `--` before it"
                raise PermissionDeniedError(message, not_done=True)
            out.append(text)
        return out

    def _environment(self, scope: Mapping[str, Any], ctx: ToolContext) -> dict[str, str]:
        out = {}
        for name, part in self.environment.items():
            if isinstance(part, Mapping):
                out[name] = secret_of(ctx.secrets, part["secret"])
                continue
            text = fill(part, scope, ctx.secrets)
            if text is MISSING:
                continue
            value = written(text)
            if value is None or "\x00" in value:
                raise ValidationError(
                    f"{self.name}: the variable {name} would be {shown(text)}; expected one text or number", not_done=True
                )
            out[name] = value
        return out

    def _stdin(self, scope: Mapping[str, Any], ctx: ToolContext) -> bytes | None:
        value = fill(self.stdin, scope, ctx.secrets)
        if value is None or value is MISSING:
            return None
        return (value if isinstance(value, str) else encode(value)).encode()

    def _result(self, ended: Ended) -> Any:
        if self.output == "none":
            return None
        try:
            if self.output == "json":
                return decode_strict(ended.output)
            text = ended.output.decode()
            check(text)
        except ValueRefused as exc:
            raise StepError(f"the output is not what it is declared to be: {exc.message}", type="OutputInvalid") from None
        except UnicodeDecodeError as exc:
            raise StepError(f"the output is not UTF-8 (byte {exc.start})", type="OutputInvalid") from None
        return text.splitlines() if self.output == "lines" else text


def command_tool(name: str, declared: Any, at: Path, filling: Filling, report: Report) -> CommandTool:
    """The tool of a `command` part whose form is right; what is wrong beyond that is noted."""
    whole: Mapping[str, Any] = declared if isinstance(declared, dict) else {"arguments": declared}
    where = (*at, "arguments") if isinstance(declared, dict) else at
    arguments = [filling.part(one, (*where, index)) for index, one in enumerate(whole.get("arguments", ()))]
    if arguments and (isinstance(arguments[0], Leaf) or not str(arguments[0]).startswith("/")):
        report.error(
            "wrong_form", "the program is the first argument: its absolute path, written out", (*where, 0),
            found=shown(whole["arguments"][0]), expected="an absolute path",
        )  # fmt: skip
    environment = {
        name: one if isinstance(one, Mapping) else filling.part(one, (*at, "environment", name))
        for name, one in whole.get("environment", {}).items()
    }
    return CommandTool(
        name=name,
        arguments=arguments,
        environment=environment,
        folder=whole.get("folder"),
        stdin=filling.part(whole.get("stdin"), (*at, "stdin")),
        output=whole.get("output", "text"),
        max_bytes=whole.get("max_bytes", MAX_BODY),
        errors=meanings(whole.get("exit_codes", {}), (*at, "exit_codes"), report),
        expect=tuple(whole.get("expect", (0,))),
    )


def _said(ended: Ended) -> dict[str, Any]:
    """The end of what the program said of its trouble."""
    text = ended.errors[-_SHOWN:].decode("utf-8", "replace").replace("\x00", "\N{REPLACEMENT CHARACTER}")
    return {"stderr": text}
