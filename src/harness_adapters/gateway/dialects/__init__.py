"""Wire dialects: how a client writes requests and reads answers. One sibling file for each."""
