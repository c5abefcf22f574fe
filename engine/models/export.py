"""`python -m engine export`: a trained drafter in the layout of speculators, or a pair's models in the files of other engines.

This engine reads such a drafter as a published one. Its weights are written as they are stored. A pair's calibration belongs to the
drafter's guesses, which do not change.
"""

import importlib.util
import json
import shutil
from argparse import Namespace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from engine.models.gguf import writing as gguf_writing
from engine.models.loading import config_of_checkpoint, load_model, load_tokenizer_and_config
from engine.models.pairs import Pair, build_pair, find_listed_pair
from engine.models.quantising import stored_quantisation_of
from engine.nets import NETS, NetConfig
from engine.nets.formats import PUBLISHED
from engine.nets.formats.checked import load_all_tensors, refuse_unexpected_tensors
from engine.nets.formats.exported import BLOCKS, EXPORTS
from engine.nets.layer import ANEW, embedding_and_head_of, narrow_table_by_means

CARD = """# {kind} drafter for {target}

Written by `python -m engine export {kind}` of TreeRace, in the layout of speculators. It was trained for {target} alone.

{readers}
"""


def load_trained_drafter(pair: Pair, kind: str) -> tuple[NetConfig | dict[str, Any], dict[str, torch.Tensor]]:
    """Sizes and weights of the pair's trained drafter, with tables that it shares. Raises `ValueError` when there is none.

    The sizes of DFlash and DSpark are the published config in their files.
    """
    folder = Path(pair.drafters or "") / kind
    if pair.drafters is None or not (folder / "config.json").is_file():
        raise ValueError(
            f"The pair {pair.title} has no trained {kind} drafter. "
            f"Train one with `python -m engine train {kind} {pair.training_command_options}`."
        )
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ours = isinstance(stored, dict) and (
        PUBLISHED[kind].is_form_of(stored) if kind in BLOCKS else stored.get("kind") == kind
    )
    masked = ours and ("sliding_attention" in (stored.get("layer_types") or ()) or stored.get("is_causal"))
    if not ours or masked or "speculators_model_type" in stored:
        raise ValueError(f"{folder} holds no {kind} drafter that was trained here. {ANEW}")
    if kind in BLOCKS:
        return stored, load_all_tensors(folder)
    try:
        config = NetConfig(**stored)
    except TypeError as error:
        raise ValueError(f"{folder}/config.json holds no drafter's sizes: {error}. {ANEW}") from error
    weights = load_all_tensors(folder)
    with torch.device("meta"):  # shapes alone
        blank = torch.empty(config.vocab, config.hidden)
        net = NETS[kind](config, blank, blank)
        shapes = {name: tuple(each.shape) for name, each in net.state_dict().items()}
    if config.target_hidden and net.tables and not weights.keys() & set(net.tables):
        tables = shared_embedding_and_head(pair, config.hidden)
        weights |= {name: tables[name] for name in net.tables}
    refuse_unexpected_tensors(folder, weights, shapes)
    return config, weights


def shared_embedding_and_head(pair: Pair, hidden: int) -> dict[str, torch.Tensor]:
    """The target's `embedding` and `head` `[V, hidden]` float16, made narrower where the drafter is."""
    target = load_model(pair.target_checkpoint, torch.device("cpu"), torch.float32)
    tables = zip(("embedding", "head"), embedding_and_head_of(target), strict=True)
    return {name: narrow_table_by_means(table, hidden).half() for name, table in tables}


