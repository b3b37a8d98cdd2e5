"""The only place that plugs adapters into ports: what a service, a command or a program that embeds the engine is made of.

Imported by its parts (`toolbox`, `world`, `storage`, `assembly`, `library` …), so that who needs one does not load the others.
"""
