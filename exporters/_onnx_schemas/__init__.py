"""ONNX schemas of the ops, and their registration with the onnx package.

It imports pyops alone.
"""
