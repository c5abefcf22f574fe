"""The engines that serve models, as a table: how each spells a setting, and what it cannot express. Imports none of them.

TARGET, DRAFT and PROMPT stand for the reader's own. A row is a condition and texts; `engine.page.screens.serving.rendering` says
which conditions and words there are.
"""

from engine.acceptance.typical import EPSILON
from engine.drafters.lookup import LONGEST
from engine.page.screens.serving.rendering import INSTEAD, POLICY, RULE, Engine, Setting

UNSURE = 0.4  # a draft that is less sure than this stops, where a chain should adapt; transformers' default too
UNCUT = "--top-k 0 --top-p 1 --min-p 0"  # the target's whole distribution
STEPS = (1, 3, 7)  # depths that SGLang's adaptive mode changes between by default
ONE_CHAIN = ("branches", "It verifies a chain and no tree: of {shape}, a chain of {chain} is left.")
COPIES = "N-gram lookup: copies up to {tokens} that followed the same words before."
FAVOURITES = "Its guesses are the drafter’s favourites: it cannot draw them, as this system does."
OWN_CHAIN = "A chain of {guesses} a round by TARGET’s own MTP layers."
EVERY_BRANCH = "It keeps the most probable nodes, not every branch of a full tree."

# A shell command that asks the server at a port for a completion
REQUEST = """

curl http://localhost:%d/v1/completions \\
  -H 'Content-Type: application/json' \\
  -d '{{"model": "TARGET", "prompt": "PROMPT",
       "max_tokens": 200, "temperature": {temperature}}}'"""

# Adaptive verification is off by default. It trims every request's chain by the chance of its guesses and by what steps of each size
# cost, which is profiled at the start. `num_speculative_tokens_per_batch_size` sets a chain's length by the number of requests.
VLLM = Engine(
    name="vLLM",
    version="0.32",
    source="vLLM’s documentation 0.32, “Speculative Decoding” and “Adaptive Verification”",
    own={
        "lookup": "ngram", "suffix": "suffix", "model": "draft_model", "EAGLE": "eagle3", "Medusa": "medusa", "block": "dflash",
        "MTP": "mtp",
    },
    ideas=(
        ("MTP", OWN_CHAIN),
        ("adapts draft -Medusa", "A chain of up to {guesses}, verified as far as it is likely to pay; DRAFT is {draft}."),
        ("draft", "A chain of {guesses} a round; DRAFT is {draft}."),
        ("suffix", "Suffix decoding: copies up to {tokens} that followed the same words here or in earlier answers."),
        ("lookup", COPIES),
        ("", "Plain decoding: vLLM without speculation."),
    ),
    flags=(
        ("drafts", '"method": "{option}"'),
        ("draft", '"model": "DRAFT"'),
        ("drafts", '"num_speculative_tokens": {chain}'),
        ("draft ratio|whole", '"draft_sample_method": "probabilistic"'),
        ("draft whole", '"rejection_sample_method": "block"'),
        ("adapts draft -Medusa", '"enable_adaptive_verification": true'),
        ("lookup", '"prompt_lookup_min": 1', f'"prompt_lookup_max": {LONGEST}'),
    ),
    between=",\n    ",
    code=(
        ("", "vllm serve TARGET"),
        ("drafts", " \\\n  --speculative-config '{{\n    {flags}\n  }}'"),
        ("", REQUEST % 8000),
    ),
    lost=(
        ("Medusa", "Of every head only its first guess is verified; the heads’ other ranks are not used."),
        ONE_CHAIN,
        ("adapts draft -Medusa",
         "It drafts all {guesses} of every chain and trims what is verified; {chain} is an upper limit here.",
         "Adaptive verification needs full CUDA graphs, and excludes LoRA and pipeline parallelism."),
        ("adapts Medusa|-draft",
         "This drafter’s chain has a fixed length, or one for each batch size: {chain} is an upper limit here."),
        POLICY,
        ("suffix", "It needs the package arctic-inference, which is installed beside it."),
        ("lookup", "It copies one earlier match; here every earlier match votes."),
        ("unlike -draft|-whole", "Its rule tries one guess at a place" + INSTEAD),
        RULE,
        ("cold keeps", "Its text equals plain decoding’s up to rounding, which changes with the size of the batch."),
    ),
)  # fmt: skip


