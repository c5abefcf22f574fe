"""Models whose layers keep a state. A guess that was rejected cannot be cut out of it, so a tree is read beside the state."""
