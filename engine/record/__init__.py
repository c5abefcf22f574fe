"""Record: what happened in a race, and what was measured, as plain values. Standard library only."""
