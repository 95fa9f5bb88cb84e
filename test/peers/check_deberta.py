"""DeBERTa v2 and v3 of ours against transformers and PyTorch, live: batches, training from records, files."""

import os

import numpy as np
import torch
from transformers import (DebertaV2Config, DebertaV2ForMaskedLM, DebertaV2ForSequenceClassification,
                          DebertaV2ForTokenClassification, DebertaV2Model)

import check_bert
import checks
import ours
import theirs
from checks import check, expect

PLUGIN = dict(plugin="deberta", keys="self.key_proj")
SIZES = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=100,
             max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
CLASSES = {"masked_lm": DebertaV2ForMaskedLM, "classify": DebertaV2ForSequenceClassification,
           "regress": DebertaV2ForSequenceClassification, "tag": DebertaV2ForTokenClassification}
# as the published v3 models; a batch of 23 tokens meets buckets of one distance and of several
V3 = dict(relative_attention=True, position_buckets=8, norm_rel_ebd="layer_norm", share_att_key=True,
          pos_att_type="p2c|c2p", position_biased_input=False, type_vocab_size=0)
V2_XL = dict(V3, conv_kernel_size=3, conv_act="gelu", pos_att_type=["p2c", "c2p"])


def make_model(task, seed=3, **changes):
    torch.manual_seed(seed)
    how = {**SIZES, **V3, **changes}
    names = check_bert.NAMES
    if task != "regress" and task != "masked_lm":
        how.update(id2label=dict(enumerate(names)), label2id={n: i for i, n in enumerate(names)})
    config = DebertaV2Config(vocab_size=len(check_bert.VOCAB), **how)
    if task == "regress":
        config.num_labels = 1
    model = theirs.randomize(CLASSES[task](config).float().eval(), 0.15)
    return model


def one_batch(folder, task, *options, fields=None, **changes):
    """What queries add to the scores of all their keys changes nothing: biases that do that alone have no gradient."""
    alone = changes.get("pos_att_type") == ["c2p"]
    return check_bert.one_batch(
        folder, task, *options, fields=fields, model=make_model(task, **changes), **PLUGIN,
        rounding=("pos_key_proj.bias", *(["deberta.encoder.LayerNorm.bias"] if alone else [])),
        beside=lambda name: name.replace("pos_key", "value").replace("key", "value").replace("Norm.bias", "Norm.weight"))


@check
def v3_masked_lm_gives_the_same_logits_and_gradients(folder):
    return one_batch(folder, "masked_lm")


@check
def an_untied_head_gives_the_same(folder):
    return one_batch(folder, "masked_lm", tie_word_embeddings=False)


@check
def the_head_that_is_not_legacy_gives_the_same(folder):
    return one_batch(folder, "masked_lm", legacy=False)


@check
def narrow_embeddings_give_the_same(folder):
    return one_batch(folder, "masked_lm", embedding_size=20) + "; " + one_batch(
        folder, "classify", embedding_size=20, position_biased_input=True, type_vocab_size=2)


@check
def classes_of_pairs_give_the_same(folder):
    return one_batch(folder, "classify")


@check
def numbers_of_pairs_give_the_same(folder):
    return one_batch(folder, "regress")


@check
def tags_give_the_same(folder):
    return one_batch(folder, "tag")


@check
def recomputed_blocks_give_the_same(folder):
    return one_batch(folder, "classify", "--gradient_checkpointing")


@check
def a_convolution_gives_the_same(folder):
    said = [one_batch(folder, "tag", **{**V2_XL, "conv_kernel_size": kernel, "conv_act": act})
            for kernel, act in ((1, "tanh"), (3, "gelu"), (5, "relu"))]
    return "; ".join(said)


@check
def every_kind_of_relative_attention_gives_the_same(folder):
    said = []
    for changes in (dict(pos_att_type=["c2p"]), dict(pos_att_type="p2c"), dict(share_att_key=False),
                    dict(share_att_key=False, pos_att_type=["p2c"]), dict(position_buckets=-1),
                    dict(position_buckets=7), dict(max_relative_positions=16, position_buckets=4),
                    dict(norm_rel_ebd="none"), dict(relative_attention=False, norm_rel_ebd="none"),
                    dict(relative_attention=False, pos_att_type=None, norm_rel_ebd="none")):
        said.append(f"{changes}: " + one_batch(folder, "tag", **changes))
    return "; ".join(said)


@check
def absolute_positions_and_types_give_the_same(folder):
    return one_batch(folder, "classify", position_biased_input=True, type_vocab_size=2)


@check
def a_pooler_of_another_function_gives_the_same(folder):
    return "; ".join(one_batch(folder, "classify", pooler_hidden_act=act, hidden_act=act)
                     for act in ("tanh", "relu", "gelu_new"))


@check
def a_single_token_is_a_row(folder):
    """There is one key, so no gradient goes through scores: rounding alone is compared in those of queries and keys."""
    model, fields = make_model("classify"), check_bert.random_fields("classify", rows=2, width=1)
    weights = check_bert.save_with_tokenizer(model, folder)
    data = check_bert.write_rows(folder, "classify", check_bert.rows_of("classify", 40))
    got = ours.probe_fields(folder, fields, weights, "--task", "classify", "--train_file", data, model="deberta")
    want = check_bert.reference(model, "classify", fields)
    for name in [n for n in want if "query_proj" in n or "key_proj" in n or "encoder.rel_" in n or "encoder.LayerNorm" in n]:
        expect(name, float(np.abs(got[name]).max()), 1e-6)
        del want[name]
    return checks.same_probe(got, want, 1e-4)


