"""Logs and metrics, made from the engine's events.

Nothing here is asked before anything is done, and no part of the product needs it to work.
"""
