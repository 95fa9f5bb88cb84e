"""Every live comparison, model by model. Started by test/peers/run."""

import sys

import checks
import check_answers
import check_bert  # noqa: F401
import check_deberta  # noqa: F401
import check_deepspeed  # noqa: F401
import check_generate  # noqa: F401
import check_gguf  # noqa: F401
import check_gpt2  # noqa: F401  (importing a file adds its checks)
import check_llama  # noqa: F401
import check_lora  # noqa: F401
import check_bart  # noqa: F401
import check_t5  # noqa: F401
import check_scores
import check_sentencepiece
import check_templates
import check_tokenizers
import check_trained
import check_trainer  # noqa: F401

for kind in check_tokenizers.KINDS:
    checks.check(check_tokenizers.as_check(kind))
for kind in check_sentencepiece.KINDS + check_sentencepiece.FOLDERS:
    checks.check(check_sentencepiece.as_check(kind))
for kind, size in check_trained.KINDS:
    checks.check(check_trained.as_check(kind, size))
for check in (check_templates.families_render_as_transformers_does, check_templates.pieces_render_as_jinja_does,
              check_templates.what_jinja_refuses_is_refused, check_answers.answers_are_those_of_transformers,
              check_scores.texts_have_the_scores_of_sacrebleu_and_rouge_score, check_scores.tags_have_the_scores_of_seqeval):
    checks.check(check)
sys.exit(checks.main(sys.argv[1:]))
