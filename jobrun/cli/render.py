"""``jobrun render``: the spec as it is run, and where each value comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from jobrun.cli.options import common, completes, option, sets_option, settings

if TYPE_CHECKING:
    from jobrun.jobspec.render import Origin
    from jobrun.jobspec.resolve import Spec

__all__ = ["command"]


@click.command("render", short_help="Show a spec with its defaults and what is set.")
@click.argument("spec", type=click.Path(), shell_complete=completes("spec"))
@sets_option
@option("--epochs", type=click.IntRange(min=1), metavar="N", help="Stop after N epochs in total.")
@option("--origin", is_flag=True, help="Show where each value comes from.")
@common
def command(spec: str, sets: tuple[str, ...], epochs: int | None, origin: bool) -> None:
    """Show SPEC as it is run: defaults filled in, aliases written out, --set applied.

    The output is a spec of the same job.  With --origin every value is followed by its file and
    line, the option or JOBRUN_ variable that set it, or "default".  - reads the spec from stdin.
    """
    from jobrun.cli.specs import load_spec
    from jobrun.errors import SpecError
    from jobrun.jobspec.render import origins, render, resolved

    loaded = load_spec(spec, sets, epochs=epochs)
    if loaded.problems:
        raise SpecError(loaded.problems)
    root = resolved(loaded)
    where = _origin(loaded) if origin else None
    if not settings().json:
        click.echo(render(root, where), nl=False)
        return
    from jobrun.report.formatting import json_values

    values = json_values(root.plain())
    if where is not None:
        values = {"spec": values, "origin": origins(root, where)}
    click.echo(json.dumps(values, ensure_ascii=False))


def _origin(spec: Spec) -> Origin:
    """Return the origin of a value: a line of the spec, an option, a variable, or none."""
    from jobrun.jobspec.source import SpecNode

    context = click.get_current_context()
    variables = {
        option: twin
        for option, twin, parameter in (
            ("--set", "JOBRUN_SET", "sets"),
            ("--unset", "JOBRUN_UNSET", "unsets"),
            ("--epochs", "JOBRUN_EPOCHS", "epochs"),
        )
        if context.get_parameter_source(parameter) is ParameterSource.ENVIRONMENT
    }

    def origin(node: SpecNode) -> str:
        if node.place is None:
            return f"{spec.path}:{node.line + 1}"
        said = node.place.file
        option, _, value = said.partition(" ")
        return f"{variables[option]}={value}" if option in variables else said

    return origin
