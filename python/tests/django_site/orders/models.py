"""One model, in either database."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """An order; jobs mark it as paid."""

    number = models.IntegerField()
    paid = models.BooleanField(default=False)
