"""The listener's certificate as a part of what is loaded: its mistakes join those of the rest of the configuration."""

from dataclasses import replace

from gateway.catalog.footprint import Footprint
from gateway.config.loader import LoadedConfig
from gateway.transports.listener.server_tls import ServerIdentity, identity_files, load_identity


def with_identity(loaded: LoadedConfig, *, footprint: Footprint) -> tuple[LoadedConfig, ServerIdentity | None]:
    """Load what `listen.tls` names; the configuration comes back with what is wrong about it."""
    tls = loaded.document.listen.tls
    if tls is None:
        return loaded, None
    problems = loaded.start_problems()
    place = problems.at("listen", "tls")
    footprint.files.update(identity_files(tls, place))
    identity = load_identity(tls, place)
    return replace(loaded, problems=tuple(problems)), identity
