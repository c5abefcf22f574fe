"""Rounds: one step of the decode loop, with parts on the host or as one graph on a GPU, and what it costs here. Knows no text."""
