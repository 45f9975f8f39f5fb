"""The exporter that is built on TorchScript's tracing (``dynamo=False``): `exporter`.

- `tracing`: calls that its tracer would not see as they are
- `symbolics`: translations as its symbolic functions; `graph_values`: what these get
"""
