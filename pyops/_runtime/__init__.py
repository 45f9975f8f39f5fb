"""Sessions: what runs a model with its ops, in ONNX Runtime or step by step.

`session` has the class that users create, `engine_choice` decides between the engines in `native` and `extensions`,
and the rest is what a session needs beside them. It may import all but `pyops._display`, `pyops.testing` and
`pyops._cli`.
"""
