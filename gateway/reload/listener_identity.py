"""Loads the listener's certificate with the configuration, so that problems of both stand in one report."""

from msgspec.structs import replace

from gateway.catalog.file_dependencies import FileDependencies
from gateway.config.loader import LoadedConfig
from gateway.transports.listener.server_tls import ServerIdentity, identity_files, load_identity


def with_identity(
    loaded: LoadedConfig, *, dependencies: FileDependencies
) -> tuple[LoadedConfig, ServerIdentity | None]:
    """Load the files that `listen.tls` names; the configuration is returned with the problems found in them."""
    tls = loaded.document.listen.tls
    if tls is None:
        return loaded, None
    problems = loaded.start_problems()
    place = problems.at("listen", "tls")
    # Before they are read: what is missing or no good is watched, too, and loaded once it is mended.
    dependencies.files.update(identity_files(tls, place))
    identity = load_identity(tls, place)
    return replace(loaded, problems=tuple(problems)), identity
