"""The addresses of the page of jobs: `path("jobs/", include("jobwire.django.urls"))`."""

from __future__ import annotations

from django.urls import path, re_path

from jobwire.django.web import page

__all__ = ["app_name", "urlpatterns"]

app_name = "jobwire"
urlpatterns = [
    path("", page, {"path": ""}, name="page"),
    re_path(r"^(?P<path>[\s\S]+)\Z", page),  # a name from Redis may have line breaks
]
