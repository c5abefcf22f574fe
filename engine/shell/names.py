"""Names that options offer, so that --help need not import what they name. `tests/core/test_commands.py` compares them."""

SHAPE = ("depth", "width", "nodes")
MODEL_SIZES, CONTEXTS, STORED = ("11M", "29M", "63M", "110M", "1B"), (128, 900), ("int8", "fp16", "fp32")
USUAL_SIZES = MODEL_SIZES[:4]  # what is measured when no sizes are named
TARGET_SIZES = ("11M", "16M", "28M", "67M")
RECIPES = ("medusa", "parallel", "specblock", "eagle", "dflash", "dspark")
DOMAINS = ("stories", "problems", "code")
EXPORTS = ("eagle", "medusa", "parallel", "dflash", "dspark")
WHOLE = ("gguf", "openvino", "target")
