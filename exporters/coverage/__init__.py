"""How many of torch's operators go through an export: torch's own sample calls, exported, run and compared.

Where what is:

- `command`: the command line; `plan`: what a run tries
- `samples`: the calls, from torch's database or another; `chance`: which of them have no one result
- `attempt`: one call from torch to ONNX Runtime, with `reasons` for what stops it; `without_torch`: its model in a
  process that cannot import torch (the script `torchless`); `pool`: many of them, in
  processes that may crash
- `results`: the file that a run can be resumed from; `table`: what comes of it, in JSON and in Markdown
"""
