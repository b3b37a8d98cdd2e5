"""Leases on groups of shards in Redis: each node holds its share of the groups, and gives back what is more.

One script over the keys of one slot does all of it, so that a Redis Cluster takes it. What it answers permits no write.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence

from agiwo.ids import SHARDS
from agiwo.leases.redis_link import RedisAway, RedisLink

GROUPS = 32
LEASE = 3.0  # seconds
PREFIX = "{agw:leases}"

# A lease is two entries: who holds the group, and until when that node is there. A node that is new (or of which Redis has forgotten) only
# keeps what it says it holds; it takes more in its next call, when the others have come back too: else, after a loss of all data, the first
# to come would take everything.
_RENEW = """
local nodes, owners = KEYS[1], KEYS[2]
local me, lease, groups, able = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1'
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', nodes, '-inf', now)
local known = redis.call('ZSCORE', nodes, me)
if able then
  redis.call('ZADD', nodes, now + lease, me)
else
  redis.call('ZREM', nodes, me)
end
local live, rank, there = redis.call('ZRANGE', nodes, 0, -1), 0, {}
table.sort(live)
for i, name in ipairs(live) do
  there[name] = true
  if name == me then rank = i end
end
local held = {}
local flat = redis.call('HGETALL', owners)
for i = 1, #flat, 2 do held[tonumber(flat[i])] = flat[i + 1] end
local share = 0
if able then
  share = math.floor(groups / #live)
  if rank <= groups % #live then share = share + 1 end
end
local mine = {}
local function take(group)
  redis.call('HSET', owners, group, me)
  held[group] = me
  mine[#mine + 1] = group
end
for group = 0, groups - 1 do
  if held[group] == me then
    if #mine < share then mine[#mine + 1] = group else redis.call('HDEL', owners, group) end
  end
end
for i = 5, #ARGV do
  local group = tonumber(ARGV[i])
  if #mine < share and not there[held[group] or ''] then take(group) end
end
if known then
  for group = 0, groups - 1 do
    if #mine >= share then break end
    if not there[held[group] or ''] then take(group) end
  end
end
redis.call('PEXPIRE', nodes, lease * 20)
redis.call('PEXPIRE', owners, lease * 20)
return {known and 1 or 0, #live, mine}
"""


class RedisShardLeases:
    """A ShardLeases over `link`. `lease` is seconds; `name` tells this process from all others that ever were."""

    def __init__(self, link: RedisLink, *, lease: float = LEASE, groups: int = GROUPS, name: str | None = None) -> None:
        self._link = link
        self._lease = lease
        self._count = groups
        self._name = name or secrets.token_hex(8)
        self._script = link.client.register_script(_RENEW)
        self._keys = [f"{PREFIX}:nodes", f"{PREFIX}:owners"]
        self._groups: Sequence[int] = ()
        self._shards: Collection[int] | None = None
        self.nodes = 0

    @property
    def shards(self) -> Collection[int] | None:
        return self._shards

    @property
    def groups(self) -> int:
        """How many groups this node holds."""
        return len(self._groups)

    async def renew(self, able: bool) -> None:
        given: list[str | int] = [self._name, int(self._lease * 1000), self._count, int(able), *self._groups]
        try:
            known, self.nodes, groups = await self._link.ask(lambda redis: self._script(keys=self._keys, args=given))
        except RedisAway:
            # What was held is remembered: a Redis that comes back empty gets it told, and nothing has to move.
            self._shards = None
            return
        self._groups = groups
        # Until it has its share, a node that has just come would wait for what is overdue.
        settled = known or not able or groups
        self._shards = frozenset(shard for shard in range(SHARDS) if shard % self._count in groups) if settled else None
