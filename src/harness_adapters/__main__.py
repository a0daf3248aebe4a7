"""`python -m harness_adapters` is the `harness-adapters` command."""

from harness_adapters.cli.main import main

main()
