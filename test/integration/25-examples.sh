#!/bin/bash
# scripts/examples/*: on packages that are made up, for a few steps. Each makes its data, trains, evaluates and prints its metric
# beside its baseline; what has learnt too little says so.
. "$(dirname "$0")/train_lib.sh"
[ -x /usr/lib/apt/apt-helper ] || { echo "skip - there is no apt here" && exit 77; }
[ -z "${ZT_VARIANT:-}" ] || { echo "skip - what the scripts call has tests of its own for a sanitiser" && exit 77; }

# what apt knows of 5,700 packages, no description twice
mkdir -p "$tmp/path"
awk 'BEGIN {
    split("HTTP XML Perl JSON Qt SSH", thing, " "); split("libs web perl devel", section, " "); split("library tool module", kind, " ")
    for (i = 0; i < 5700; i++)
        printf "Package: pkg-%d\nSection: %s\nDescription: %s for %s number %d\n\n", i, section[i % 4 + 1], kind[i % 3 + 1], thing[i % 6 + 1], i
}' >"$tmp/available"
printf '#!/bin/sh\ncat "%s"\n' "$tmp/available" >"$tmp/path/apt-cache"
chmod +x "$tmp/path/apt-cache"
# lists of translations, as apt keeps them
mkdir -p "$tmp/translate/apt/lists"
awk -v dir="$tmp/translate/apt/lists/x_Translation-" 'BEGIN {
    split("HTTP XML Perl JSON Qt SSH", thing, " ")
    for (i = 0; i < 2400; i++) {
        key = "Description-md5: " sprintf("%032d", i)
        about = thing[i % 6 + 1] " and " thing[int(i / 6) % 6 + 1] " " int(i / 36) # a word that is rare is no row
        print "Package: p" i "\n" key "\nDescription-en: library for " about "\n more\n" >(dir "en")
        print "Package: p" i "\n" key "\nDescription-de: Bibliothek für " about "\n mehr\n" >(dir "de")
    }
    print "Package: q\nDescription-md5: q\nDescription-en: seldom\n" >(dir "en")
    print "Package: q\nDescription-md5: q\nDescription-de: selten\n" >(dir "de")
}'

# example NAME: its output to $tmp/NAME.said, and how it ended
example() {
    PATH=$tmp/path:$PATH ZT_EXAMPLE_STEPS=10 scripts/examples/"$1" "$tmp/$1" >"$tmp/$1.said" 2>&1
    ended=$?
    # what ten steps have learnt may be too little, but it is measured
    [ $ended -eq 0 ] || { [ $ended -eq 1 ] && tail -n 1 "$tmp/$1.said" | grep -qx "it is not better than that"; }
}
# says NAME WORDS: a regular expression
says() {
    grep -qE -- "$2" "$tmp/$1.said" && return
    tail -n 5 "$tmp/$1.said" | cut -c1-300 | sed 's/^/# /'
    return 1
}
check "classify runs" example classify
check "  sections" says classify '^5130 packages to learn from, 570 held out; always saying "[a-z]*" is right for 0.50*'
check "  accuracy and baseline" says classify '^accuracy 0\.[0-9]{4}; the most frequent section alone 0\.[0-9]{4}$'
check "tag runs" example tag
check "  F1 and baseline" says tag '^F1 [0-9.e-]+ of names and acronyms; the most frequent tag of each word alone 1\.0000$'
check "  which ten steps do not beat" [ $ended -eq 1 ]
check "chat runs" example chat
check "  loss and baseline" says chat '^loss [0-9.]+ of an answer.s tokens; to another package.s question [0-9.]+$'
check "translate runs" example translate
check "  rows of words that come often" says translate '^2160 descriptions to learn from, 240 held out'
check "  chrF and baseline" says translate '^chrF2 [0-9.]+; of the English texts as they are [1-9][0-9]\.[0-9]{2}$'
check "  which ten steps do not beat" [ $ended -eq 1 ]
finish