def sglang_kept(setting: Setting) -> int:
    """It expands the `width` best nodes of every level."""
    filled = 1 + setting.width + (setting.chain - 1) * setting.width**2
    return min(setting.system.nodes, filled) if setting.width > 1 else setting.chain + 1


SGLANG = Engine(
    name="SGLang",
    version="0.5 of mid 2026",
    source="SGLang’s documentation, “Speculative Decoding”, and its speculative_hook.py",
    own={"lookup": "NGRAM", "model": "STANDALONE", "EAGLE": "EAGLE3", "block": "DFLASH", "MTP": "NEXTN"},
    kept=sglang_kept,
    begun=lambda setting: max(step for step in STEPS if step <= setting.chain),
    ideas=(
        ("lookup", "N-gram lookup: a tree of {nodes} nodes from what followed the same words before."),
        ("block", "{called}: {guesses} from one draft forward; DRAFT is {draft}."),
        ("MTP branches", "A tree of {kept} nodes, {width} wide and {chain} deep, grown every round by TARGET’s own MTP layers."),
        ("MTP", OWN_CHAIN),
        ("EAGLE adapts", "A chain that begins with {guesses_begun} and changes with what was accepted; DRAFT is {draft}."),
        ("drafts branches",
         "A tree of {kept} nodes, {width} wide and {chain} deep, expanded and reranked every round; DRAFT is {draft}."),
        ("drafts", "A chain of {guesses} a round; DRAFT is {draft}."),
        ("", "Plain decoding: SGLang without speculation."),
    ),
    flags=(
        ("", "--model-path TARGET"),
        ("drafts", "--speculative-algorithm {option}"),
        ("draft", "--speculative-draft-model-path DRAFT"),
        ("lookup", "--speculative-num-draft-tokens {nodes}", "--speculative-ngram-max-bfs-breadth {width}"),
        ("lookup branches", "--attention-backend flashinfer"),
        ("block", "--speculative-num-draft-tokens {nodes_in_chain}"),
        ("EAGLE adapts", "--speculative-num-steps {begun}", "--speculative-eagle-topk 1",
         "--speculative-num-draft-tokens {nodes_begun}", "--speculative-adaptive"),
        ("model|MTP|EAGLE -EAGLE|-adapts", "--speculative-num-steps {chain}", "--speculative-eagle-topk {width}",
         "--speculative-num-draft-tokens {kept}"),
        ("model|MTP|EAGLE -EAGLE|-adapts branches", "--disable-overlap-schedule"),
        ("EAGLE ratio -branches", "--speculative-use-rejection-sampling"),
        ("threshold", f"--speculative-accept-threshold-single {EPSILON}"),
    ),
    between=" \\\n  ",
    code=(("", "python -m sglang.launch_server \\\n  {flags}"), ("", REQUEST % 30000)),
    lost=(
        ("lookup", "Depth {depth} has no flag: a branch goes on as far as its match does."),
        ("block branches", "DFlash verifies a chain: of {shape}, a chain of {chain} is left."),
        ("EAGLE adapts",
         "It adapts a chain’s length (1, 3 or 7 guesses) to the batches so far, not a tree to every round: "
         "of {shape} no width is left."),
        ("model|MTP|EAGLE -EAGLE|-adapts branches",
         "A tree that branches runs without the overlap scheduler, which takes chains only."),
        ("model|MTP|EAGLE -EAGLE|-adapts unfilled",
         "A tree of {chain} levels, {width} wide, fills no more than {kept} of {nodes} nodes."),
        ("model|MTP|EAGLE -EAGLE|-adapts shallow", "{nodes} nodes reach {chain} deep, not {depth}."),
        ("model|MTP|EAGLE full", EVERY_BRANCH),
        ("model|MTP|EAGLE draws -full", FAVOURITES),
        ("model|MTP|EAGLE fixed", "A fixed tree from calibration has no flag: it grows one anew every round."),
        ("model|MTP adapts", "Its tree is the same size every round: only EAGLE-3 can adapt, and only a chain."),
        POLICY,
        ("threshold",
         f"Typical acceptance has no flag: the threshold given instead accepts every guess with p above {EPSILON:g}, whatever the "
         "entropy, and does nothing at temperature 0."),
        ("ratio model|MTP|branches",
         "It has min(1, p/q) for EAGLE chains only, and accepts with p alone: the same distribution, fewer guesses."),
        ("unlike", "It accepts a guess with p alone" + INSTEAD),
        ("-threshold", "{rule_lost}"),
    ),
)  # fmt: skip


