"""Rounds: what the decode loop does between two bursts, with host parts or as one graph on a GPU, and what it costs here."""
