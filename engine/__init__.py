"""TreeRace's engine: draft trees, verification in one forward pass, and races that anyone can check. Importing it costs nothing."""
