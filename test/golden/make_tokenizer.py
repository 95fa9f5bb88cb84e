"""Make test/golden/tokenizer: a byte-level BPE of 400 tokens as GPT-2's, and the ids that the package
`tokenizers` gives for a text, line by line. Usage: VENV/bin/python test/golden/make_tokenizer.py"""

import json
import os

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
out = os.path.join(here, "tokenizer")
os.makedirs(out, exist_ok=True)
text = open(os.path.join(here, "..", "..", "CONTRIBUTING.md"), encoding="utf-8").read()[:6000]
text += "\u65e5\u672c\u8a9e caf\u00e9 \U0001f469\u200d\U0001f469\n\n   don't  stop<|endoftext|>1234\n"

tok = Tokenizer(models.BPE())
tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tok.decoder = decoders.ByteLevel()
tok.post_processor = processors.ByteLevel(trim_offsets=False)
tok.train_from_iterator(text.splitlines(True), trainers.BpeTrainer(
    vocab_size=400, show_progress=False, special_tokens=["<|endoftext|>"],
    initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
tok.save(os.path.join(out, "tokenizer.json"), pretty=False)
with open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
    json.dump({"tokenizer_class": "GPT2TokenizerFast", "eos_token": "<|endoftext|>"}, f)
    f.write("\n")
with open(os.path.join(out, "text.txt"), "w", encoding="utf-8") as f:
    f.write(text)
with open(os.path.join(out, "ids.txt"), "w", encoding="utf-8") as f:
    for line in text.splitlines(True):
        f.write(" ".join(map(str, tok.encode(line).ids)) + "\n")
with open(os.path.join(out, "versions.txt"), "w", encoding="utf-8") as f:
    f.write(f"tokenizers {tokenizers.__version__}\n")
