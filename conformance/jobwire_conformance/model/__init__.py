"""Explore an implementation: random steps, judged by a model of the protocol.

`actions` and `model` say what may be done and what must be seen after it, as steps of ordinary
cases; `machine` has Hypothesis choose; `trial` plays; `found` makes a case of what failed.
"""
