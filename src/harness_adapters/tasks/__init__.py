"""Tasks: Harbor task directories, how they are read, prepared, graded and made.

`format` reads and writes the directories, `grading` runs them in sandboxes, `sources` makes new ones.
"""
