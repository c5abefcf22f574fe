"""Races over held-out prompts, and what rounds and forwards cost by length, context, tree, size and other things."""
