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
from typing import TYPE_CHECKING, Any, NoReturn

from engine.kernels import beforehand
from engine.measure.options import (
    OneLineErrorParser,
    add_pair_options,
    add_remote_server_options,
    add_shape_option,
    add_system_prompt_and_thinking_options,
    apply_shape_option,
    chat_template_fields_of_options,
    exit_with_sentence_on_refusal,
    pair_of_options,
    register_plugin_parts_of_options,
    remote_server_of_options,
)
from engine.models.gguf.files import has_gguf_suffix
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
from engine.page.web.front import OpeningPageThenLiveAppServer
from engine.record.failures import is_out_of_memory, iterate_exception_chain
from engine.record.quiet import WorkSignal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from engine.models.progress import LoadingProgress

OFFER = os.environ.get("TREERACE_OFFER", "small,smollm2")  # pairs beside the default one
AS_FILED = {"quantisation": None, "spread": "none"}  # how a pair is kept when nothing is asked for


def main() -> None:
    faulthandler.enable()  # a crash in compiled code says in which thread it was
    limit_malloc_arenas()
    parser = OneLineErrorParser(description="Serve the TreeRace page.")
    parser.add_argument("--port", type=parse_port_number, default=7860, help="0 takes a free one")
    add_pair_options(parser)
    add_system_prompt_and_thinking_options(parser)
    add_remote_server_options(parser)
    add_shape_option(parser)
    options = parser.parse_args()
    host, port = "0.0.0.0" if "SPACE_ID" in os.environ else "127.0.0.1", options.port
    with exit_with_sentence_on_refusal():
        register_plugin_parts_of_options(options)
        pair = pair_of_options(options, default_pair=os.environ.get("TREERACE_PAIR", "embedded"))
        kept = options.quantisation or os.environ.get("TREERACE_QUANTISATION")
        if options.spread == "matrices":
            instead = "the page is served by one. Use --spread layers."
            raise ValueError(f"--spread matrices needs several processes, and {instead}")
        kept = kept and validate_choice(QUANTISATIONS, kept, "quantisation")
        how: dict[str, Any] = {"quantisation": kept, "spread": options.spread, "device": options.device}
        remote, ways = remote_server_of_options(options), chat_template_fields_of_options(options)

    def refuse_unsuitable_tokenizer(tokenizer: "PreTrainedTokenizerBase") -> None:
        """Raises `ValueError` where the pair's template cannot do what is asked of it."""
        from engine.models.chat import refuse_unsupported_template_options  # imports transformers

        refuse_unsupported_template_options(tokenizer, pair.title, **ways)

    def add_serving_options(own: LoadedPair) -> LoadedPair:
        served = replace(own, remote=remote, sends_raw_prompts=options.raw)
        if own.pair.name == pair.name:  # others beside it have their own ways
            refuse_unsuitable_tokenizer(own.tokenizer)
            served = replace(served, **ways)
        return apply_shape_option(options, served)

    # Only Gradio's own server is lent GPUs. None is lent yet at the start, so each race measures its costs when it has one
    if "SPACES_ZERO_GPU" in os.environ:
        with exit_if_port_unusable(port), socket.create_server((host, port)):
            pass
        import_module("spaces")  # before PyTorch is
        from engine.models.loading import load
        from engine.page.web.lending import ServedPairs
        from engine.page.web.page import build_gradio_page_and_api, launch_gradio_server_and_block

        with exit_with_error_sentence():
            own = add_serving_options(load(pair, **how))
        others = [
            each
            for name in list_additional_pair_names(pair, how)
            if (each := load_additional_pair_or_print_refusal(name, how, add_serving_options))
        ]
        return launch_gradio_server_and_block(build_gradio_page_and_api(ServedPairs(own, others)), host, port, remote)
    front = OpeningPageThenLiveAppServer(standalone.render_opening_page())
    with exit_if_port_unusable(port):
        port = front.start_server_thread(host, port)
    beforehand.start_compiling_process_unless_cached(
        "engine.kernels.beforehand:compile_forward_and_tree_growth", "engine.nets.eagle_compiled:compile_eagle_loops"
    )
    print(f"TreeRace opens on http://{host}:{port}; a first start compiles its kernels, up to a minute.", flush=True)
    try:
        load_pair_and_serve_live_page(front, pair, how, add_serving_options, refuse_unsuitable_tokenizer)
        front.wait_until_server_ends_and_raise()
    except KeyboardInterrupt:
        exit_process()
    except SystemExit as refused:
        exit_process(str(refused))
    except Exception as error:
        if not any(map(is_out_of_memory, iterate_exception_chain(error))):
            raise
        instead = "Free some, choose another --pair, or take a larger machine."
        exit_process(f"There is too little memory here for {pair.title}. {instead}")


