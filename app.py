"""Serves the TreeRace page: reads arguments, opens a first page, goes live, loads a pair. The page itself is in `engine/page/web/`."""

import argparse
import faulthandler
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from subprocess import Popen
from typing import TYPE_CHECKING, NoReturn

from engine.kernels import beforehand
from engine.measure.options import (
    OneLineErrorParser,
    add_chat_template_options,
    add_pair_options,
    add_remote_server_options,
    add_shape_option,
    apply_shape_option,
    chat_options_of,
    exit_with_sentence_on_refusal,
    pair_of_options,
    register_parts_from_outside,
    remote_of_options,
)
from engine.models.gguf.files import is_gguf
from engine.models.pairs import (
    EMBEDDED,
    OFFERED,
    PAIRS,
    QUANTISATIONS,
    LoadedPair,
    Pair,
    is_target_on_this_machine,
    validate_choice,
)
from engine.page.screens.heap import limit_malloc_arenas
from engine.page.views import standalone
from engine.page.web.front import FrontServer
from engine.record.failures import is_out_of_memory, iterate_exception_chain
from engine.record.quiet import WorkSignal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

OFFER = os.environ.get("TREERACE_OFFER", "small,smollm2")  # pairs beside the default one
AS_FILED = {"quantisation": None, "spread": "none"}  # how a pair is kept when nothing is asked for


def main() -> None:
    faulthandler.enable()  # a crash in compiled code says in which thread it was
    limit_malloc_arenas()
    parser = OneLineErrorParser(description="Serve the TreeRace page.")
    parser.add_argument("--port", type=port_number, default=7860, help="0 takes a free one")
    add_pair_options(parser)
    add_chat_template_options(parser)
    add_remote_server_options(parser)
    add_shape_option(parser)
    options = parser.parse_args()
    host, port = "0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1", options.port
    with exit_with_sentence_on_refusal():
        register_parts_from_outside(options)
        pair = pair_of_options(options, default_pair=os.environ.get("TREERACE_PAIR", "embedded"))
        kept = options.quantisation or os.environ.get("TREERACE_QUANTISATION")
        if options.spread == "matrices":
            instead = "the page is served by one. Use --spread layers."
            raise ValueError(f"--spread matrices needs several processes, and {instead}")
        kept = kept and validate_choice(QUANTISATIONS, kept, "quantisation")
        how = {"quantisation": kept, "spread": options.spread, "device": options.device}
        remote, ways = remote_of_options(options), chat_options_of(options)

    def suits(tokenizer: "PreTrainedTokenizerBase") -> None:
        """Raises `ValueError` where the pair's template cannot do what is asked of it."""
        from engine.models.chat import refuse_template_options  # imports transformers

        refuse_template_options(tokenizer, pair.title, **ways)

    def as_served(own: LoadedPair) -> LoadedPair:
        served = replace(own, remote=remote, raw=options.raw)
        if own.pair.name == pair.name:  # others beside it have their own ways
            suits(own.tokenizer)
            served = replace(served, **ways)
        return apply_shape_option(options, served)

    # Only Gradio's own server is lent GPUs. None is lent yet at the start, so each race measures its costs when it has one
    if "SPACES_ZERO_GPU" in os.environ:
        with refuse_taken_port(port), socket.create_server((host, port)):
            pass
        import_module("spaces")  # before PyTorch is
        from engine.models.loading import load
        from engine.page.web.lending import ServedPairs
        from engine.page.web.page import build_page, launch_gradio_server_and_block

        with exit_with_error_sentence():
            own = as_served(load(pair, **how))
        others = [
            each
            for name in list_additional_pair_names(pair, how)
            if (each := load_additional_pair(name, how, as_served))
        ]
        return launch_gradio_server_and_block(build_page(ServedPairs(own, others)), host, port, remote)
    front = FrontServer(standalone.render_opening_page())
    with refuse_taken_port(port):
        port = front.start_server_thread(host, port)
    beforehand.start_compiling_process(
        "engine.kernels.beforehand:compile_forward_and_tree_growth", "engine.nets.eagle_compiled:compile_eagle_loops"
    )
    print(f"TreeRace opens on http://{host}:{port}; a first start compiles its kernels, up to a minute.", flush=True)
    try:
        build_and_attach_live_page(front, pair, how, as_served, suits)
        front.wait()
    except KeyboardInterrupt:
        exit_process()
    except SystemExit as refused:
        exit_process(str(refused))
    except Exception as error:
        if not any(map(is_out_of_memory, iterate_exception_chain(error))):
            raise
        instead = "Free some, choose another --pair, or take a larger machine."
        exit_process(f"There is too little memory here for {pair.title}. {instead}")


