"""A pair of one's own behind the page: the small embedded one races until the other is loaded. Held by events, not by seconds."""

import json
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from helpers.checkpoints import write
from helpers.paths import OF_TESTS, ROOT
from helpers.published import mtp

pytestmark = pytest.mark.slow

# Runs app.py. Where the own target's weights would be read, it tells of bytes and waits for a line.
HELD = """
import sys
from engine.models import loading
from engine.models.progress import LoadingProgress
from helpers.decoding import hurry
hurry()
load = loading.load_model
def held(checkpoint, *arguments, report_progress=None, **more):
    arguments = list(arguments)
    tell = arguments.pop(4) if len(arguments) > 4 else report_progress
    if tell is not None:
        tell(LoadingProgress("Loading", "large", 3_100_000_000, 15_200_000_000))
        print("held", flush=True)
        sys.stdin.readline()
    return load(checkpoint, *arguments, report_progress=tell, **more)
loading.load_model = held
import app
app.main()
"""
LONGEST = 300  # seconds; a first start compiles


@pytest.fixture
def large(tmp_path, request):
    """A random Llama's folder, or that of the family that a test names, with one MTP layer."""
    family = getattr(request, "param", "")
    if family:
        mtp.write(tmp_path / "large", family, 1)
    else:
        write(tmp_path / "large", max_position_embeddings=512)
    return tmp_path / "large"


@pytest.fixture
def begun(large):
    """The page with a target alone, held where its weights would be read: the process, and its address."""
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, "--port", "0", "--target", str(large)],
        cwd=ROOT, env=OF_TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what a shell runs behind itself hears no Ctrl-C
    )  # fmt: skip
    url = process.stdout.readline().split("opens on ")[1].split(";")[0]
    assert process.stdout.readline().startswith("The page is live"), process.stderr.read()
    assert process.stdout.readline() == "held\n"
    yield process, url
    process.kill()
    process.communicate()


def status(url: str) -> dict:
    with urllib.request.urlopen(f"{url}/readiness", timeout=60) as answer:
        return json.load(answer)


def raced(url: str, system: str, **settings) -> dict:
    from gradio_client import Client

    job = Client(url, verbose=False).submit("Story: Once", system, max_new_tokens=8, **settings, api_name="/race")
    job.result(LONGEST)
    return json.loads(job.outputs()[-1])


def let_load(process, url: str) -> None:
    """Returns once the page's pair is the own one."""
    process.stdin.write("\n")
    process.stdin.flush()
    until = time.monotonic() + LONGEST
    while not status(url)["pair"].startswith("large · "):
        assert time.monotonic() < until and process.poll() is None
        time.sleep(0.2)


@pytest.mark.parametrize("large", ["Qwen3.5"], indirect=True)
def test_the_embedded_pair_races_until_the_own_one_is_loaded_which_races_free_and_under_a_constraint(begun):
    """The own one is a target with states and MTP layers."""
    process, url = begun
    now = status(url)
    assert now["live"] is True and now["ready"] is False and now["words"].startswith("Loading large: 3.1 of 15.2 GB")
    assert now["pair"].startswith("11M embedded pair · ")
    assert raced(url, "tree")["identical"] is True  # an embedded pair has a draft model
    let_load(process, url)
    assert raced(url, "auto")["identical"] is True
    with pytest.raises(Exception, match="The pair large has no draft model"):
        raced(url, "tree")
    with urllib.request.urlopen(f"{url}/config", timeout=60) as answer:
        page = json.load(answer)
    lanes = [each["props"]["value"] for each in page["components"] if "System of the" in each["props"].get("label", "")]
    assert lanes == ["vanilla", "auto"]
    for temperature in (0.0, 0.8):
        last = raced(url, "mtp", temperature=temperature)
        assert last["identical"] is True and last["lanes"][1]["name"] == "mtp"
        last = raced(url, "mtp", temperature=temperature, constraint="regex:(yes|yesterday|no)")
        assert last["identical"] is True and last["lanes"][1]["text"] in ("yes", "yesterday", "no")
    forced = raced(url, "forced", constraint="regex:maybe")["lanes"]
    assert forced[1]["text"] == "maybe" and forced[1]["forwards"] < forced[0]["forwards"]


def test_ctrl_c_while_weights_are_loaded_ends_the_process_without_a_word(begun):
    process, _ = begun
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0 and "Traceback" not in said


def test_a_pair_that_cannot_be_loaded_ends_the_process_with_the_sentence(begun, large):
    process, _ = begun
    weights = large / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    said = process.communicate("\n", timeout=60)[1]
    assert process.returncode == 1 and "Traceback" not in said
    assert said.rstrip().splitlines()[-1].startswith(f"{large} does not load: ")


def test_what_small_files_and_memory_refuse_is_refused_before_the_page_is_live(large):
    (large / "model.safetensors").unlink()
    ended = subprocess.run(
        [sys.executable, "app.py", "--port", "0", "--target", str(large)],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 1 and ended.stderr.startswith(f"No model weights at {large}")