# Its pull request brings min(1, p/q) to draft models; without that option a guess is accepted where the target chooses the same token.
# A dynamic tree holds from `max_draft_len` to `dynamic_tree_max_topK * max_draft_len` guesses.
TENSORRT_LLM = Engine(
    name="TensorRT-LLM",
    version="1.4.0rc1",
    source="TensorRT-LLM’s documentation 1.4.0rc1, “Speculative Decoding”, and its pull request 15775",
    own={"lookup": "NGram", "model": "DraftTarget", "EAGLE": "Eagle3", "block": "DFlash", "MTP": "MTP"},
    kept=lambda setting: 1 + min(setting.system.nodes - 1, setting.width * setting.chain),
    ideas=(
        ("lookup", COPIES),
        ("MTP branches", "A tree of {guesses_kept}, {width} wide and {chain} deep, grown every round by TARGET’s own MTP layers."),
        ("MTP", OWN_CHAIN),
        ("EAGLE branches", "A tree of {guesses_kept}, {width} wide and {chain} deep, grown every round; DRAFT is {draft}."),
        ("model", "A chain of {guesses} a round; DRAFT is a small model with TARGET’s tokenizer."),
        ("drafts", "A chain of {guesses} a round; DRAFT is {draft}."),
        ("", "Plain decoding: TensorRT-LLM without speculation."),
    ),
    flags=(
        ("drafts", "  decoding_type: {option}", "  max_draft_len: {chain}"),
        ("lookup", f"  max_matching_ngram_size: {LONGEST}", "  is_public_pool: false"),
        ("draft", "  speculative_model: DRAFT"),
        ("EAGLE|MTP branches",
         "  use_dynamic_tree: true", "  dynamic_tree_max_topK: {width}", "  max_total_draft_tokens: {guessed}"),
        ("drafts ratio draft|-branches -EAGLE|-branches", "  use_rejection_sampling: true"),
        ("lookup|model", "disable_overlap_scheduler: true"),
    ),
    between="\n",
    code=(
        ("drafts", "cat > config.yaml <<'END'\nspeculative_config:\n{flags}\nEND\n"),
        ("", "trtllm-serve TARGET"),
        ("drafts", " --config config.yaml"),
        ("", REQUEST % 8000),
    ),
    lost=(
        ("EAGLE|MTP branches", "Its dynamic tree is not for models with sliding windows or latent attention."),
        ("EAGLE|MTP branches unfilled", "A tree of {chain} levels, {width} wide, holds {guessed} guesses."),
        ("EAGLE|MTP branches full", EVERY_BRANCH),
        ("EAGLE|MTP branches fixed", "A fixed tree from calibration has no field any more: one grows every round."),
        ("EAGLE|MTP branches draws", FAVOURITES),
        ("branches -EAGLE -MTP", "It verifies trees of EAGLE-3 and MTP, and a chain here: of {shape}, a chain of {chain} is left."),
        ("adapts", "The tree or chain has the same size every round, or one for each batch size."),
        POLICY,
        ("lookup", "It proposes one earlier match; here every earlier match votes."),
        ("ratio lookup|EAGLE|MTP lookup|branches",
         "It accepts a guess where the target chooses the same token: the same distribution, fewer guesses."),
        ("unlike", "It accepts a guess where the target chooses the same token" + INSTEAD),
        RULE,
    ),
)  # fmt: skip


