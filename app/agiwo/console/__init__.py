"""Pages for people: the approval page. They use the services that the API uses, and nothing else."""

from agiwo.console.page import approval_page

__all__ = ["approval_page"]