def exit_process(refused: str = "") -> NoReturn:
    """Ends the process at once, with a sentence and status 1 where something was refused.

    The interpreter's own end takes threads away while they compute, and aborts the process where one of them is inside PyTorch.
    """
    if refused:
        print(refused, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if refused else 0)


def port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < 2**16):
        raise argparse.ArgumentTypeError(f"a port is a whole number from 0 to 65535, got {text[:20]!r}")
    return int(text)


@contextmanager
def refuse_taken_port(port: int) -> Iterator[None]:
    """A port that is taken or forbidden ends the process with a sentence, before anything is loaded."""
    try:
        yield
    except OSError as error:
        raise SystemExit(f"Port {port} cannot be used: {error.strerror}. Choose another one with --port.") from None


def build_and_attach_live_page(
    front: FrontServer,
    pair: Pair,
    how: dict[str, str],
    as_served: Callable[[LoadedPair], LoadedPair],
    suits: Callable[["PreTrainedTokenizerBase"], None] = lambda tokenizer: None,
) -> None:
    """Makes the opening race ready, hands the server to the live page, then makes the rest ready behind it.

    A pair that is not embedded, or not kept as its files keep it, is loaded behind the live page, which races the small embedded pair
    meanwhile. The page, its open tabs included, goes over to that pair when its own opening race is ready. One that cannot be loaded
    ends the process with a sentence: whoever started it reads the terminal, and a page that went on would hide the failure. Beside the
    default pair visitors may choose the small one, which is made ready behind it, and a published one that is on this machine, which is
    loaded last. What a GGUF file says of its model takes long to read the first time: another process does it, and refusals come later.
    `how` is what `load` takes besides; `as_served` gives a loaded pair what it has as a served one, its remote server among it. `suits`
    raises `ValueError` for a tokenizer that the pair cannot be served with, before its weights are read.
    """
    gc.disable()  # the imports make millions of objects, and few of them are garbage
    # What takes seconds to import is imported behind the opening page
    from engine.models.loading import check_small_files_and_memory, load
    from engine.page.screens.device import DEVICE
    from engine.page.screens.readiness import SystemPreparation, append_compile_count

    freeze_garbage()

    def hear(progress):
        front.progress_text = lambda: progress.status_line

    def opened(own: LoadedPair) -> SystemPreparation:
        """The pair's readiness, with its opening race ready."""
        ready = SystemPreparation(as_served(own), DEVICE, waits=lambda: front.is_page_loading)
        front.progress_text = lambda: ready.preparation_progress_text
        ready.prepare_opening_race()
        return ready

    front.progress_text = lambda: append_compile_count("Loading the models")
    front.count_runs = lambda: len(DEVICE.line.visitors_jobs)
    another = pair.name not in EMBEDDED or how | AS_FILED != how
    unread = list_files_to_read_ahead(pair)
    reading = start_read_ahead_processes(unread)
    with exit_with_error_sentence():
        if another and not unread:  # what its small files say is refused before anything is made ready
            suits(check_small_files_and_memory(pair, **how)[0])
        ready = opened(load(PAIRS["small"] if another else pair, how["device"]))
    names = list_additional_pair_names(pair, how)
    small = load_additional_pair("small", how, as_served) if "small" in names else None
    front.progress_text = lambda: "Building the live page"
    from engine.page.web.lending import ServedPairs
    from engine.page.web.page import build_page, describe_pairs_on_offer, mount_guarded_page

    served = ServedPairs(ready.pair, [small] if small else [], coming=pair if another else None)
    front.served = lambda: describe_pairs_on_offer(served)
    live = mount_guarded_page(build_page(served), ready.pair.remote)
    gc.collect()  # what compiling has left
    freeze_garbage()
    front.start_and_attach_live_app(live)
    print("The page is live; more systems are made ready behind it.", flush=True)
    if another:
        front.progress_text = lambda: f"Loading {pair.title}"
        for process in reading:
            process.wait()
        with exit_with_error_sentence():
            if unread:
                suits(check_small_files_and_memory(pair, **how)[0])
            ready = opened(load(pair, **how, tell=hear))
        served.pair = ready.pair

    def waits() -> bool:
        return front.is_page_loading

    all_ready = [ready, *(SystemPreparation(each, DEVICE, each.title, waits) for each in served.others)]

    def describe_preparation() -> str:
        return next((each.preparation_progress_text for each in all_ready if each.waiting), "")

    front.progress_text = describe_preparation
    for each in all_ready:
        each.prepare_remaining_systems()
    for name in names:
        if name == "small":
            continue
        front.progress_text = partial("Loading {}".format, PAIRS[name].title)
        for process in start_read_ahead_processes(list_files_to_read_ahead(PAIRS[name])):
            process.wait()
        if other := load_additional_pair(name, how, as_served):
            served.others.append(other)
            all_ready.append(SystemPreparation(other, DEVICE, other.title, waits))
            front.progress_text = describe_preparation
            all_ready[-1].prepare_remaining_systems()
    DEVICE.run_preparation_when_idle(collect_garbage_in_steps())
    freeze_garbage()
    print("Everything is ready.", flush=True)


