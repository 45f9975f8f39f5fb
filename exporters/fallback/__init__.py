"""Exports that do not fail for want of an operator: nodes whose kernels are torch's own operators.

Where what is:

- `attempts`: the export, with more and more calls rewritten; `capturing` the graph, in which `named_calls` are
  found again, `rewriting` it, and the operators that stand in it, `opaque`, with `fakes` where torch has none
- `calls`: a call as plain data; `rule`: which operators a model may name; `kernel`: what runs them, within
  `bounds`
- `interception`: calls at which the capture would stop; `names` of values
- `checking`: each distinct call compared with ONNX Runtime
- `record`: what fell back, with `sources`
"""
