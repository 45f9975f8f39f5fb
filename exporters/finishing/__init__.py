"""What an exported model still needs: `finish`.

- `function_bodies`: of the onnxscript functions that it calls
- `opset_imports`: which version of each domain it imports; `declared_nodes`: whether its nodes are as declared
- `optimization`: torch's, which leaves calls of declared ops in it
- `model_nodes`: going through them
"""
