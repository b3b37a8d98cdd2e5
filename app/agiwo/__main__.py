"""`python -m agiwo` is the command line; it holds nothing of its own."""

from __future__ import annotations

from agiwo.cli import main

if __name__ == "__main__":
    main()
