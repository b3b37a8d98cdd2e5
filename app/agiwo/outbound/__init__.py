"""The wires to the outside that several adapters share: HTTP, mail and the named connections.

Stands below the tools, models and notify adapters, since those do not know each other; it knows nothing of workflows.
"""
