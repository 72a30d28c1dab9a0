"""Checks the files that tests of tools name as their stub answers."""

from gateway.config.diagnostics.problems import Problems
from gateway.config.loader import LoadedConfig
from gateway.config.machine_facts import is_file


def check_test_files(loaded: LoadedConfig, problems: Problems) -> None:
    """Warn of tests whose stub answer is a file that does not exist. A `Check` of the compiler."""
    for name, tool in loaded.document.tools.items():
        for index, test in enumerate(tool.tests):
            if test.http is None or test.http.file is None:
                continue
            place = problems.at("tools", name, "tests", index, "http", "file")
            if not is_file(place.directory / test.http.file):
                place.warning(f"there is no file `{test.http.file}`")
