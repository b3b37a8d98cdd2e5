"""Agiwo: durable workflows whose steps call tools, models and people."""
