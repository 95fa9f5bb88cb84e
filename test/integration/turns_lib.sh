# Scenarios of a test that take turns; sourced.
# shellcheck shell=bash

# in_turn I: whether the I-th of scenarios that take long is run: all are; of a sample (ZT_SAMPLE=N) one of N, others the
# next day.
in_turn() { [ $((($1 + 10#${ZT_SEED:-0}) % ${ZT_SAMPLE:-1})) -eq 0 ]; }
