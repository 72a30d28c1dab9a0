"""Settings from what a command's parser found."""

from argparse import Namespace

from gateway.config.settings import Settings, read_settings


def settings_of(options: Namespace, *, config: str | None = None) -> Settings:
    """Settings from the flags that are settings.

    Raises:
        ConfigError: a value cannot be.
    """
    flags = {field: value for field, value in vars(options).items() if field in Settings.model_fields}
    return read_settings(flags if config is None else {**flags, "config": config})


def one_shot_settings(options: Namespace, config: str | None) -> Settings:
    """Settings of a command that ends by itself: nothing is watched, and only errors are logged unless asked."""
    settings = settings_of(options, config=config)
    quiet = {} if "log_level" in settings.model_fields_set else {"log_level": "error"}
    return settings.model_copy(update={"no_watch": True, "stdio": False, **quiet})
