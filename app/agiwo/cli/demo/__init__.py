"""`agiwo demo`: the weekly report end to end on this machine, with real servers in processes of their own.

What runs is what a user runs; the demo starts it, looks on by the public API, and proves the mail by plain SQL.
"""

from __future__ import annotations

from agiwo.cli.demo.story import demo

__all__ = ["demo"]
