"""Races over held-out prompts, and what rounds and forwards cost by length and size."""
