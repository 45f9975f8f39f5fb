"""Finishing of an exported model: opset imports, functions, optimization, checks of sizes."""
