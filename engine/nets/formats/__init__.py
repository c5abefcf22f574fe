"""Formats: the files in which drafters are published. One file per drafter and one line in `PUBLISHED`.

A config tells the format (`is_form_of`). `validate_config_and_make_loader` checks a config against a target of
`target_layer_count` layers and its `embedding [V, H]`. It returns what makes the net of a folder, the target's `embedding [V, H]`
and its `head [V, H]`. Both raise `ValueError` for what does not fit, is missing or is not computed. `checked` is what all of them
share, and `exported` writes our own drafters. `mtp` and `assistant` read more of a target than its sizes, and stand beside the
list.
"""

from engine.nets.formats import dflash, dspark, eagle3, medusa, parallel

# By the drafter's name. The last one is asked last: it takes every other type of speculators, to refuse it by name.
PUBLISHED = {"medusa": medusa, "parallel": parallel, "dspark": dspark, "dflash": dflash, "eagle": eagle3}

__all__ = ["PUBLISHED"]
