"""Private interfaces of torch that the exporters need where torch has no public ones.

No other module of this package uses a private name of torch. If a torch release renames one, the error
names it (`guard`), and the tests of these files fail.

- `operators`: an operator's schema and properties
- `trees`: nested tuples, lists and dicts
- `capture`: captures of models
- `tracing`: traces of models, and what a capture asks for
- `exporter` and `torchscript`: torch's two exporters
- `patching`: what an export replaces in torch while it runs
"""
