"""Random examples, judged by a model of the protocol, and shrunk to a case.

`actions` and `model` define the possible acts and the expected states, as steps of ordinary cases.
`machine` lets Hypothesis choose the acts, `trial` plays them, and `shrunk_case` turns a failure
into a case.
"""
