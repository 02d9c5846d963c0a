"""From three sources to one validated model, with every problem found on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from lmcache_core.config.environment import read_environment
from lmcache_core.config.items import lay_items
from lmcache_core.config.judgement import Judgement
from lmcache_core.config.known import Known
from lmcache_core.config.model import CoreConfig, ExtraConfig, TableOwner, build_model
from lmcache_core.config.origin import Layer, Merged, Origin, merge, one_line
from lmcache_core.config.problem import Problem
from lmcache_core.config.unknown import Claims, unused_warning

_CORE_KEYS = frozenset({*CoreConfig.model_fields, *ExtraConfig.model_fields})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the sources came to. `values` holds defaults in place of whatever is wrong.

    Attributes:
        values: The model.
        merged: Effective values as they were given, and where.
        problems: Everything that is wrong, in the order of a report.
        warnings: Everything that is only odd.
        services: Variables that Kubernetes or Docker set.
    """

    values: CoreConfig
    merged: Merged
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    services: tuple[str, ...]


def judge(
    *,
    document: Layer,
    overrides: Layer,
    environ: Mapping[str, str],
    owners: Sequence[TableOwner],
    known: Known | None,
) -> Verdict:
    """Claim, merge and validate.

    Args:
        document: The file.
        overrides: The command line.
        environ: All variables.
        owners: Tables of loaded plugins.
        known: What plugins bring; None before they are loaded, when nothing of theirs is judged.
    """
    model = build_model(owners)
    claims = Claims(model, known.unloaded if known is not None else {}, knows_plugins=known is not None)
    environment = read_environment(model, claims.of_environment(environ), _CORE_KEYS)
    given, over = (
        [each.replaced(claims.of_layer(each)) for each in (document, environment.layer)],
        claims.of_layer(overrides),
    )
    merged = merge(given)
    unplaced = lay_items(merged, environment.items)
    merged.lay(overrides.replaced(over))
    judgement = Judgement(model, merged, {owner.settings.table: owner.plugin for owner in owners}, known)
    for each in claims.problems:
        judgement.note(each.path, each.sentence, each.origin)
    for path, text in environment.wrong:
        judgement.note(path, text, environment.layer.origin(path))
    for variable, path, text in unplaced:
        judgement.note(path, text, Origin("env", variable, 0, path))
    values = judgement.run()
    return Verdict(
        values=values,
        merged=merged,
        problems=tuple(sorted(dict.fromkeys(judgement.problems), key=attrgetter("order"))),
        warnings=tuple(map(one_line, (*claims.warnings, *unused_warning(claims.unused)))),
        services=tuple(map(one_line, claims.services)),
    )
