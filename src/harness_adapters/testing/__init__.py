"""Parts for tests, ours and our users': tiny models, scripted counterparts, contract suites."""
