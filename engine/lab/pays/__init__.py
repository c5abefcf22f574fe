"""Pays: whether speculative decoding pays for a person's own prompts, and why two runs part. Knows races; knows no page."""
