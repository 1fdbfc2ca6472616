"""Which assets a run of Dagster materializes."""

from dagster import AssetExecutionContext


def is_selected(context: AssetExecutionContext, asset_name: str) -> bool:
    """Return whether the run of this step is to materialize an asset, too."""
    selected, steps = context.run.asset_selection, context.run.step_keys_to_execute
    is_asset = not selected or any(key.path[-1] == asset_name for key in selected)
    return is_asset and (steps is None or asset_name in steps)
