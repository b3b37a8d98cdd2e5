"""What nodes tell each other over Redis: hints that something is due.

No answer of Redis permits a write; everything works without it, only later.
"""
