"""Drafters of a target that grew (`engine.models.growing`): they read every copy of a hidden number, and guess as before."""

from dataclasses import replace

import torch

from engine.nets.layer import Linear, N


def for_grown(net: N, copies: int) -> N:
    """The net, changed to guess the same from features in which every hidden number stands `copies` times.

    Its entry reads every copy with an equal share. Tables that it shares with its target stay as they are.
    """
    hidden, entry = net.config.reads, getattr(net, net.entry)
    read = torch.eye(hidden) if entry is None else entry.weight  # heads that read the feature itself have no entry
    parts = read.view(len(read), -1, 1, hidden).expand(-1, -1, copies, -1) / copies
    wider = Linear(copies * read.shape[1], len(read)).requires_grad_(False).to(net.embedding.device)
    wider.weight.copy_(parts.reshape(wider.weight.shape))
    setattr(net, net.entry, wider)
    net.config = replace(net.config, target_hidden=copies * hidden)
    return net.pack()