@check
def texts_longer_than_the_table_of_distances_give_the_same(folder):
    fields = check_bert.random_fields("tag", rows=2, width=75)
    fields["tokens"][fields["tokens"] == 0] = 1  # PyTorch gives the padding that it is no gradient
    return one_batch(folder, "tag", fields=fields)


# ---- training from records ----

def curves(folder, task, changes=None, **how):
    got, want, _, _ = check_bert.curves(folder, task, model=make_model(task, **(changes or {})), plugin="deberta", **how)
    return check_bert.same_curves(got, want)


@check
def twenty_steps_on_pairs_with_classes(folder):
    return curves(folder, "classify")


@check
def twenty_steps_on_two_ranks(folder):
    return curves(folder, "classify", ranks=2)


@check
def twenty_steps_with_a_convolution(folder):
    return curves(folder, "classify", changes=V2_XL)


@check
def twenty_steps_on_pairs_with_numbers(folder):
    return curves(folder, "regress")


@check
def twenty_steps_on_tags_with_projections_of_their_own(folder):
    return curves(folder, "tag", most=16, changes=dict(share_att_key=False))


# ---- files ----

@check
def what_we_train_opens_in_transformers_and_is_the_same_again(folder):
    said = []
    for task, changes in (("classify", {}), ("regress", V2_XL), ("tag", dict(share_att_key=False, embedding_size=20))):
        model, out, close = check_bert.reopened(folder, task, CLASSES[task], model=make_model(task, **changes),
                                                plugin="deberta")
        fields = check_bert.random_fields(task)
        got = ours.probe_fields(folder, fields, out, "--task", task, "--train_file",
                                check_bert.write_rows(folder, task, check_bert.rows_of(task, 40)), model="deberta")
        want, _ = check_bert.forward(model, task, fields)
        said.append(f"{task}: " + close + ", " + expect(
            "exact", checks.distance(check_bert.fill(fields, got["logits"]),
                                     check_bert.fill(fields, want.detach().numpy())), 1e-5))
    return "; ".join(said)


@check
def weights_are_written_as_they_were_read(folder):
    """No step is made: every tensor of the folder that is written has the bits of the one that was read."""
    said = []
    for changes in ({}, dict(V2_XL, legacy=False), dict(tie_word_embeddings=False, share_att_key=False)):
        model = make_model("masked_lm", **changes)
        weights, out = check_bert.save_with_tokenizer(model, folder), os.path.join(folder, "written")
        ours.zlaunch(2, "--task", "masked_lm", "--do_train", "--train_file", __file__, "--data_format", "text",
                     "--block_size", 32, "--max_steps", 1, "--learning_rate", 0, "--weight_decay", 0,
                     "--model_name_or_path", weights, "--output_dir", out, "--overwrite_output_dir", model="deberta")
        again, info = DebertaV2ForMaskedLM.from_pretrained(out, output_loading_info=True)
        info["missing_keys"] -= {"cls.predictions.bias"}  # where the head is not tied it is nothing's
        if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
            raise AssertionError(f"transformers says {info}")
        theirs_now = dict(again.named_parameters())
        for name, p in model.named_parameters():
            if name != "cls.predictions.bias" and not torch.equal(p, theirs_now[name]):
                raise AssertionError(f"{name} is not what it was")
        said.append(f"{len(theirs_now)} tensors")
    return ", ".join(said)


@check
def bodies_of_other_classes_load(folder):
    said = []
    for cls in (DebertaV2Model, DebertaV2ForMaskedLM, DebertaV2ForTokenClassification):
        path = check_bert.save_with_tokenizer(cls(make_model("classify").config), folder)
        fields = check_bert.random_fields("classify")
        got = ours.probe_fields(folder, fields, path, "--task", "classify", "--train_file",
                                check_bert.write_rows(folder, "classify", check_bert.rows_of("classify", 40)),
                                model="deberta")
        if got["logits"].shape != (len(fields["lengths"]), 3):
            raise AssertionError(f"{cls.__name__}: logits {got['logits'].shape}")
        said.append(cls.__name__)
    return ", ".join(said)


@check
def published_shapes_have_as_many_parameters(folder):
    """With the head of masked tokens."""
    said = []
    weights = check_bert.save_with_tokenizer(make_model("masked_lm"), folder)
    for name, changes in (("deberta-v3-base", dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
                                                   intermediate_size=3072)),
                          ("deberta-v2-xlarge", dict(V2_XL, hidden_size=1536, num_hidden_layers=24,
                                                     num_attention_heads=24, intermediate_size=6144))):
        how = {**SIZES, **V3, **changes, "position_buckets": 256, "max_position_embeddings": 512}
        with torch.device("meta"):
            body = DebertaV2ForMaskedLM(DebertaV2Config(**how))
        want = sum(p.numel() for p in body.parameters())
        text = ours.dry_run("--task", "masked_lm", "--model", name, "--vocab_size", 128100, "--train_file", __file__,
                            "--data_format", "text", "--tokenizer_name", weights, "--block_size", 64, model="deberta")
        if f"({want} parameters," not in text:
            raise AssertionError(f"{name}: {want} parameters are not in\n{text}")
        said.append(f"{name}: {want:,}")
    return ", ".join(said)
