"""Every secret kind that is looked for; where two match the same place, the earlier one names it."""

from harness_adapters.scrub.rule import Rule
from harness_adapters.scrub.rules import assignments, carriers, clouds, forges, models, services

RULES: tuple[Rule, ...] = (
    *models.RULES,
    *forges.RULES,
    *clouds.RULES,
    *services.RULES,
    *carriers.RULES,
    *assignments.RULES,
)
