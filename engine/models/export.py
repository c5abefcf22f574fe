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
from engine.models.loading import load_and_check_tokenizer_and_config, load_model, load_text_config_of_checkpoint
from engine.models.pairs import Pair, build_pair, find_listed_pair
from engine.models.quantising import stored_quantisation_of
from engine.nets import NETS, NetConfig
from engine.nets.formats import PUBLISHED
from engine.nets.formats.checked import load_all_tensors, refuse_missing_unknown_or_misshaped_tensors
from engine.nets.formats.exported import BLOCKS, EXPORTS
from engine.nets.layer import ANEW, embedding_and_head_of, narrow_table_by_means

CARD = """# {kind} drafter for {target}

Written by `python -m engine export {kind}` of TreeRace, in the layout of speculators. It was trained for {target} alone.

{readers}
"""


def load_trained_drafter_config_and_weights(
    pair: Pair, drafter_kind: str
) -> tuple[NetConfig | dict[str, Any], dict[str, torch.Tensor]]:
    """Sizes and weights of the pair's trained drafter, with tables that it shares. Raises `ValueError` when there is none.

    The sizes of DFlash and DSpark are the published config in their files.
    """
    folder = Path(pair.drafters_folder or "") / drafter_kind
    if pair.drafters_folder is None or not (folder / "config.json").is_file():
        raise ValueError(
            f"The pair {pair.title} has no trained {drafter_kind} drafter. "
            f"Train one with `python -m engine train {drafter_kind} {pair.training_command_options}`."
        )
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    ours = isinstance(stored, dict) and (
        PUBLISHED[drafter_kind].is_form_of(stored) if drafter_kind in BLOCKS else stored.get("kind") == drafter_kind
    )
    masked = ours and ("sliding_attention" in (stored.get("layer_types") or ()) or stored.get("is_causal"))
    if not ours or masked or "speculators_model_type" in stored:
        raise ValueError(f"{folder} holds no {drafter_kind} drafter that was trained here. {ANEW}")
    if drafter_kind in BLOCKS:
        return stored, load_all_tensors(folder)
    try:
        config = NetConfig(**stored)
    except TypeError as error:
        raise ValueError(f"{folder}/config.json holds no drafter's sizes: {error}. {ANEW}") from error
    weights = load_all_tensors(folder)
    with torch.device("meta"):  # shapes alone
        blank = torch.empty(config.vocab, config.hidden)
        net = NETS[drafter_kind](config, blank, blank)
        shapes = {name: tuple(each.shape) for name, each in net.state_dict().items()}
    if config.target_hidden and net.used_table_names and not weights.keys() & set(net.used_table_names):
        tables = narrowed_target_embedding_and_head(pair, config.hidden)
        weights |= {name: tables[name] for name in net.used_table_names}
    refuse_missing_unknown_or_misshaped_tensors(folder, weights, shapes)
    return config, weights


def narrowed_target_embedding_and_head(pair: Pair, hidden_size: int) -> dict[str, torch.Tensor]:
    """The target's `embedding` and `head` `[V, hidden_size]` float16, made narrower where the drafter is."""
    target = load_model(pair.target_checkpoint, torch.device("cpu"), torch.float32)
    tables = zip(("embedding", "head"), embedding_and_head_of(target), strict=True)
    return {name: narrow_table_by_means(table, hidden_size).half() for name, table in tables}


def export_drafter_as_speculators(pair: Pair, drafter_kind: str, folder: Path) -> int:
    """Write config.json, model.safetensors and README.md of the pair's drafter to `folder`. Returns how many tensors there are.

    Raises `ValueError` when the pair has no such drafter, when the layout cannot hold it, or when `folder` has weights already.
    """
    if any(folder.glob("*.safetensors")):
        raise ValueError(f"{folder} holds safetensors already. Choose another folder.")
    config, weights = load_trained_drafter_config_and_weights(pair, drafter_kind)
    hidden = config["hidden_size"] if isinstance(config, dict) else config.hidden
    tables = partial(narrowed_target_embedding_and_head, pair, hidden)
    said, tensors, readers = EXPORTS[drafter_kind](
        config, weights, tables, pair.target, load_text_config_of_checkpoint(pair.target_checkpoint)
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    card = CARD.format(kind=drafter_kind, target=pair.title, readers=readers)
    (folder / "README.md").write_text(card, encoding="utf-8")
    save_file({name: each.contiguous() for name, each in tensors.items()}, folder / "model.safetensors")
    return len(tensors)


def refuse_non_empty_folder(folder: Path) -> None:
    """Raises `ValueError` where something stands in the folder."""
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder} holds files already. Choose another folder.")


def export_gguf(pair: Pair, folder: Path) -> list[Path]:
    """Write `target.KIND.gguf` and `draft.KIND.gguf`, for each KIND. Raises `ValueError` as `write_gguf` does, and
    for a full folder.
    """
    refuse_non_empty_folder(folder)
    tokenizer, _ = load_and_check_tokenizer_and_config(pair.target_checkpoint)
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

    refuse_non_empty_folder(folder)
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
    refuse_non_empty_folder(folder)
    tokenizer, config = load_and_check_tokenizer_and_config(pair.target_checkpoint)
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
    count = export_drafter_as_speculators(pair, options.kind, options.folder)
    print(f"Wrote {count} tensors to {options.folder / 'model.safetensors'}.")
