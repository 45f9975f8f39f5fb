"""The exporter that is built on TorchScript's tracing (``dynamo=False``): `exporter`.

- `flat_model`: a model with tensors alone for arguments and results; `traced_numbers`: numbers among its arguments
- `tracing`: calls that its tracer would not see as they are
- `symbolics`: translations as its symbolic functions; `graph_values`: what these get
"""
