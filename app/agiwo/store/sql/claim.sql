-- name: claim_due_if_alive
-- Take instances that are due and owned by nobody, of some shards or of all, and of any shard what is overdue; a node that is not alive
-- takes none.
WITH free AS MATERIALIZED (
    SELECT r.shard, r.id
    FROM agiwo.run r
    WHERE r.owner IS NULL AND r.due_at <= now()
        AND ($3::smallint[] IS NULL OR r.shard = ANY ($3::smallint[]) OR r.due_at <= now() - $4::float8 * interval '1 second')
        AND (SELECT true FROM agiwo.node n WHERE n.id = $1::bigint AND n.state = 'alive')
    ORDER BY r.due_at
    LIMIT $2::int
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE agiwo.run r
SET owner = $1, epoch = r.epoch + 1
FROM free f
WHERE r.shard = f.shard AND r.id = f.id
RETURNING r.id, r.tenant, r.workflow, r.version, r.epoch, r.seq, r.inbox_seq, r.deaths;

-- name: load_state
-- The snapshot and the later records of instances that were just claimed; a statement of its own, since the claim's view is older than its locks.
SELECT c.id, i.status, i.correlation_key, i.callback_url, s.body AS snapshot,
       ARRAY(SELECT h.records FROM agiwo.history h
             WHERE h.shard = get_byte(uuid_send(c.id), 7) AND h.instance_id = c.id AND h.seq > coalesce(s.seq, 0)
             ORDER BY h.seq) AS records
FROM unnest($1::uuid[]) AS c(id)
JOIN agiwo.instance i ON i.shard = get_byte(uuid_send(c.id), 7) AND i.id = c.id
LEFT JOIN agiwo.snapshot s ON s.shard = get_byte(uuid_send(c.id), 7) AND s.instance_id = c.id;

-- name: release_if_owner
-- Let go of instances; they are due at once, and what is still in flight for them is fenced by the new epoch.
UPDATE agiwo.run r
SET owner = NULL, epoch = r.epoch + 1, due_at = now()
FROM unnest($2::uuid[]) AS w(id)
WHERE r.shard = get_byte(uuid_send(w.id), 7) AND r.id = w.id AND r.owner = $1::bigint;

-- name: list_owned
-- All that a node owns by the database's word.
SELECT id FROM agiwo.run WHERE owner = $1::bigint;

-- name: next_due
-- When the next unowned instance is due.
SELECT extract(epoch FROM due_at)::float8 FROM agiwo.run WHERE owner IS NULL AND due_at < 'infinity' ORDER BY due_at LIMIT 1;

-- name: read_inbox_if_owner
-- Each inbox's number with the waiting items, as of one moment; no row for an instance that this node does not own.
SELECT r.id AS instance_id, r.inbox_seq, b.id, b.kind, b.body
FROM unnest($2::uuid[]) AS w(id)
JOIN agiwo.run r ON r.shard = get_byte(uuid_send(w.id), 7) AND r.id = w.id AND r.owner = $1::bigint
LEFT JOIN agiwo.inbox b ON b.shard = r.shard AND b.instance_id = r.id AND b.taken_at IS NULL
ORDER BY r.id, b.number;

-- name: list_moved
-- Instances for which something came while this node held them; an item that came before is read at the claim.
SELECT DISTINCT instance_id FROM agiwo.inbox WHERE owner = $1::bigint AND taken_at IS NULL;
