# The service as one image: an ordinary user, nothing to write to but a volume and /tmp, no compiler needed.
FROM python:3.12-slim AS build
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN python -m venv /opt/agiwo \
    && /opt/agiwo/bin/pip install --no-deps --only-binary :all: --require-hashes -r requirements/runtime.txt \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --no-deps --only-binary :all: --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md ./
COPY alembic alembic
COPY app app
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /dist . \
    && /opt/agiwo/bin/pip install --no-deps --no-index /dist/*.whl

FROM python:3.12-slim
# The clients trust the system's certificates. Postgres and others want a user that /etc/passwd knows.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/agiwo --create-home --shell /usr/sbin/nologin agiwo
COPY --from=build /opt/agiwo /opt/agiwo
COPY workflows /srv/agiwo/workflows
ENV PATH=/opt/agiwo/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 AGIWO_WORKFLOWS_DIR=/srv/agiwo/workflows
WORKDIR /srv/agiwo
USER 10001
EXPOSE 8700
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/healthz', timeout=2).close()"]
ENTRYPOINT ["agiwo"]
CMD ["serve", "--host", "0.0.0.0"]
