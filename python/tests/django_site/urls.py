"""Addresses: the admin, and the page of jobs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("jobs/", include("jobwire.django.urls")),
]
