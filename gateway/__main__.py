"""`python -m gateway` is `mcp-gateway`."""

import sys

from gateway.cli import main

sys.exit(main())
