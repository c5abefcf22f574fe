"""Models whose layers keep a state. A guess that was rejected cannot be cut out of it, so one is kept behind every node of a tree."""
