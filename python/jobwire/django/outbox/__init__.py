"""A table for jobs that wait for Redis; an entry of INSTALLED_APPS.

With it, a job that is enqueued inside a transaction is a row of the same transaction. After the
commit the row is deleted and the job written, or else a relay does it later, so a job is missing
neither after a crash nor while Redis is away.
"""
