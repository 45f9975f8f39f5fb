"""What an exported model still needs: `opset_imports`, checks of its `declared_nodes`, and `optimization`."""
