"""Was it worth it: paired comparison of policies on the same tasks, with intervals, and the report that shows it.

`compare` turns rollouts into numbers, `claim` the numbers into one sentence, `tables` and `report` show both;
`from_run` reads a run directory. For a study, several runs on one test set: `pooling`, `study`, `study_claim` and
`study_tables` do the same, `from_study` reads its directory and `export` its small file. All sessions become records of
`evaluated` first. Pure but for `from_run` and `from_study` (read), `report` (writes one file) and `export` (both).
"""
