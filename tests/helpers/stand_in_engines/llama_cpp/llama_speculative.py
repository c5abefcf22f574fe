"""The part of the stand-in that guesses."""


class LlamaPromptLookupDecoding:
    def __init__(self, max_ngram_size: int = 2, num_pred_tokens: int = 10):
        self.num_pred_tokens = num_pred_tokens
