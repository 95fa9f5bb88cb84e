"""BERT of ours against transformers and PyTorch, live: batches, training from records, files."""

import json
import os

import numpy as np
import torch
from transformers import (AutoTokenizer, BertConfig, BertForMaskedLM, BertForPreTraining,
                          BertForSequenceClassification, BertForTokenClassification, BertModel)

import checks
import ours
import theirs
from checks import check, expect, same_probe, save

SIZES = dict(hidden_size=48, num_hidden_layers=2, num_attention_heads=3, intermediate_size=100,
             max_position_embeddings=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
WORDS = [f"w{i}" for i in range(90)]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##xy", "##z"]
NAMES = ["contra", "entail", "neutral"]
CLASSES = {"masked_lm": BertForMaskedLM, "classify": BertForSequenceClassification,
           "regress": BertForSequenceClassification, "tag": BertForTokenClassification}
STEPS = 20


def tokenizer_files(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "vocab.txt"), "w", encoding="utf-8") as f:
        f.write("\n".join(VOCAB) + "\n")
    special = {r + "_token": f"[{r.upper()}]" for r in ("pad", "unk", "cls", "sep", "mask")}
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump({"tokenizer_class": "BertTokenizer", "do_lower_case": True, **special}, f)


def make_model(task, seed=3, **changes):
    torch.manual_seed(seed)
    labels = 1 if task == "regress" else len(NAMES)
    names = {"id2label": dict(enumerate(NAMES)), "label2id": {n: i for i, n in enumerate(NAMES)}}
    config = BertConfig(vocab_size=len(VOCAB), attn_implementation="eager", **SIZES,
                        **(names if labels > 1 and task != "masked_lm" else {}), **changes)
    if task == "regress":
        config.num_labels = 1
    return theirs.randomize(CLASSES[task](config).float().eval(), 0.15)


def save_with_tokenizer(model, folder):
    path = save(model, folder)
    tokenizer_files(path)
    return path


# ---- data: the same rows for both ----

def sentence(rng, most):
    return " ".join(rng.choice(WORDS) + rng.choice(["", "", "xy", "z"])
                    for _ in range(int(rng.integers(1, most))))


def rows_of(task, num, seed=5, most=14):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(num):
        if task == "tag":
            words = [str(rng.choice(WORDS)) + str(rng.choice(["", "xy"]))
                     for _ in range(int(rng.integers(1, most)))]
            rows.append({"tokens": words, "ner_tags": [NAMES[int(w[1:3].strip("x")) % 3] for w in words]})
            continue
        a, b = sentence(rng, most), sentence(rng, most)
        label = (len(a) + len(b)) % 3
        rows.append({"sentence1": a, "sentence2": b,
                     "label": NAMES[label] if task == "classify" else round(label * 0.7 - 0.4, 3)})
    return rows


def write_rows(folder, task, rows):
    path = os.path.join(folder, task + ".jsonl")
    with open(path, "w", encoding="utf-8") as f:
        if task == "masked_lm":
            path = path[:-1] + "t"
        for row in rows:
            f.write(json.dumps(row) + "\n")
    return path


def encode(tokenizer, task, row, most):
    """(ids, types, label or labels) as run_glue and run_ner of transformers make them."""
    if task == "tag":
        one = tokenizer(row["tokens"], is_split_into_words=True, truncation=True, max_length=most)
        words, labels, before = one.word_ids(), [], None
        for w in words:
            labels.append(-100 if w is None or w == before else NAMES.index(row["ner_tags"][w]))
            before = w
        return one["input_ids"], one["token_type_ids"], labels
    one = tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=most)
    label = NAMES.index(row["label"]) if task == "classify" else row["label"]
    return one["input_ids"], one["token_type_ids"], label


def collate(task, encoded):
    width = max(len(ids) for ids, _, _ in encoded)
    pad = lambda values, fill: [list(v) + [fill] * (width - len(v)) for v in values]
    fields = {"tokens": np.array(pad([e[0] for e in encoded], 0), dtype=np.int32),
              "token_types": np.array(pad([e[1] for e in encoded], 0), dtype=np.int32),
              "lengths": np.array([len(e[0]) for e in encoded], dtype=np.int32)}
    labels = [e[2] for e in encoded]
    if task in ("tag", "masked_lm"):
        fields["targets"] = np.array(pad(labels, -100), dtype=np.int32)
    else:
        fields["labels"] = np.array(labels, dtype=np.int32 if task == "classify" else np.float32)
    return fields


