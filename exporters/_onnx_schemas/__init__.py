"""ONNX's own schemas of the ops, and their registration with the package onnx.

It imports pyops alone.
"""
