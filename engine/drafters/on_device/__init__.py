"""On a device: drafters as tensors of fixed shapes, which never wait for the host. One line a drafter in `ON_DEVICE`.

`engine.policies.shared.growing_gpu` grows trees over them, inside a CUDA graph or without one. tests/rounds/test_rehearsal.py
holds their trees to those of the host.
"""

from engine.drafters.on_device.blocks import DFlashOnDevice, MedusaOnDevice, ParallelOnDevice, SpecBlockOnDevice
from engine.drafters.on_device.layers import EagleOnDevice, MtpOnDevice
from engine.drafters.on_device.model import ModelOnDevice
from engine.drafters.on_device.parts import DrafterOnDevice, PlainDecodingOnDevice

ON_DEVICE: dict[str, type[DrafterOnDevice]] = {  # by the names of `DRAFTERS`
    "none": PlainDecodingOnDevice,
    "model": ModelOnDevice,
    "medusa": MedusaOnDevice,
    "eagle": EagleOnDevice,
    "mtp": MtpOnDevice,
    "parallel": ParallelOnDevice,
    "dflash": DFlashOnDevice,
    "dspark": DFlashOnDevice,
    "specblock": SpecBlockOnDevice,
}
