"""Counts visits in Redis, and streams the count as server-sent events for half a minute or longer."""

import asyncio
import random

import redis.asyncio
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

store = redis.asyncio.Redis.from_url("redis://{{address "feed" "redis"}}/3")


async def latest(request):
    return JSONResponse({"visits": await store.incr("visits")})


async def events(request):
    async def lines():
        for _ in range(random.randint(30, 45)):
            yield b"data: %d\n\n" % int(await store.get("visits") or 0)
            await asyncio.sleep(1)

    return StreamingResponse(lines(), media_type="text/event-stream")


app = Starlette(routes=[Route("/latest", latest), Route("/events", events)])
