"""The tag of the admin's template."""

from __future__ import annotations

from django import template

from jobwire.django.project import page_url

__all__ = ["jobwire_page", "register"]

register = template.Library()


@register.simple_tag
def jobwire_page() -> str:
    """Return the address of the page of jobs, or an empty text."""
    return page_url() or ""
