"""NF4: products with weights in four bits that read them once for few rows. Knows tensors, and layers of bitsandbytes."""