def exit_process(refusal: str = "") -> NoReturn:
    """Ends the process at once, with a sentence and status 1 where something was refused.

    The interpreter's own end takes threads away while they compute, and aborts the process where one of them is inside PyTorch.
    """
    if refusal:
        print(refusal, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1 if refusal else 0)


def parse_port_number(port_text: str) -> int:
    if not (port_text.isascii() and port_text.isdigit() and len(port_text) < 6 and int(port_text) < 2**16):
        raise argparse.ArgumentTypeError(f"a port is a whole number from 0 to 65535, got {port_text[:20]!r}")
    return int(port_text)


@contextmanager
def exit_if_port_unusable(port: int) -> Iterator[None]:
    """A port that is taken or forbidden ends the process with a sentence, before anything is loaded."""
    try:
        yield
    except OSError as error:
        raise SystemExit(f"Port {port} cannot be used: {error.strerror}. Choose another one with --port.") from None


def load_pair_and_serve_live_page(
    front: OpeningPageThenLiveAppServer,
    pair: Pair,
    load_options: dict[str, Any],
    add_serving_options: Callable[[LoadedPair], LoadedPair],
    refuse_unsuitable_tokenizer: Callable[["PreTrainedTokenizerBase"], None] = lambda tokenizer: None,
) -> None:
    """Makes the opening race ready, hands the server to the live page, then makes the rest ready behind it.

    A pair that is not embedded, or not kept as its files keep it, is loaded behind the live page, which races the small embedded pair
    meanwhile. The page, its open tabs included, goes over to that pair when its own opening race is ready. One that cannot be loaded
    ends the process with a sentence: whoever started it reads the terminal, and a page that went on would hide the failure. Beside the
    default pair visitors may choose the small one, which is made ready behind it, and a published one that is on this machine, which is
    loaded last. What a GGUF file says of its model takes long to read the first time: another process does it, and refusals come later.
    `load_options` is what `load` takes besides; `add_serving_options` gives a loaded pair what it has as a served one, its remote
    server among it. `refuse_unsuitable_tokenizer` raises `ValueError` for a tokenizer that the pair cannot be served with, before its
    weights are read.
    """
    gc.disable()  # the imports make millions of objects, and few of them are garbage
    # What takes seconds to import is imported behind the opening page
    from engine.models.loading import check_files_memory_and_choose_quantisation, load
    from engine.page.screens.device import DEVICE
    from engine.page.screens.readiness import SystemPreparation, append_compile_count

    freeze_objects_and_enable_gc()

    def show_loading_progress(progress: "LoadingProgress") -> None:
        front.progress_text = lambda: progress.status_line

    def prepare_opening_race_of(own: LoadedPair) -> SystemPreparation:
        """The pair's readiness, with its opening race ready."""
        ready = SystemPreparation(
            add_serving_options(own), DEVICE, should_pause=lambda: front.may_browser_be_building_page
        )
        front.progress_text = lambda: ready.preparation_progress_text
        ready.prepare_opening_race()
        return ready

    front.progress_text = lambda: append_compile_count("Loading the models")
    front.count_runs = lambda: len(DEVICE.scheduler.jobs_except_preparation)
    another = pair.name not in EMBEDDED or load_options | AS_FILED != load_options
    unread = list_unconverted_gguf_files(pair)
    reading = start_gguf_conversion_processes(unread)
    with exit_with_error_sentence():
        if another and not unread:  # what its small files say is refused before anything is made ready
            refuse_unsuitable_tokenizer(check_files_memory_and_choose_quantisation(pair, **load_options)[0])
        ready = prepare_opening_race_of(load(PAIRS["small"] if another else pair, load_options["device"]))
    names = list_additional_pair_names(pair, load_options)
    small = (
        load_additional_pair_or_print_refusal("small", load_options, add_serving_options) if "small" in names else None
    )
    front.progress_text = lambda: "Building the live page"
    from engine.page.web.lending import ServedPairs
    from engine.page.web.page import build_gradio_page_and_api, describe_pairs_on_offer, mount_guarded_page

    served = ServedPairs(ready.pair, [small] if small else [], replacement_being_loaded=pair if another else None)
    front.served = lambda: describe_pairs_on_offer(served)
    live = mount_guarded_page(build_gradio_page_and_api(served), ready.pair.remote)
    gc.collect()  # what compiling has left
    freeze_objects_and_enable_gc()
    front.start_and_attach_live_app(live)
    print("The page is live; more systems are made ready behind it.", flush=True)
    if another:
        front.progress_text = lambda: f"Loading {pair.title}"
        for process in reading:
            process.wait()
        with exit_with_error_sentence():
            if unread:
                refuse_unsuitable_tokenizer(check_files_memory_and_choose_quantisation(pair, **load_options)[0])
            ready = prepare_opening_race_of(load(pair, **load_options, report_progress=show_loading_progress))
        served.pair = ready.pair

    def waits() -> bool:
        return front.may_browser_be_building_page

    all_ready = [ready, *(SystemPreparation(each, DEVICE, each.title, waits) for each in served.additional_pairs)]

    def describe_preparation() -> str:
        return next((each.preparation_progress_text for each in all_ready if each.waiting), "")

    front.progress_text = describe_preparation
    for each in all_ready:
        each.prepare_remaining_systems()
    for name in names:
        if name == "small":
            continue
        front.progress_text = partial("Loading {}".format, PAIRS[name].title)
        for process in start_gguf_conversion_processes(list_unconverted_gguf_files(PAIRS[name])):
            process.wait()
        if other := load_additional_pair_or_print_refusal(name, load_options, add_serving_options):
            served.additional_pairs.append(other)
            all_ready.append(SystemPreparation(other, DEVICE, other.title, waits))
            front.progress_text = describe_preparation
            all_ready[-1].prepare_remaining_systems()
    DEVICE.run_preparation_when_idle_and_wait(collect_garbage_in_steps())
    freeze_objects_and_enable_gc()
    print("Everything is ready.", flush=True)


