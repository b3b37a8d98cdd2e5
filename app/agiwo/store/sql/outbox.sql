-- name: take_outbox_if_alive
-- Claim deliveries that are due, for one node; a later one of an instance waits until the earlier ones are settled.
-- `is true` keeps the planner off the list of all that are due.
WITH free AS MATERIALIZED (
    SELECT o.shard, o.id
    FROM agiwo.outbox o
    WHERE o.owner IS NULL AND o.state = 'pending' AND o.due_at <= now()
        AND (SELECT true FROM agiwo.node n WHERE n.id = $1::bigint AND n.state = 'alive')
        AND NOT EXISTS (
            SELECT FROM agiwo.outbox p
            WHERE p.shard = o.shard AND p.instance_id = o.instance_id AND (p.state = 'pending') IS TRUE
                AND (p.seq, p.position) < (o.seq, o.position))
    ORDER BY o.due_at
    LIMIT $2::int
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE agiwo.outbox o
SET owner = $1, tries = o.tries + 1
FROM free f
WHERE o.shard = f.shard AND o.id = f.id
RETURNING o.id, o.tenant, o.instance_id, o.kind, o.target, o.body, o.tries;

-- name: release_deliveries_if_owner
-- Give back what this node has taken: the answer to the taking, or to the settling, was lost.
UPDATE agiwo.outbox SET owner = NULL WHERE owner = $1::bigint;

-- name: settle_delivery_if_owner
-- A delivery was made.
UPDATE agiwo.outbox SET state = 'delivered', owner = NULL, settled_at = now(), last_error = NULL
WHERE shard = get_byte(uuid_send($2::uuid), 7) AND id = $2 AND owner = $1::bigint;

-- name: put_delivery_off_if_owner
-- A delivery failed: again later, or never ($4 is null), then it stays visible as dead.
UPDATE agiwo.outbox
SET owner = NULL, last_error = $3::text,
    due_at = coalesce(to_timestamp($4::float8), due_at),
    state = CASE WHEN $4 IS NULL THEN 'dead' ELSE 'pending' END,
    settled_at = CASE WHEN $4 IS NULL THEN now() END
WHERE shard = get_byte(uuid_send($2::uuid), 7) AND id = $2 AND owner = $1::bigint;
