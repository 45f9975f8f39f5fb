"""What a new owner must read: declarations, ops, models and sessions."""
