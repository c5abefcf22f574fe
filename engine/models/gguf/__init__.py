"""Models in GGUF files: which file is meant, what it says, its weights, and the writing of one. Knows one format; races nothing."""
