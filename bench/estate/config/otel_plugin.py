"""Datasette plugin: requests as spans, by the official ASGI middleware. opentelemetry-instrument has none for plain ASGI."""

from datasette import hookimpl
from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware


@hookimpl
def asgi_wrapper(datasette):
    return OpenTelemetryMiddleware
