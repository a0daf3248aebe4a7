"""Secrets and personal details out of sessions: found in decoded strings, replaced by numbered stand-ins."""

from harness_adapters.scrub.identity import Identity, identity_of
from harness_adapters.scrub.own_secrets import live_secrets
from harness_adapters.scrub.redaction import Redactor, secrets_redactor
from harness_adapters.scrub.report import FileReport, Report
from harness_adapters.scrub.run import check_files, scrub_files
from harness_adapters.scrub.scrubber import Finding, Scrubbed, Scrubber

__all__ = [
    "FileReport",
    "Finding",
    "Identity",
    "Redactor",
    "Report",
    "Scrubbed",
    "Scrubber",
    "check_files",
    "identity_of",
    "live_secrets",
    "scrub_files",
    "secrets_redactor",
]
