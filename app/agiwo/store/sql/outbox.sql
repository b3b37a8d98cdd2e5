-- name: take_outbox_if_alive
-- Claim deliveries that are due, for one node; a later one of an instance and target waits until the earlier ones are settled.
-- $3 and $4 say how many this node has under way to which target, $5 how many one target may have: what is down holds up no other.
WITH busy AS MATERIALIZED (
    SELECT * FROM unnest($3::text[], $4::int[]) AS b(target, number)
), due AS MATERIALIZED (
    SELECT o.shard, o.id, o.target, o.due_at
    FROM agiwo.outbox o
    WHERE o.owner IS NULL AND o.state = 'pending' AND o.due_at <= now()
        AND (SELECT true FROM agiwo.node n WHERE n.id = $1::bigint AND n.state = 'alive')
        AND NOT EXISTS (SELECT FROM busy b WHERE b.target = o.target AND b.number >= $5::int)
        AND NOT EXISTS (
            SELECT FROM agiwo.outbox p
            WHERE p.shard = o.shard AND p.instance_id = o.instance_id AND p.target = o.target AND p.state = 'pending'
                AND (p.seq, p.position) < (o.seq, o.position))
    ORDER BY o.due_at
    LIMIT 10 * $2::int
), fair AS MATERIALIZED (
    SELECT d.shard, d.id, d.due_at, row_number() OVER (PARTITION BY d.target ORDER BY d.due_at) + coalesce(b.number, 0) AS number
    FROM due d LEFT JOIN busy b ON b.target = d.target
), free AS MATERIALIZED (
    SELECT o.shard, o.id
    FROM fair f JOIN agiwo.outbox o ON o.shard = f.shard AND o.id = f.id
    WHERE f.number <= $5 AND (o.owner IS NULL AND o.state = 'pending') IS TRUE
    ORDER BY f.due_at
    LIMIT $2
    FOR UPDATE OF o SKIP LOCKED
)
UPDATE agiwo.outbox o
SET owner = $1, tries = o.tries + 1
FROM free f
WHERE o.shard = f.shard AND o.id = f.id
RETURNING o.id, o.tenant, o.instance_id, o.kind, o.target, o.body, o.tries;

-- name: release_deliveries_if_owner
-- Give back what this node has taken and does not know of ($2): the answer to the taking, or to the settling, was lost.
UPDATE agiwo.outbox SET owner = NULL WHERE owner = $1::bigint AND NOT id = ANY($2::uuid[]);

-- name: settle_delivery_if_owner
-- A delivery was made.
UPDATE agiwo.outbox SET state = 'delivered', owner = NULL, settled_at = now(), last_error = NULL, last_status = $3::int
WHERE shard = get_byte(uuid_send($2::uuid), 7) AND id = $2 AND owner = $1::bigint;

-- name: put_delivery_off_if_owner
-- A delivery failed: again later, or never ($4 is null), then it stays visible as dead. Later ones of the same instance and target are
-- put off with it, so that they need not be looked at meanwhile.
WITH failed AS (
    UPDATE agiwo.outbox
    SET owner = NULL, last_error = $3::text, last_status = $5::int,
        due_at = coalesce(to_timestamp($4::float8), due_at),
        state = CASE WHEN $4 IS NULL THEN 'dead' ELSE 'pending' END,
        settled_at = CASE WHEN $4 IS NULL THEN now() END
    WHERE shard = get_byte(uuid_send($2::uuid), 7) AND id = $2 AND owner = $1::bigint
    RETURNING shard, id, instance_id, target, due_at
)
UPDATE agiwo.outbox o
SET due_at = f.due_at
FROM failed f
WHERE $4 IS NOT NULL AND o.shard = f.shard AND o.instance_id = f.instance_id AND o.target = f.target
    AND o.state = 'pending' AND (o.owner IS NULL) IS TRUE AND o.id <> f.id AND o.due_at < f.due_at;

-- name: forget_settled_deliveries
-- A few deliveries that were made more than $1 seconds ago, and dead ones that nobody sent again within $2 seconds.
DELETE FROM agiwo.outbox
WHERE (shard, id) IN (
    SELECT shard, id FROM agiwo.outbox
    WHERE settled_at < now() - least($1::float8, $2::float8) * interval '1 second'
        AND settled_at < now() - CASE state WHEN 'dead' THEN $2 ELSE $1 END * interval '1 second'
    ORDER BY settled_at
    LIMIT $3::int
    FOR UPDATE SKIP LOCKED)
RETURNING id;
