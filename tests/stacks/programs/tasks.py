"""Tasks of an event loop that wait for all kinds of things; prints `ready`, and needs no torch."""

from __future__ import annotations

import asyncio


async def sleep_long() -> None:
    await asyncio.sleep(10**6)


async def nested() -> None:
    await sleep_long()


async def take(lock: asyncio.Lock) -> None:
    async with lock:
        pass


async def keep(lock: asyncio.Lock) -> None:
    async with lock:
        await sleep_long()


async def take_both(first: asyncio.Lock, second: asyncio.Lock) -> None:
    async with first:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        async with second:
            pass


async def be_told(told: asyncio.Condition) -> None:
    async with told:
        await told.wait()


async def get(queue: asyncio.Queue[int]) -> None:
    await queue.get()


async def wait_for_task(task: asyncio.Task[None]) -> None:
    await task


async def main() -> None:
    lock, queue = asyncio.Lock(), asyncio.Queue[int]()
    kept, one, other, told = asyncio.Lock(), asyncio.Lock(), asyncio.Lock(), asyncio.Condition()
    await lock.acquire()
    loop = asyncio.get_running_loop()
    sleeper = loop.create_task(nested(), name="sleeper")
    waiting = [
        loop.create_task(take(lock), name="taker"),
        loop.create_task(get(queue), name="getter"),
        loop.create_task(wait_for_task(sleeper), name="follower"),
        loop.create_task(keep(kept), name="keeper"),
        loop.create_task(take(kept), name="heir"),
        loop.create_task(take_both(one, other), name="circle-10"),
        loop.create_task(take_both(other, one), name="circle-9"),
        loop.create_task(be_told(told), name="told-1"),
    ]
    loop.call_later(0.2, print, "ready")
    await asyncio.gather(*waiting)


if __name__ == "__main__":
    asyncio.run(main())
