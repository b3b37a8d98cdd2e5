-- name: insert_node
-- A new incarnation begins, with its lease.
INSERT INTO agiwo.node (id, name, lease_until) VALUES ($1::bigint, $2::text, now() + $3::float8 * interval '1 second')
ON CONFLICT DO NOTHING;

-- name: bury_older_incarnations
-- Older incarnations of the same name are dead from now on; the fence makes that safe even if such a process lives.
UPDATE agiwo.node SET state = 'dead' WHERE name = $2::text AND id <> $1::bigint AND state = 'alive';

-- name: renew_lease_if_alive
-- The heartbeat; no row if this incarnation was declared dead.
UPDATE agiwo.node SET lease_until = now() + $2::float8 * interval '1 second' WHERE id = $1::bigint AND state = 'alive' RETURNING id;

-- name: bury_expired_nodes
-- Whoever did not renew in time is dead, by the database's clock alone.
UPDATE agiwo.node SET state = 'dead'
WHERE id IN (SELECT id FROM agiwo.node WHERE state = 'alive' AND lease_until < now() FOR UPDATE SKIP LOCKED);

-- name: free_what_the_dead_own
-- Instances whose owner is no living node are due at once. The owners are found by a loose scan, which costs by node and not by instance.
-- Deaths are counted in a row. The count begins anew if the owner wrote a second time, so got beyond what it had taken up, or if the owner
-- before it let go by itself: then one epoch follows the other directly, since a death takes an epoch too.
WITH RECURSIVE o(owner) AS (
    (SELECT owner FROM agiwo.run WHERE owner IS NOT NULL ORDER BY owner LIMIT 1)
    UNION ALL
    SELECT (SELECT r.owner FROM agiwo.run r WHERE r.owner > o.owner ORDER BY r.owner LIMIT 1) FROM o WHERE o.owner IS NOT NULL
), lost AS MATERIALIZED (
    SELECT r.shard, r.id
    FROM o JOIN agiwo.run r ON r.owner = o.owner
    WHERE NOT EXISTS (SELECT FROM agiwo.node n WHERE n.id = o.owner AND n.state = 'alive')
    ORDER BY r.id
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE agiwo.run r
SET owner = NULL, epoch = r.epoch + 1, due_at = now(),
    deaths = 1 + CASE WHEN (
        SELECT count(*) FILTER (WHERE latest.epoch = r.epoch) = 2 OR bool_or(latest.epoch = r.epoch - 1)
        FROM (
            SELECT h.epoch FROM agiwo.history h WHERE h.shard = r.shard AND h.instance_id = r.id ORDER BY h.seq DESC LIMIT 2
        ) AS latest
    ) THEN 0 ELSE r.deaths END
FROM lost l
WHERE r.shard = l.shard AND r.id = l.id;

-- name: free_deliveries_of_the_dead
-- The same for deliveries.
UPDATE agiwo.outbox o
SET owner = NULL
WHERE o.owner IS NOT NULL AND NOT EXISTS (SELECT FROM agiwo.node n WHERE n.id = o.owner AND n.state = 'alive');

-- name: count_living_nodes
-- How many share what each may have a part of.
SELECT count(*) FROM agiwo.node WHERE state = 'alive';

-- name: forget_the_dead
-- Nodes that ended a day ago are of no interest; an owner without a row counts as dead.
DELETE FROM agiwo.node WHERE state <> 'alive' AND lease_until < now() - interval '1 day';

-- name: forget_expired_promises
-- A few triggers' keys whose time is over.
DELETE FROM agiwo.idempotency
WHERE (tenant, key) IN (SELECT tenant, key FROM agiwo.idempotency WHERE expires_at <= now() ORDER BY expires_at LIMIT 500 FOR UPDATE SKIP LOCKED);

-- name: leave_node
-- An incarnation ends by itself.
UPDATE agiwo.node SET state = 'left', lease_until = now() WHERE id = $1::bigint AND state = 'alive';

-- name: free_what_this_node_owns
-- What it held is due at once; nobody died, so no death is counted.
UPDATE agiwo.run SET owner = NULL, epoch = epoch + 1, due_at = now() WHERE owner = $1::bigint;