def list_unconverted_gguf_files(pair: Pair) -> list[str]:
    """The pair's GGUF files that this machine has read nothing of yet."""
    from engine.models.gguf.reading import is_gguf_conversion_uncached  # imports transformers

    return [
        each
        for each in (pair.target, pair.draft)
        if each and has_gguf_suffix(each) and is_gguf_conversion_uncached(each)
    ]


def start_gguf_conversion_processes(gguf_files: list[str]) -> list[Popen]:
    """Processes that read what these GGUF files say of their models, so that the page need not wait; none on one core."""
    begun = (
        beforehand.start_process_calling_if_multicore(
            "engine.models.gguf.reading:convert_config_and_tokenizer_into_cache", os.path.abspath(each)
        )
        for each in gguf_files
    )
    return [process for process in begun if process]


def collect_garbage_in_steps() -> Iterator[WorkSignal]:
    """Collects the garbage that compiling left, in a time slice of the device, so that no lane's clock counts it."""
    gc.collect()
    yield WorkSignal.STEP


def freeze_objects_and_enable_gc() -> None:
    """Exclude all present objects from later garbage collections. A collection of all would stop a race for half a second."""
    gc.freeze()
    gc.enable()


def list_additional_pair_names(default_pair: Pair, load_options: dict[str, Any]) -> list[str]:
    """The pairs that visitors may choose beside this one: beside the default, if that is kept as its files are, those of `OFFER` that
    are on this machine. Raises `SystemExit` for a name that is not offered."""
    if default_pair.name != "embedded" or load_options | AS_FILED != load_options:
        return []
    with exit_with_error_sentence():
        named = [validate_choice(OFFERED, name, "pair in TREERACE_OFFER") for name in OFFER.split(",") if name]
    return [name for name in named if name != default_pair.name and is_target_on_this_machine(PAIRS[name])]


def load_additional_pair_or_print_refusal(
    pair_name: str, load_options: dict[str, Any], add_serving_options: Callable[[LoadedPair], LoadedPair]
) -> LoadedPair | None:
    """That pair. Where it cannot be loaded the page goes on without it, and the terminal has a sentence."""
    from engine.models.loading import load

    try:
        return add_serving_options(load(PAIRS[pair_name], load_options["device"]))
    except ValueError as error:
        print(f"The page does not offer {PAIRS[pair_name].title}: {error}", flush=True)
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
