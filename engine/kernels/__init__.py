"""Kernels: compiled loops over arrays and numbers. Knows no model, no tokenizer and no tree of the engine's."""
