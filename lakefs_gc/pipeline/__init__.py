"""All that imports Dagster: assets, checks, jobs, schedules, sensors. Each asset calls one stage of ``engine``."""