def random_fields(task, rows=5, width=23, seed=1):
    rng = np.random.default_rng(seed)
    encoded = []
    for r in range(rows):
        n = width if r == 1 else int(rng.integers(1, width + 1))
        ids = rng.integers(0, len(VOCAB), size=n)
        types = (np.arange(n) > n // 2).astype(int)
        label = {"classify": int(rng.integers(0, 3)), "regress": float(rng.normal())}.get(task)
        if task == "tag":
            label = np.where(rng.random(n) < 0.3, -100, rng.integers(0, 3, size=n))
        elif task == "masked_lm":
            label = np.where(rng.random(n) < 0.6, -100, rng.integers(0, len(VOCAB), size=n))
        encoded.append((ids, types, label))
    return collate(task, encoded)


# ---- theirs ----

def forward(model, task, fields):
    """Logits, and the mean loss."""
    width = fields["tokens"].shape[1]
    mask = torch.from_numpy(np.arange(width)[None] < fields["lengths"][:, None]).long()
    logits = model(torch.from_numpy(fields["tokens"]).long(), attention_mask=mask,
                   token_type_ids=torch.from_numpy(fields["token_types"]).long()).logits
    labels = torch.from_numpy(fields["targets" if "targets" in fields else "labels"])
    if task == "regress":
        return logits, torch.nn.functional.mse_loss(logits.reshape(-1), labels)
    return logits, torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                                     labels.reshape(-1).long())


def named(model):
    """Parameters by the names of ours: tied ones are called as in the body."""
    skip = {"cls.predictions.bias"} if not model.config.tie_word_embeddings else set()
    return [(n, p) for n, p in model.named_parameters() if n not in skip]


def reference(model, task, fields):
    model.zero_grad()
    logits, loss = forward(model, task, fields)
    loss.backward()
    out = {"loss": loss.detach().reshape(1).numpy(), "logits": logits.detach().numpy()}
    return {**out, **{"grad." + n: p.grad.numpy() for n, p in named(model)}}


def fill(fields, logits):
    """Logits of padding are nobody's business."""
    if logits.ndim == 3:
        width = logits.shape[1]
        logits = logits * (np.arange(width)[None, :, None] < fields["lengths"][:, None, None])
    return logits


def one_batch(folder, task, *options, fields=None, model=None, plugin="bert", keys="self.key",
              rounding=(), beside=lambda name: name.replace("key", "value").replace("query", "value")):
    """rounding: parts of more names whose gradients are rounding alone; beside: a gradient of their size that is not."""
    model = model or make_model(task)
    fields = fields or random_fields(task)
    weights = save_with_tokenizer(model, folder)
    data = write_rows(folder, task, rows_of(task, 40)) if task != "masked_lm" else __file__
    got = ours.probe_fields(folder, fields, weights, "--task", task, "--train_file", data,
                            *options, model=plugin)
    want = reference(model, task, fields)
    got["logits"], want["logits"] = fill(fields, got["logits"]), fill(fields, want["logits"])
    # a key's bias adds the same to all scores of a query: its gradient is rounding alone, as are
    # all of queries and keys where there is one key
    parts = (keys + ".bias",) if fields["tokens"].shape[1] > 1 else (keys + ".", keys.replace("key", "query") + ".")
    for name in [n for n in want if any(part in n for part in (*parts, *rounding))]:
        expect(name, float(np.abs(got[name] - want[name]).max() / np.abs(want[beside(name)]).max()), 1e-5)
        del want[name]
    return same_probe(got, want, 1e-4, parts=("loss", "logits")) + ", " + same_probe(
        got, want, 1e-3, parts=("grad.",))


@check
def masked_lm_gives_the_same_logits_and_gradients(folder):
    return one_batch(folder, "masked_lm")


