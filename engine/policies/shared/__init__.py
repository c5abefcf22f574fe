"""Shared: what several policies are made of. Asking a drafter, its favourites, growing with them, and the best static trees."""
