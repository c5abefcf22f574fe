"""TreeRace's engine: draft trees, verification in one forward pass, and races that anyone can check.

Importing this package costs nothing: `engine.record.trace` and `engine.page.views` work without torch.
"""
