"""The words that tasks are made of: short, common, lower-case, one token each for the embedded model.

A small model has to copy these words into its command. Words that its tokenizer cuts in pieces come out mangled, which
would measure spelling and nothing else. The pools share no word, nor does any hold a table's name, a shell command or a
word of the instructions.
"""

from __future__ import annotations

_TRAIN = (
    "amber stone river paper forest bridge castle tower window orange apple sugar button anchor planet summer winter "
    "spring lion horse rose purple yellow green cloud storm snow wave sand clay rock hill lake farm gate road wheel "
    "engine train ship map clock bell net plate cup bed door wall moon star leaf tree seed bread rice salt milk fish "
    "bird dog bear wolf ant shell music market street school museum north east"
)

_HELDOUT = (
    "blue white black brown fire wind stream field boat plane story ink book chain chair floor glass wood iron page "
    "gold tin sun earth sky branch root fruit corn wheat soup fox hen pig bee shore coast circle square song picture "
    "city park library center south west"
)

_DEV = (
    "water light sound voice metal bay track rail church doctor teacher driver king mouse owl crow snake hat coat "
    "shirt boot belt ring wallet bag pot pan oven pen brush canvas photo camera radio phone video movie stage ball bat "
    "goal player team game car bus van robot motor night"
)

POOLS = {"train": tuple(_TRAIN.split()), "dev": tuple(_DEV.split()), "heldout": tuple(_HELDOUT.split())}
"""Words by pool; held-out and unseen tasks are made of the last."""
