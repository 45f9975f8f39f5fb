"""Torch against ONNX Runtime: `verify`, with its `report`.

- `intermediates`: the values inside a model; `reference`: ONNX's own evaluator as a third opinion
"""
