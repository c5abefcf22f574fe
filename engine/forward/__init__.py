"""Forward: a model's forwards over one KV cache, as tensors, as compiled loops for a CPU and as graphs for a GPU. Knows no tree."""
