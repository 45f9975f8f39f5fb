"""Private interfaces of torch that the exporters need where torch has no public ones.

No other module of this package uses a private name of torch. If a torch release renames one, the error
says so (`guard`), and so do the tests of these files.

- `operators`: an operator's schema and properties
- `trees`: nested tuples, lists and dicts
- `exporter` and `torchscript`: torch's two exporters
"""
