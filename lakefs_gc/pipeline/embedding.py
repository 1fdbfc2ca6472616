"""The assets, jobs, schedule and sensors for a code location that has definitions of other people, too.

Nothing here clashes with theirs: keys have a prefix, and every other name is derived from it. Nothing applies to the
rest of the code location: the executor is that of the jobs, and the resources have names of their own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dagster import (
    AssetIn,
    AssetsDefinition,
    AssetSelection,
    Definitions,
    SensorDefinition,
    asset,
    define_asset_job,
)
from dagster._core.definitions.decorators.op_decorator import DecoratedOpFunction
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from lakefs_gc.config import Settings
from lakefs_gc.errors import ConfigurationError
from lakefs_gc.notify import Notify
from lakefs_gc.notify.senders import build_notify
from lakefs_gc.pipeline.automation.approval_sensor import approval_sensor
from lakefs_gc.pipeline.automation.forecast_sensor import forecast_sensors
from lakefs_gc.pipeline.automation.metrics_sensor import metrics_sensors
from lakefs_gc.pipeline.automation.notify_sensor import notify_sensor
from lakefs_gc.pipeline.automation.schedules import mark_schedule
from lakefs_gc.pipeline.automation.sweep_sensor import sweep_sensor
from lakefs_gc.pipeline.code_location import build_assets, build_resources
from lakefs_gc.pipeline.jobs import JOBS, gc_forecast, gc_mark, gc_sweep
from lakefs_gc.pipeline.names import POOL, Names
from lakefs_gc.pipeline.partitions import repository_config
from lakefs_gc.pipeline.ui.checks import check_specs

_NOT_POOLED = frozenset({"sweep_approval"})
"""An approval reads a mark and writes a record. It does not wait for a run."""


def build_embedded_definitions(settings: Settings, names: Names, notify: Notify | None) -> Definitions:
    """Return what ``build_definitions`` returns, below the prefix of ``names``. See the module.

    ``notify`` receives the events of the runs; default: as the settings say. Raises ``ConfigurationError`` for settings
    that cannot be embedded.
    """
    if settings.emr is not None:
        raise ConfigurationError(
            "The settings have a table [emr]. Jobs on EMR report to lakefs-gc's own code location only",
            remedy="add `lakefs_gc.definitions` to workspace.yaml as a code location of its own, or remove [emr]",
        )
    assets = build_assets(settings)
    jobs = {job.name: _embedded_job(job, assets, names) for job in JOBS}
    sensors: list[SensorDefinition] = [
        sweep_sensor(settings.sweep, job=jobs[gc_sweep.name], names=names),
        approval_sensor(settings, names=names),
        *forecast_sensors(settings, jobs[gc_forecast.name], names),
        *metrics_sensors(settings, names),
    ]
    notify = notify or build_notify(settings.notify)
    if notify is not None:
        sensors.append(notify_sensor(notify, names, [job.name for job in jobs.values()]))
    return Definitions(
        assets=[_embedded_asset(each, names) for each in assets],
        jobs=list(jobs.values()),
        schedules=[mark_schedule(settings, jobs[gc_mark.name], names)],
        sensors=sensors,
        resources={names.name(key): resource for key, resource in build_resources(settings).items()},
    )


def _embedded_job(
    job: UnresolvedAssetJobDefinition, assets: Sequence[AssetsDefinition], names: Names
) -> UnresolvedAssetJobDefinition:
    # By key: groups of these names may contain assets of other people.
    keys = sorted(names.key(key.path[-1]) for key in job.selection.resolve(assets))
    return define_asset_job(
        names.name(job.name),
        AssetSelection.assets(*keys),
        config=repository_config(names),
        executor_def=job.executor_def,
        description=job.description,
    )


def _embedded_asset(definition: AssetsDefinition, names: Names) -> AssetsDefinition:
    """Return an asset with another key, and with other names of its op, partitions, pool, group and resources.

    Dagster can replace the key, but neither the op's name nor the resources' names. So it is decorated anew.
    """
    (spec,) = definition.specs
    op, name = definition.op, spec.key.path[-1]
    if not isinstance(op.compute_fn, DecoratedOpFunction):
        raise TypeError(f"not a decorated asset: {name}")
    function = op.compute_fn.decorated_fn
    arguments = inspect.signature(function).parameters
    new_names = {argument: names.name(argument) for argument in arguments if argument in op.required_resource_keys}
    inputs = {argument: names.key(key.path[-1]) for argument, key in definition.keys_by_input_name.items()}
    decorate: Callable[[Callable[..., Any]], AssetsDefinition] = asset(
        name=name,
        key_prefix=names.prefix,
        ins={argument: AssetIn(key) for argument, key in inputs.items() if argument in arguments},
        deps=[key for argument, key in inputs.items() if argument not in arguments],
        metadata=spec.metadata,
        description=spec.description,
        # Also for assets that return no table: the default IO manager of the project may need a database.
        io_manager_key=names.name("parquet"),
        partitions_def=names.runs,
        group_name=names.name(str(spec.group_name)),
        check_specs=check_specs(name, names) if list(definition.check_specs) else None,
        owners=list(spec.owners),
        kinds=set(spec.kinds),
        pool=None if name in _NOT_POOLED else names.name(POOL),
    )
    return decorate(_with_arguments_named(function, new_names))


def _with_arguments_named(function: Callable[..., Any], new_names: Mapping[str, str]) -> Callable[..., Any]:
    """Return ``function`` with other names for some of its arguments: Dagster finds a resource by its argument."""
    signature = inspect.signature(function)
    old_names = {new: old for old, new in new_names.items()}

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{old_names.get(name, name): value for name, value in kwargs.items()})

    parameters = [parameter.replace(name=new_names.get(name, name)) for name, parameter in signature.parameters.items()]
    renamed.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    renamed.__annotations__ = {new_names.get(name, name): kind for name, kind in function.__annotations__.items()}
    return renamed
