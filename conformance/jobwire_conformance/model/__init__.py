"""Random examples, judged by a model of the protocol, and shrunk to a case.

`actions` and `model` define the possible actions and the expected states, as steps of ordinary
cases. `machine` lets Hypothesis choose the actions, `trial` plays them, and `shrunk_case` turns a
failure into a case.
"""
