"""Shared: what several drafters are made of. Rows of their caches, and growing in one call."""
