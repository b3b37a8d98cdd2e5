"""`agiwo dev`: the service on a database of its own, with definitions and tools taken anew whenever their files change.

One process (`watching`) watches tools and starts the service in another (`child`); that one watches the definitions.
"""

from __future__ import annotations
