"""HTTP below MCP: guard, proxies, quotas, admin API. In: aiohttp requests. Out: checked `HttpRequest`s."""
