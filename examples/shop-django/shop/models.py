"""The orders of the shop."""

from django.db import models


class Order(models.Model):
    """An order; jobs change its state from new to paid and shipped."""

    item = models.CharField(max_length=100)
    state = models.CharField(max_length=10, default="new")
