"""Rates that all nodes count together in Redis, by its clock; while Redis is away each node has its share of the limit.

One script over one key does it, so that a Redis Cluster takes it. A limit is never exceeded while Redis answers, and never unlimited.
"""

from __future__ import annotations

from agiwo.leases.redis_link import RedisAway, RedisLink
from agiwo.ports.rates import RateLimits

#: Parts of a window; what was counted in one of them is forgotten together.
PARTS = 30

# The window in parts: a hash from the number of the part to what was counted in it. The oldest part counts until it is over as a whole, so
# that in no window of this length more than the limit is counted.
_ACQUIRE = """
local limit, window, cost, parts, always = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5] == '1'
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local length = window / parts
local current = math.floor(now / length)
local counted, total, flat = {}, 0, redis.call('HGETALL', KEYS[1])
for i = 1, #flat, 2 do
  local part, count = tonumber(flat[i]), tonumber(flat[i + 1])
  if part < current - parts then
    redis.call('HDEL', KEYS[1], flat[i])
  else
    counted[#counted + 1] = {part, count}
    total = total + count
  end
end
if always or total + cost <= limit then
  redis.call('HINCRBY', KEYS[1], string.format('%d', current), cost)
  redis.call('PEXPIRE', KEYS[1], math.ceil(window + 2 * length))
  return 0
end
table.sort(counted, function(a, b) return a[1] < b[1] end)
for _, entry in ipairs(counted) do
  total = total - entry[2]
  if total + cost <= limit then
    return math.max(1, math.ceil((entry[1] + parts + 1) * length - now))
  end
end
return math.ceil(window)
"""


class RedisRateLimits:
    """A RateLimits over `link`; `local` counts while Redis is away."""

    def __init__(self, link: RedisLink, local: RateLimits) -> None:
        self._link = link
        self._local = local
        self._script = link.client.register_script(_ACQUIRE)

    async def acquire(self, name: str, limit: int, window: int, cost: int = 1) -> float:
        try:
            return await self._ask(name, limit, window, min(cost, limit), always=False)
        except RedisAway:
            return await self._local.acquire(name, limit, window, cost)

    async def charge(self, name: str, limit: int, window: int, cost: int) -> None:
        try:
            await self._ask(name, limit, window, cost, always=True)
        except RedisAway:
            await self._local.charge(name, limit, window, cost)

    async def _ask(self, name: str, limit: int, window: int, cost: int, *, always: bool) -> float:
        given: list[str | int] = [limit, window * 1000, cost, PARTS, int(always)]
        wait = await self._link.ask(lambda redis: self._script(keys=[f"{{agw:rate:{name}}}"], args=given))
        return int(wait) / 1000
