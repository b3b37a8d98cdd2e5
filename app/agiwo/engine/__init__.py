"""The asyncio shell around the machine: it owns instances, commits decisions and carries out their commands.

It decides nothing about a workflow, and speaks to the world through the ports alone.
"""