def list_files_to_read_ahead(pair: Pair) -> list[str]:
    """The pair's GGUF files that this machine has read nothing of yet."""
    from engine.models.gguf.reading import needs_slow_conversion  # imports transformers

    return [each for each in (pair.target, pair.draft) if each and is_gguf(each) and needs_slow_conversion(each)]


def start_read_ahead_processes(files: list[str]) -> list[Popen]:
    """Processes that read what these GGUF files say of their models, so that the page need not wait; none on one core."""
    begun = (
        beforehand.start_process_calling(
            "engine.models.gguf.reading:convert_config_and_tokenizer", os.path.abspath(each)
        )
        for each in files
    )
    return [process for process in begun if process]


def collect_garbage_in_steps() -> Iterator[WorkSignal]:
    """Collects the garbage that compiling left, in a time slice of the device, so that no lane's clock counts it."""
    gc.collect()
    yield WorkSignal.STEP


def freeze_garbage() -> None:
    """Exclude all present objects from later garbage collections. A collection of all would stop a race for half a second."""
    gc.freeze()
    gc.enable()


def list_additional_pair_names(pair: Pair, how: dict[str, str]) -> list[str]:
    """The pairs that visitors may choose beside this one: beside the default, if that is kept as its files are, those of `OFFER` that
    are on this machine. Raises `SystemExit` for a name that is not offered."""
    if pair.name != "embedded" or how | AS_FILED != how:
        return []
    with exit_with_error_sentence():
        named = [validate_choice(OFFERED, name, "pair in TREERACE_OFFER") for name in OFFER.split(",") if name]
    return [name for name in named if name != pair.name and is_target_on_this_machine(PAIRS[name])]


def load_additional_pair(
    name: str, how: dict[str, str], as_served: Callable[[LoadedPair], LoadedPair]
) -> LoadedPair | None:
    """That pair. Where it cannot be loaded the page goes on without it, and the terminal has a sentence."""
    from engine.models.loading import load

    try:
        return as_served(load(PAIRS[name], how["device"]))
    except ValueError as error:
        print(f"The page does not offer {PAIRS[name].title}: {error}", flush=True)
        return None


@contextmanager
def exit_with_error_sentence() -> Iterator[None]:
    """What cannot be loaded ends the process with a sentence."""
    try:
        yield
    except ValueError as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
