"""Was it worth it: paired comparison of policies on the same tasks, with intervals, and the report that shows it.

`compare` turns rollouts into numbers, `claim` the numbers into one sentence, `tables` and `report` show both;
`from_run` reads a run directory. Pure but for `from_run` (reads) and `report` (writes one file).
"""