def export_drafter(pair: Pair, kind: str, folder: Path) -> int:
    """Write config.json, model.safetensors and README.md of the pair's drafter to `folder`. Returns how many tensors there are.

    Raises `ValueError` when the pair has no such drafter, when the layout cannot hold it, or when `folder` has weights already.
    """
    if any(folder.glob("*.safetensors")):
        raise ValueError(f"{folder} holds safetensors already. Choose another folder.")
    config, weights = load_trained_drafter(pair, kind)
    hidden = config["hidden_size"] if isinstance(config, dict) else config.hidden
    tables = partial(shared_embedding_and_head, pair, hidden)
    said, tensors, readers = EXPORTS[kind](
        config, weights, tables, pair.target, config_of_checkpoint(pair.target_checkpoint)
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    card = CARD.format(kind=kind, target=pair.title, readers=readers)
    (folder / "README.md").write_text(card, encoding="utf-8")
    save_file({name: each.contiguous() for name, each in tensors.items()}, folder / "model.safetensors")
    return len(tensors)


def refuse_full_folder(folder: Path) -> None:
    """Raises `ValueError` where something stands in the folder."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds files already. Choose another folder.")


def export_gguf(pair: Pair, folder: Path) -> list[Path]:
    """Write `target.KIND.gguf` and `draft.KIND.gguf`, for each KIND. Raises `ValueError` as `write_gguf` does, and
    for a full folder.
    """
    refuse_full_folder(folder)
    tokenizer, _ = load_tokenizer_and_config(pair.target_checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, checkpoint in (("target", pair.target_checkpoint), ("draft", pair.draft_checkpoint)):
        if checkpoint is None:
            continue
        model = load_model(checkpoint, torch.device("cpu"), torch.float32)
        for kind in gguf_writing.KINDS:
            written.append(folder / f"{name}.{kind}.gguf")
            gguf_writing.write_gguf(written[-1], model, tokenizer, kind)
    return written


def export_openvino(pair: Pair, folder: Path) -> list[Path]:
    """Write folders that OpenVINO GenAI loads, made of GGUF files. Raises `ValueError` as `export_gguf`, and without its package."""
    if importlib.util.find_spec("openvino_genai") is None:
        raise ValueError("OpenVINO's files are written by the package openvino-genai: `pip install openvino-genai`.")
    import openvino_genai

    refuse_full_folder(folder)
    written = []
    with TemporaryDirectory() as place:
        for file in export_gguf(pair, Path(place) / "gguf"):
            # It writes beside the file that it reads
            kept = Path(place) / file.stem
            kept.mkdir()
            file.rename(kept / "model.gguf")
            openvino_genai.LLMPipeline(str(kept / "model.gguf"), "CPU", enable_save_ov_model=True)
            (kept / "model.gguf").unlink()
            written.append(folder / file.stem)
            shutil.copytree(kept, written[-1])
    return written


def export_target(pair: Pair, folder: Path) -> list[Path]:
    """Write the target and its tokenizer with plain weights, which other engines read: those of 8 bits as float32, others as stored.

    Raises `ValueError` for a full folder.
    """
    refuse_full_folder(folder)
    tokenizer, config = load_tokenizer_and_config(pair.target_checkpoint)
    widened = stored_quantisation_of(config) != "none"
    dtype = torch.float32 if widened else config.dtype or torch.float32
    model = load_model(pair.target_checkpoint, torch.device("cpu"), dtype)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder, save_original_format=not widened)  # that of 8 bits cannot be made again
    tokenizer.save_pretrained(folder)
    return sorted(folder.glob("*.safetensors"))


# What writes models rather than a drafter
WHOLE = {"gguf": export_gguf, "openvino": export_openvino, "target": export_target}


def main(options: Namespace) -> None:
    if options.draft is not None and (options.target is None or options.kind in EXPORTS):
        raise ValueError(f"--draft {options.draft!r} belongs to --target, and to the kinds gguf and openvino.")
    if options.kind in WHOLE:
        pair = build_pair(options.target, options.draft, None) if options.target else find_listed_pair(options.pair)
        for path in WHOLE[options.kind](pair, options.folder):
            print(f"Wrote {path}.")
        return
    if options.drafter is not None and options.target is None:
        raise ValueError(f"--drafter {options.drafter!r} needs --target, the model that it drafts for.")
    pair = build_pair(options.target, None, options.drafter) if options.target else find_listed_pair(options.pair)
    count = export_drafter(pair, options.kind, options.folder)
    print(f"Wrote {count} tensors to {options.folder / 'model.safetensors'}.")
