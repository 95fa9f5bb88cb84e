"""T5 of ours against transformers and PyTorch, live."""

import os

import torch
from transformers import T5Config, T5ForConditionalGeneration

import checks
import ours
import seq2seq
import theirs
from checks import check, same_curve

SIZES = {
    "small": dict(vocab_size=257, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4),
    # heads whose width together is not the model's; other buckets; a deeper decoder
    "odd": dict(vocab_size=259, d_model=36, d_kv=10, d_ff=70, num_layers=2, num_decoder_layers=3,
                num_heads=3, relative_attention_num_buckets=16, relative_attention_max_distance=20),
    "gated": dict(vocab_size=257, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                  feed_forward_proj="gated-gelu"),
}


def make(name, untied=False, seed=3, spread=0.15, **more):
    torch.manual_seed(seed)
    config = T5Config(dropout_rate=0.0, decoder_start_token_id=0, attn_implementation="eager",
                      **{"tie_word_embeddings": not untied, **SIZES[name], **more})
    model = T5ForConditionalGeneration(config).float().eval()
    if untied:
        config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    return theirs.randomize(model, spread)


def one_batch(name, folder, *options, source=13, target=9, untied=False, **how):
    model = make(name, untied)
    fields = seq2seq.batch(SIZES[name]["vocab_size"], source=source, target=target)
    return seq2seq.one_batch("t5", model, folder, fields, *options, **how)


@check
def t5_gives_the_same_logits_and_gradients(folder):
    return one_batch("small", folder)


@check
def odd_t5_gives_the_same_logits_and_gradients(folder):
    return one_batch("odd", folder)


@check
def gated_t5_with_an_untied_head_gives_the_same_logits_and_gradients(folder):
    return one_batch("gated", folder, untied=True)


@check
def t5_of_texts_beyond_the_last_bucket_gives_the_same_logits_and_gradients(folder):
    return one_batch("small", folder, source=201, target=171)


@check
def recomputed_t5_gives_the_same_gradients(folder):
    return one_batch("odd", folder, "--gradient_checkpointing")


@check
def smoothed_targets_of_t5_give_the_same_gradients(folder):
    return one_batch("small", folder, smoothing=0.1)


@check
def twenty_steps_of_adamw_t5(folder):
    got, want, _ = seq2seq.curves("t5", make("small", spread=0.3), folder)
    return same_curve(got, want, 1e-3)


@check
def twenty_smoothed_steps_of_t5_accumulated_on_two_ranks(folder):
    got, want, _ = seq2seq.curves("t5", make("small", untied=True), folder, rows=8, ranks=2,
                                  accumulate=2, smoothing=0.1)
    return same_curve(got, want, 1e-3)


def reopen(folder, untied):
    trained = make("small", untied)
    _, _, out = seq2seq.curves("t5", trained, folder)
    model, info = T5ForConditionalGeneration.from_pretrained(out, output_loading_info=True,
                                                             attn_implementation="eager")
    wrong = [k for k in info["missing_keys"] if "embed_tokens" not in k and k != "lm_head.weight"]
    if wrong or info["unexpected_keys"] or info["mismatched_keys"]:
        raise AssertionError(f"transformers says {info}")
    if untied == torch.equal(model.lm_head.weight, model.shared.weight):
        raise AssertionError("the head is not tied as it was")
    fields = seq2seq.add_tokens(seq2seq.batch(257), model)
    filler = seq2seq.write_pairs(folder, [("a", "b")])
    got = ours.probe_fields(folder, fields, out, "--train_file", filler, *seq2seq.DATA, model="t5")
    return seq2seq.same(got, seq2seq.theirs(model.float().eval(), fields))


@check
def t5_that_we_train_opens_in_transformers(folder):
    return reopen(folder, False)


@check
def t5_with_an_untied_head_that_we_train_opens_in_transformers(folder):
    return reopen(folder, True)


def written(folder, beams):
    # transformers has a cache for as many layers in the decoder as in the encoder alone
    model = make("odd", seed=8, spread=0.6, vocab_size=101)
    return seq2seq.generate("t5", model, folder, [3, 14, 15, 92, 65], 30, beams, use_cache=False)


@check
def greedy_text_of_t5(folder):
    return written(folder, 1)


@check
def text_of_t5_by_beam_search(folder):
    return written(folder, 4)


@check
def one_to_five_beams_of_t5_from_100_sources(folder):
    return seq2seq.all_beams("t5", lambda seed: make("small", seed=seed, spread=0.6, vocab_size=101), folder)
