"""Answers: the tokens that are learnt of a conversation are those that transformers masks.

transformers knows them by {% generation %} in the template; without it, what the texts of a
conversation's beginnings tell has to be the same.
"""

import json
import os
import random
import subprocess

from check_templates import CHATML, WORDS, conversation

TOOL = "build/release/peers/answers"

# [INST] is no token of its own: an answer begins within what is encoded in one piece.
INST = """{% for m in messages if m['role'] != 'system' and m['role'] != 'tool' %}{% if m['role'] == 'user' %}{{ bos_token + '[INST] ' + m['content'] + ' [/INST]' }}{% else %}{% generation %}{{ ' ' + m['content'] + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"""

# Headers that are tokens of their own, and trimmed contents.
HEADERS = """{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n\\n' }}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] | trim + '<|im_end|>' }}{% endgeneration %}{% else %}{{ m['content'] | trim + '<|im_end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n\\n' }}{% endif %}"""


def byte_level():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(WORDS * 5 + ["user assistant system You are helpful"] * 5,
                          trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return t


def blanks_as_marks(split):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=split)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.train_from_iterator(WORDS * 5 + ["[INST] user [/INST] assistant system"] * 5,
                          trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)], show_progress=False))
    return t


def pieces():
    return blanks_as_marks(True)


def whole():
    """Nothing is cut before merging, as in Llama 2's."""
    return blanks_as_marks(False)


def folder_of(make, template, folder):
    from transformers import PreTrainedTokenizerFast
    t = PreTrainedTokenizerFast(tokenizer_object=make(), bos_token="<s>", eos_token="</s>",
                                additional_special_tokens=["<|im_start|>", "<|im_end|>"])
    t.chat_template = template
    os.makedirs(folder, exist_ok=True)
    t.save_pretrained(folder)
    return t


def ours(folder, rows):
    lines = "".join(json.dumps({"messages": r}) + "\n" for r in rows)
    done = subprocess.run([TOOL, folder], input=lines.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return [[int(w) for w in line.split()] for line in done.stdout.decode().split("\n")[:-1]]


def plain(template):
    return template.replace("{% generation %}", "").replace("{% endgeneration %}", "")


def talks(rng, num):
    rows = []
    while len(rows) < num:
        row = [{"role": m["role"], "content": m["content"]} for m in conversation(rng) if m["role"] != "tool"]
        if len(row) > 1:
            rows.append(row)
    return rows


def answers_are_those_of_transformers(folder):
    rng, answers, context = random.Random(), 0, 0
    for number, (make, template) in enumerate((m, t) for m in (byte_level, pieces, whole) for t in (CHATML, HEADERS, INST)):
        here = os.path.join(folder, str(number))
        theirs = folder_of(make, template, here)
        rows = talks(rng, 100)
        mine = ours(here, rows)
        assert len(mine) == len(rows)
        folder_of(make, plain(template), here + "-plain")
        found = ours(here + "-plain", rows)
        for row, got, without in zip(rows, mine, found, strict=True):
            want = theirs.apply_chat_template(row, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
            ids, mask = want["input_ids"], want["assistant_masks"]
            wanted = [i if m else ~i for i, m in zip(ids, mask, strict=True)]
            assert got == wanted, f"{make.__name__} {template!r}\n{row!r}\n{got}\n{wanted}"
            assert without == wanted, f"{make.__name__}, not marked: {template!r}\n{row!r}\n{without}\n{wanted}"
            answers += sum(mask)
            context += len(mask) - sum(mask)
    return f"900 conversations, each by two templates: {answers} tokens of answers, {context} of context"
