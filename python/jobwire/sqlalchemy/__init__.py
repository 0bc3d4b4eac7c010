"""An outbox for SQLAlchemy: a job is a row of the transaction that enqueues it.

outbox = Outbox(app, engine, Base.metadata)

with Session.begin() as session, outbox.using(session):
    session.add(order)
    ship.enqueue(order.number)

After the commit, the job is written to Redis and its row deleted, by this process or by a worker.
"""

from jobwire.sqlalchemy.outbox import Outbox

__all__ = ["Outbox"]