# `--spec-draft-n-max` and `--spec-draft-n-min` replace `--draft-max` and `--draft-min`. A draft model is used only where `--spec-type`
# says so. By default the server cuts the target's distribution (top-k 40, top-p 0.95, min-p 0.05), which is switched off here.
LLAMA_CPP = Engine(
    name="llama.cpp",
    version="00dc8057",
    source="llama.cpp’s tools/server/README.md at commit 00dc8057, and its pull request 27694",
    own={
        "lookup": "ngram-simple", "model": "draft-simple", "EAGLE": "draft-eagle3", "block": "draft-dflash", "MTP": "draft-mtp",
    },
    ideas=(
        ("lookup", COPIES),
        ("MTP", OWN_CHAIN),
        ("drafts", "A chain of {guesses} a round; DRAFT is {draft}, as GGUF."),
        ("", "Plain decoding: llama-server without speculation."),
    ),
    flags=(
        ("drafts", "--spec-type {option}"),
        ("draft", "-md DRAFT"),
        ("draft|MTP", "--spec-draft-n-max {chain}"),
        ("draft|MTP adapts", f"--spec-draft-p-min {UNSURE}"),
        ("lookup", f"--spec-ngram-simple-size-n {LONGEST}", "--spec-ngram-simple-size-m {chain}"),
        ("", UNCUT),
    ),
    between=" \\\n  ",
    code=(("", "llama-server -m TARGET \\\n  {flags}"), ("", REQUEST % 8080)),
    lost=(
        ("branches", "The server verifies a chain and no tree: of {shape}, a chain of {chain} is left."),
        ("draft|MTP adapts",
         f"The chain ends where the draft is unsure (below {UNSURE:g}), not where a forward’s cost on this machine says."),
        ("lookup adapts", "The chain’s length does not follow what was accepted, nor what a forward costs."),
        POLICY,
        ("lookup",
         f"It looks for the last {LONGEST} tokens only and copies one match; here shorter ones count, and every match votes."),
        ("ratio", "It accepts a guess where the target samples the same token: the same distribution, fewer guesses."),
        ("unlike", "It accepts a guess where the target samples the same token" + INSTEAD),
        RULE,
        ("draws", FAVOURITES),
    ),
)  # fmt: skip


ASSISTANT = """draft = load("DRAFT")
# read from the draft, not from generate()
draft.generation_config.update(
    num_assistant_tokens={{chain}},
    num_assistant_tokens_schedule="{schedule}",
    assistant_confidence_threshold={threshold},
)
"""

TRANSFORMERS = Engine(
    name="transformers",
    version="5.23",
    source="transformers 5.23, GenerationConfig and candidate_generator.py",
    language="python",
    own={"lookup": "prompt_lookup_num_tokens", "model": "assistant_model", "MTP": "use_mtp"},
    called="prompt lookup",
    ideas=(
        ("draft adapts",
         "Assisted generation: a chain of {guesses} a round, longer or shorter by what was accepted; DRAFT is {draft}."),
        ("draft", "Assisted generation: a chain of {guesses} a round; DRAFT is {draft}."),
        ("MTP", "One guess a round for every MTP layer of TARGET."),
        ("lookup", "Prompt lookup: copies up to {tokens} that followed the same words before."),
        ("", "Plain decoding: generate() without an assistant."),
    ),
    flags=(
        ("draft", "{option}=draft"),
        ("lookup", "{option}={chain}"),
        ("MTP", "{option}=True"),
        ("lookup", f"max_matching_ngram_size={LONGEST}"),
        ("-cold", "do_sample=True, temperature={temperature}, top_k=0"),
        ("cold", "do_sample=False"),
        ("", "max_new_tokens=200"),
    ),
    between=",\n    ",
    code=(
        ("", """from transformers import AutoModelForCausalLM
from transformers import AutoTokenizer

load = AutoModelForCausalLM.from_pretrained
tokenizer = AutoTokenizer.from_pretrained("TARGET")
target = load("TARGET")
"""),
        ("draft -adapts", ASSISTANT.format(schedule="constant", threshold=0.0)),
        ("draft adapts", ASSISTANT.format(schedule="heuristic_transient", threshold=UNSURE)),
        ("", """
inputs = tokenizer("PROMPT", return_tensors="pt")
output = target.generate(
    **inputs,
    {flags},
)
print(tokenizer.decode(output[0]))"""),
    ),
    lost=(
        ONE_CHAIN,
        ("MTP", "Its chain has one guess for every MTP layer, whatever the depth asked for."),
        ("adapts -MTP", "The chain’s length follows what was accepted, not what a forward costs on this machine."),
        POLICY,
        ("lookup", "It copies the first earlier match; here every earlier match votes."),
        ("", "It speculates for one sequence at a time: no batches."),
        ("unlike -lookup", "It accepts with min(1, p/q)" + INSTEAD),
        ("unlike lookup", "It accepts what the target draws itself" + INSTEAD),
        RULE,
    ),
)  # fmt: skip

ENGINES = (VLLM, SGLANG, TENSORRT_LLM, LLAMA_CPP, TRANSFORMERS)
