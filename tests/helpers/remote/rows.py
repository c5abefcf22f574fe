"""Rows as `pays --server --into` writes them, made up."""

from typing import Any


def served_point(**changes: Any) -> dict[str, Any]:
    point = {
        "batch": 1,
        "waves": 12,
        "plain_tokens_per_s": 50.0,
        "tokens_per_s": 100.0,
        "speedup": 2.0,
        "interval": [1.8, 2.2],
        "answer": "yes",
        "gaining": 12,
        "tau": 3.25,
        "acceptance": 0.75,
        "texts": 12,
        "identical": 12,
    }
    return point | changes


def served_row(**changes: Any) -> dict[str, Any]:
    row = {
        "verdict": "yes: this server's guesses pay. With them it writes 2.00 times as fast at 1 stream.",
        "row": 1,
        "machine": "M2",
        "engine": "llama-server",
        "version": "b9001-abc",
        "model": "model.gguf",
        "flags": {"total_slots": 4, "speculative": True},
        "plain": {
            "engine": "llama-server",
            "version": "b9001-abc",
            "model": "model.gguf",
            "flags": {},
            "same_server": False,
        },
        "temperature": 0.0,
        "tokens": 128,
        "seed": 0,
        "chat": True,
        "prompts": 12,
        "confidence": 0.95,
        "points": [served_point()],
    }
    return row | changes
