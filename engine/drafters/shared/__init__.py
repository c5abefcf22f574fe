"""Shared: what several drafters are made of. Rows of their caches, growing in one call, and one around another."""
