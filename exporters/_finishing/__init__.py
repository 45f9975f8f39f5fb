"""What happens to a model after its nodes are there: opset imports, functions, optimization, and the `Program`.

It may import `exporters._lowering` and what that may.
"""
