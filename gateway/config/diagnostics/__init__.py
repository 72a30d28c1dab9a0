"""Problems of a configuration: collected, located, and rendered as text or JSON."""
