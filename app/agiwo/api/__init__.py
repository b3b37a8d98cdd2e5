"""The REST API over the services: requests in, JSON out, every refusal a problem document."""

from agiwo.api.app import create_app

__all__ = ["create_app"]
