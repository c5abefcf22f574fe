"""The tensors of the stand-in for OpenVINO GenAI."""

import numpy as np


class Tensor:
    def __init__(self, data: np.ndarray):
        assert data.dtype == np.int64 and data.ndim == 2 and len(data) == 1
        self.data = data
