"""Private interfaces of torch that the exporters need where torch has no public ones.

No other module of this package uses a private name of torch. If a torch release renames one, the error
names it (`guarded`), and the tests of these files fail.

- `operators`: operators by name, with their schemas and properties
- `trees`: nested tuples, lists and dicts
- `torch_export`: what captures of models evaluate
- `tracing`: traces of models
- `onnx_exporter` and `torchscript_values`: torch's two exporters
- `patching`: what an export replaces in torch while it runs
"""
