"""``whynan rules``: the catalogue of hazards, and the page of one."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from whynan.errors import UsageError


def _called(context: click.Context, parameter: click.Parameter, begun: str) -> list[CompletionItem]:
    """Families and codes, and names where one is begun."""
    del context, parameter
    from whynan.compare.hazards import FAMILY, HAZARDS
    from whynan.rules.catalogue import names

    known = (*names(), FAMILY, *(hazard.code for hazard in HAZARDS.values()))
    return [CompletionItem(name) for name in known if name.lower().startswith(begun.lower())]


@click.command()
@click.argument("rule", metavar="[RULE]", required=False, shell_complete=_called)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json"]),
    default="text",
    help="With json, one rule is an object, several are a list.",
)
def rules(rule: str | None, format_: str) -> None:
    """List the hazards that whynan knows, or show the page of one.

    RULE is a code (WN201), a name (log-of-zero), or a family (WN2), which lists its rules. WNX are the hazards of
    exports, which whynan diff finds.

    \b
    Examples:
      whynan rules
      whynan rules WN201                              what it is, an example, what to do
      whynan rules log-of-zero
      whynan rules WN2                                a family
      whynan rules WNX01                              what an export loses
      whynan rules --format json

    Exit status: 0, or 2 if there is no such rule.
    """
    from whynan.compare.hazards import find_hazards
    from whynan.report.catalogue import show, show_entries, to_json
    from whynan.rules.catalogue import find_rules
    from whynan.rules.catalogue import rules as all_rules

    hazards = () if rule is None else find_hazards(rule)
    if hazards:
        if format_ == "json":
            raise UsageError("the hazards of exports are no rules, and have no document", "leave --format json out")
        show_entries(hazards, "lost in an export")
        return
    found = all_rules() if rule is None else find_rules(rule)
    if format_ == "json":
        click.echo(to_json(found))
    else:
        show(found, family=rule.upper() if rule is not None and isinstance(found, tuple) else None)
