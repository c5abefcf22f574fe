"""`python -m engine bench --by segments`: the peak memory of one training step of the parallel-tree drafter, by number of segments.

The figure is the allocator's own peak over what was there before the step (`engine.measure.footprint`), so weights do not count. It is
exact and repeatable. A process's resident size would depend on what the allocator returns.
"""

from argparse import Namespace
from typing import Any

import torch
from tqdm import tqdm

from engine.lab.train import parallel
from engine.lab.train.features import LISTED, TrainingBatch
from engine.measure.footprint import peak_mib
from engine.models.loading import TRAINED_ON, checked_device
from engine.nets import NetConfig
from engine.nets.parallel import Parallel

HIDDEN, HEADS, MLP, VOCAB = 320, 5, 896, 4096


def synthetic(rows: int, length: int) -> TrainingBatch:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, VOCAB, (rows, length), generator=generator)
    features = torch.randn(rows, length, 4, HIDDEN, generator=generator)
    tokens = torch.randint(0, VOCAB, (rows, length, LISTED), generator=generator)
    p = torch.rand(rows, length, LISTED, generator=generator).softmax(-1)
    return TrainingBatch(ids, features, torch.ones(rows, length, 4), tokens, p)


def main(options: Namespace) -> dict:
    device = checked_device(options.device, TRAINED_ON)
    torch.manual_seed(0)
    config = NetConfig("parallel", HIDDEN, HEADS, MLP, parallel.LAYERS, options.depth, VOCAB)
    net = Parallel(config, torch.randn(VOCAB, HIDDEN) * 0.05, torch.randn(VOCAB, HIDDEN) * 0.05).to(device)
    batch = synthetic(options.rows, options.length).to(device)
    what = "allocator's peak"
    print(f"one step, {options.rows} x {options.length} tokens, {options.depth} depths at every anchor; {what}")
    print("segments      MiB  of one segment's")
    peaks: dict[int, Any] = {}

    def step() -> None:
        """With slots at every anchor."""
        parallel.loss(net, batch, 0, segments, anchors=options.length).backward()

    for segments in tqdm(options.segments, desc="segments", unit="step"):
        peaks[segments] = peak_mib(device, step)
        of_first = 100 * peaks[segments] / peaks[options.segments[0]]
        tqdm.write(f"{segments:8d} {peaks[segments]:8.1f}  {of_first:.0f} %")
        net.zero_grad(set_to_none=True)
    return {"measure": what, "length": options.length, "depth": options.depth, "mib": peaks}
