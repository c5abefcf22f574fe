"""Record: what happened in a race, and what was measured, as plain values. What comes from outside is checked by pydantic."""
