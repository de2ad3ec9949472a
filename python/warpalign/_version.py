"""The version of the whole project: CMakeLists.txt and pyproject.toml read it from here."""

__version__ = "0.1.0"
