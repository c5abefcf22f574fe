"""Shared: what several policies are made of. Asking a drafter, its favourites, and growing with them."""
