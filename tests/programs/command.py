"""A command of click's, with a prompt and an error of its own."""

import click


@click.command()
@click.option("--steps", default=2, show_default=True)
@click.option("--name", prompt=True)
@click.pass_context
def main(context, steps, name):
    """Say a name."""
    for step in range(steps):
        click.secho(f"{step}: {name}", fg="green")
    if name == "nobody":
        raise click.UsageError("there is no such name")
    context.exit(7 if name == "seven" else 0)


if __name__ == "__main__":
    main()
