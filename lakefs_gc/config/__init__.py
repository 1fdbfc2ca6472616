"""The settings, one module per section, and the credentials, which are never settings."""

from lakefs_gc.config.backup import BackupSettings
from lakefs_gc.config.credentials import ServerCredentials, load_server_credentials, server_root
from lakefs_gc.config.durations import parse_duration_hours
from lakefs_gc.config.emr import EMRSettings
from lakefs_gc.config.lakefs import LakeFSSettings
from lakefs_gc.config.listing import ListingSettings
from lakefs_gc.config.metrics import MetricsSettings
from lakefs_gc.config.notify import SMTP_PASSWORD_VARIABLE, NotifySettings
from lakefs_gc.config.safety import Protections, SafetyParameters
from lakefs_gc.config.schedule import ScheduleSettings
from lakefs_gc.config.settings import (
    CONFIG_FILE,
    CONFIG_VARIABLE,
    REPOSITORY_NAME,
    Settings,
    load_settings,
    matching_mount,
    settings_from,
)
from lakefs_gc.config.sweep import MANUAL, SweepPolicy, SweepSettings

__all__ = [
    "CONFIG_FILE",
    "CONFIG_VARIABLE",
    "MANUAL",
    "REPOSITORY_NAME",
    "SMTP_PASSWORD_VARIABLE",
    "BackupSettings",
    "EMRSettings",
    "LakeFSSettings",
    "ListingSettings",
    "MetricsSettings",
    "NotifySettings",
    "Protections",
    "SafetyParameters",
    "ScheduleSettings",
    "ServerCredentials",
    "Settings",
    "SweepPolicy",
    "SweepSettings",
    "load_server_credentials",
    "load_settings",
    "matching_mount",
    "parse_duration_hours",
    "server_root",
    "settings_from",
]
