"""Jobs that are rows of a database transaction until Redis has them; the part that all share.

`jobwire.django.outbox` and `jobwire.sqlalchemy` give it a table.
"""
