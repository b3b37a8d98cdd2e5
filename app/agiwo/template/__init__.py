"""Templates: parsed once, rendered with types, strict about what is not there, sandboxed, their work counted.

Pure: nothing here reads a clock, a file or an environment, changes what it was given, or renders data a second time.
"""

from agiwo.template.absent import Absent, Namespace, Scope, nearest, path_text
from agiwo.template.catalog import FILTERS, FUNCTIONS, TESTS, Entry
from agiwo.template.compiler import MAX_LOOPS
from agiwo.template.expression import Expression, TemplateErrors, compile_expression
from agiwo.template.marks import HIDDEN, SecretName, SecretSlot, fill_secrets, mask
from agiwo.template.meter import MAX_RESULT, MAX_SOURCE, MAX_UNITS, weigh
from agiwo.template.parse import MAX_NESTING, is_template
from agiwo.template.reads import ROOTS, Read
from agiwo.template.sql import split_statement
from agiwo.template.value import USES, Rendered, ValueTemplate, compile_value

__all__ = [
    "FILTERS",
    "FUNCTIONS",
    "HIDDEN",
    "MAX_LOOPS",
    "MAX_NESTING",
    "MAX_RESULT",
    "MAX_SOURCE",
    "MAX_UNITS",
    "ROOTS",
    "TESTS",
    "USES",
    "Absent",
    "Entry",
    "Expression",
    "Namespace",
    "Read",
    "Rendered",
    "Scope",
    "SecretName",
    "SecretSlot",
    "TemplateErrors",
    "ValueTemplate",
    "compile_expression",
    "compile_value",
    "fill_secrets",
    "is_template",
    "mask",
    "nearest",
    "path_text",
    "split_statement",
    "weigh",
]
