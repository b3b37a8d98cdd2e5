"""The way to language models: profiles, providers, and the one question that a model step asks.

It decides nothing about the flow: no retry, no route, no state.
"""