@check
def an_untied_head_gives_the_same(folder):
    return one_batch(folder, "masked_lm", model=make_model("masked_lm", tie_word_embeddings=False))


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
def a_single_token_is_a_row(folder):
    fields = random_fields("classify", rows=2, width=1)
    return one_batch(folder, "classify", fields=fields)


@check
def relu_and_tanh_gelu_are_built(folder):
    said = [one_batch(folder, "classify", model=make_model("classify", hidden_act=act))
            for act in ("relu", "gelu_new")]
    return "; ".join(said)


# ---- training from records ----

def curves(folder, task, ranks=1, rows=4, most=21, options=(), model=None, plugin="bert"):
    data = rows_of(task, 53)
    model = model or make_model(task)
    weights = save_with_tokenizer(model, folder)
    out = os.path.join(folder, "trained")
    log = ours.zlaunch(ranks, "--task", task, "--do_train", "--train_file",
                       write_rows(folder, task, data), "--block_size", most,
                       "--per_device_train_batch_size", rows // ranks, "--max_steps", STEPS,
                       "--seed", 11, "--model_name_or_path", weights, "--output_dir", out,
                       "--overwrite_output_dir", "--learning_rate", 2e-3, "--weight_decay", 0.1,
                       "--warmup_steps", 5, "--logging_steps", 1, *options, model=plugin)
    got = np.array([(e["loss"], e["grad_norm"]) for e in ours.events(log, "step")])
    return got, train(model, task, weights, data, rows, most), model, out


def train(model, task, weights, data, rows, most):
    tokenizer = AutoTokenizer.from_pretrained(weights)
    encoded = [encode(tokenizer, task, row, most) for row in data]
    groups = [{"params": [p for _, p in named(model) if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for _, p in named(model) if p.dim() < 2], "weight_decay": 0.0}]
    optimizer, curve = torch.optim.AdamW(groups, lr=2e-3), []
    for k in range(STEPS):
        places = [divmod(k * rows + r, len(data)) for r in range(rows)]
        batch = [encoded[ours.permute(11, epoch, len(data), i)] for epoch, i in places]
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (k / 5 if k < 5 else (STEPS - k) / (STEPS - 5))
        optimizer.zero_grad()
        _, loss = forward(model, task, collate(task, batch))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in named(model)], 1.0)
        optimizer.step()
        curve.append((loss.item(), float(norm)))
    return np.array(curve)


def same_curves(got, want):
    if got.shape != want.shape:
        raise AssertionError(f"{len(got)} step events of {len(want)}")
    far = np.abs(got - want)
    return (expect("loss", float(far[:, 0].max()), 1e-3) + ", "
            + expect("gradient norm", float((far[:, 1] / want[:, 1]).max()), 1e-2)
            + f", {want[0, 0]:.2f} to {want[-1, 0]:.2f}")


@check
def twenty_steps_on_pairs_with_classes(folder):
    got, want, _, _ = curves(folder, "classify")
    return same_curves(got, want)


@check
def twenty_steps_on_two_ranks(folder):
    got, want, _, _ = curves(folder, "classify", ranks=2)
    return same_curves(got, want)


@check
def twenty_steps_on_pairs_that_are_cut_off(folder):
    got, want, _, _ = curves(folder, "classify", most=12)
    return same_curves(got, want)


@check
def twenty_steps_on_pairs_with_numbers(folder):
    got, want, _, _ = curves(folder, "regress")
    return same_curves(got, want)


@check
def twenty_steps_on_tags(folder):
    got, want, _, _ = curves(folder, "tag", most=16)
    return same_curves(got, want)


# ---- files ----

