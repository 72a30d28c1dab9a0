ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY gateway gateway
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels . \
 && python -m venv /opt/mcp-gateway \
 && /opt/mcp-gateway/bin/pip install --no-cache-dir --constraint constraints.txt "$(echo /wheels/*.whl)[auth,otel,redis,sql]"

COPY config/demo.yaml config/schema.json /etc/mcp-gateway/
COPY plugins /etc/mcp-gateway/plugins
COPY README.md CHANGELOG.md CONTRIBUTING.md /etc/mcp-gateway/
# In the repository, the demo is one directory deeper than the files that it refers to.
RUN sed 's#\.\./#./#g' /etc/mcp-gateway/demo.yaml > /etc/mcp-gateway/config.yaml && rm /etc/mcp-gateway/demo.yaml

FROM ${BASE_IMAGE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin mcp-gateway \
 && install --directory --owner=10001 --group=10001 --mode=0700 /var/lib/mcp-gateway
COPY --from=build /opt/mcp-gateway /opt/mcp-gateway
COPY --from=build /etc/mcp-gateway /etc/mcp-gateway
# Mount a volume at the state directory to keep sessions and tasks when the container is replaced.
ENV PATH=/opt/mcp-gateway/bin:$PATH PYTHONUNBUFFERED=1 MCP_GATEWAY_STATE_DIR=/var/lib/mcp-gateway
USER 10001:10001
WORKDIR /etc/mcp-gateway
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/-/healthy', timeout=4)"]
ENTRYPOINT ["tini", "--", "mcp-gateway"]
# The configuration must contain `auth`. To serve everyone who can reach the port, set MCP_GATEWAY_ALLOW_ANONYMOUS=true.
CMD ["serve", "/etc/mcp-gateway/config.yaml", "--http", "0.0.0.0:8000"]
