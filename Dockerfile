# The image of both roles: `turnstile serve --role webhook` and `--role controller` (see charts/turnstile).
FROM python:3.12-slim AS build
RUN pip install --no-cache-dir 'uv>=0.13,<1'
ENV UV_PROJECT_ENVIRONMENT=/opt/turnstile \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /src
# Dependencies first: they change less often than the code.
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --frozen --no-default-groups --no-install-project
COPY app app
RUN uv sync --frozen --no-default-groups --no-editable

FROM python:3.12-slim
COPY --from=build /opt/turnstile /opt/turnstile
ENV PATH=/opt/turnstile/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65532:65532
EXPOSE 9443 8081
ENTRYPOINT ["turnstile"]
CMD ["serve"]