def reopened(folder, task, cls, **how):
    _, _, trained, out = curves(folder, task, **how)
    model, info = cls.from_pretrained(out, output_loading_info=True, attn_implementation="eager")
    if any(info[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys")):
        raise AssertionError(f"transformers says {info}")
    fields = random_fields(task)
    got, _ = forward(model.float().eval(), task, fields)
    want, _ = forward(trained, task, fields)
    if task != "regress" and [model.config.id2label[i] for i in range(3)] != NAMES:
        raise AssertionError(f"id2label {model.config.id2label}")
    return model, out, expect("logits", checks.noise(got.detach().numpy(), want.detach().numpy()),
                              1e-2)


@check
def what_we_train_opens_in_transformers_and_is_the_same_again(folder):
    said = []
    for task in ("classify", "regress", "tag"):
        model, out, close = reopened(folder, task, CLASSES[task])
        fields = random_fields(task)
        got = ours.probe_fields(folder, fields, out, "--task", task, "--train_file",
                                write_rows(folder, task, rows_of(task, 40)), model="bert")
        want, _ = forward(model, task, fields)
        said.append(f"{task}: " + close + ", " + expect(
            "exact", checks.distance(fill(fields, got["logits"]),
                                     fill(fields, want.detach().numpy())), 1e-5))
    return "; ".join(said)


def body_loads(folder, cls):
    """A classifier over another model's body: its own head begins as new."""
    task = "classify"
    model = make_model(task)
    other = cls(model.config)
    other = theirs.randomize(other.float().eval(), 0.15)
    body = other if cls is BertModel else other.bert
    model.bert.load_state_dict(body.state_dict(), strict=False)
    path = save_with_tokenizer(other, folder)
    fields = random_fields(task)
    got = ours.probe_fields(folder, fields, path, "--task", task, "--train_file",
                            write_rows(folder, task, rows_of(task, 40)), model="bert")
    return got["logits"], fields


@check
def bodies_of_other_classes_load(folder):
    said = []
    for cls in (BertModel, BertForMaskedLM, BertForPreTraining, BertForTokenClassification):
        logits, fields = body_loads(folder, cls)
        if logits.shape != (len(fields["lengths"]), len(NAMES)):
            raise AssertionError(f"{cls.__name__}: logits {logits.shape}")
        said.append(cls.__name__)
    return ", ".join(said)


@check
def masks_are_as_many_and_of_the_sorts_of_bert(folder):
    """20,000 tokens through the data: shares of what is predicted, and of what becomes of it."""
    weights = save_with_tokenizer(make_model("masked_lm"), folder)
    text = os.path.join(folder, "text.txt")
    rng = np.random.default_rng(3)
    with open(text, "w", encoding="utf-8") as f:
        for _ in range(1500):
            f.write(" ".join(rng.choice(WORDS, size=13)) + "\n")
    log = ours.zlaunch(2, "--task", "masked_lm", "--do_eval", "--eval_file", text, "--block_size",
                       32, "--model_name_or_path", weights, model="bert")
    tokens = ours.events(log, "eval")[-1]["tokens"]
    share = tokens / (1500 * 13)
    return expect(f"{tokens} of 19500 are predicted: share off 0.15 by", abs(share - 0.15), 0.01)


# ---- metrics ----

def scores(task, meant, predicted):
    """What scikit-learn and scipy say."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef
    if task == "regress":
        return {"pearson": pearsonr(meant, predicted)[0], "spearmanr": spearmanr(meant, predicted)[0]}
    return {"accuracy": accuracy_score(meant, predicted),
            "f1_macro": f1_score(meant, predicted, average="macro"),
            "matthews_correlation": matthews_corrcoef(meant, predicted)}


def read_predictions(task, folder):
    with open(os.path.join(folder, "predictions.jsonl"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [w for line in lines for w in line["tags"]] if task == "tag" else [line["label"] for line in lines]


@check
def metrics_are_those_of_scikit_learn_and_scipy(folder):
    """1,000 rows on three ranks: evaluation against what the two make of the predictions."""
    said = []
    for task in ("classify", "regress", "tag"):
        rows = rows_of(task, 1000, most=9)
        weights = save_with_tokenizer(make_model(task), folder)
        data, out = write_rows(folder, task, rows), os.path.join(folder, "predicted-" + task)
        log = ours.zlaunch(3, "--task", task, "--model_name_or_path", weights, "--do_eval", "--eval_file",
                           data, "--test_file", data, "--output_dir", out, "--block_size", 40, model="bert")
        event, key = ours.events(log, "eval")[-1], "ner_tags" if task == "tag" else "label"
        meant = [w for row in rows for w in row[key]] if task == "tag" else [row[key] for row in rows]
        want = scores(task, meant, read_predictions(task, out))
        said += [expect(f"{task}: {name}", abs(event[name] - value), 1e-6) for name, value in want.items()]
    return ", ".join(said)
