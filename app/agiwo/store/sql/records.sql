-- name: put_inbox_and_wake
-- Store something for a live instance and wake it, at once or not at all; no row if it is over, unknown, or `dedup` is known.
WITH woken AS (
    UPDATE agiwo.run r
    SET inbox_seq = r.inbox_seq + 1,
        due_at = CASE WHEN r.owner IS NULL THEN least(r.due_at, now()) ELSE r.due_at END
    WHERE r.shard = get_byte(uuid_send($2::uuid), 7) AND r.id = $2 AND r.tenant = $1::text
        AND NOT EXISTS (
            SELECT FROM agiwo.inbox b WHERE b.shard = r.shard AND b.instance_id = r.id AND b.dedup = $5::text)
    RETURNING r.shard, r.id, r.tenant, r.owner, r.inbox_seq
)
INSERT INTO agiwo.inbox (shard, instance_id, tenant, number, kind, dedup, body, owner)
SELECT shard, id, tenant, inbox_seq, $3::text, $5, $4::json, owner FROM woken
RETURNING id;

-- name: look_for_inbox
-- Why nothing was put into an inbox.
SELECT i.ended_at IS NOT NULL AS ended,
       EXISTS (SELECT FROM agiwo.inbox b WHERE b.shard = i.shard AND b.instance_id = i.id AND b.dedup = $3::text) AS known
FROM agiwo.instance i
WHERE i.shard = get_byte(uuid_send($2::uuid), 7) AND i.id = $2 AND i.tenant = $1::text;

-- name: get_posted
-- What was put into an inbox under a name.
SELECT body::text AS body FROM agiwo.inbox
WHERE shard = get_byte(uuid_send($2::uuid), 7) AND instance_id = $2 AND tenant = $1::text AND dedup = $3::text;

-- name: count_inbox
-- How much of a kind was ever put into an inbox, or still waits there; counts no further than is asked.
SELECT count(*)::int AS found
FROM (
    SELECT FROM agiwo.inbox b
    WHERE b.shard = get_byte(uuid_send($2::uuid), 7) AND b.instance_id = $2 AND b.tenant = $1::text AND b.kind = $3::text
        AND (NOT $5::bool OR b.taken_at IS NULL)
    LIMIT $4::int
) AS counted;

-- name: decide_approval_if_open
-- Decide, tell the instance and wake it, at once or not at all. The instance is locked first, as the engine's own write does it.
WITH asked AS MATERIALIZED (
    SELECT a.shard, a.id, a.instance_id
    FROM agiwo.approval a
    WHERE a.shard = get_byte(uuid_send($2::uuid), 7) AND a.id = $2 AND a.tenant = $1::text
), locked AS MATERIALIZED (
    SELECT r.shard, r.id, a.id AS approval_id
    FROM asked a JOIN agiwo.run r ON r.shard = a.shard AND r.id = a.instance_id AND r.tenant = $1
    FOR UPDATE OF r
), decided AS (
    UPDATE agiwo.approval a
    SET state = CASE $3::text WHEN 'approve' THEN 'approved' ELSE 'rejected' END,
        decided_by = $4::text, decided_at = clock_timestamp(), channel = $5::text, comment = $7::text, answer = $8::json
    FROM locked l
    WHERE a.shard = l.shard AND a.id = l.approval_id
        AND a.state = 'pending' AND a.expires_at > clock_timestamp() AND a.digest = $6::text
    RETURNING l.shard, l.id, a.id AS approval_id, a.path
), woken AS (
    UPDATE agiwo.run r
    SET inbox_seq = r.inbox_seq + 1,
        due_at = CASE WHEN r.owner IS NULL THEN least(r.due_at, now()) ELSE r.due_at END
    FROM decided d
    WHERE r.shard = d.shard AND r.id = d.id
    RETURNING r.shard, r.id, r.tenant, r.owner, r.inbox_seq, d.approval_id, d.path
)
INSERT INTO agiwo.inbox (shard, instance_id, tenant, number, kind, dedup, body, owner)
SELECT shard, id, tenant, inbox_seq, 'decision', 'decision:' || approval_id,
       json_build_object('approval', approval_id, 'path', path, 'action', $3, 'by', $4, 'channel', $5, 'comment', $7, 'answer', $8),
       owner
FROM woken
RETURNING id;

-- name: get_approval
-- One approval as it stands, whether its time is over, and whether its instance still lives.
SELECT a.id, a.instance_id, a.tenant, a.path, a.step, a.digest, a.title, a.body::text AS body, a.approvers, a.state,
       extract(epoch FROM a.asked_at)::float8 AS asked_at, extract(epoch FROM a.expires_at)::float8 AS expires_at,
       a.decided_by, extract(epoch FROM a.decided_at)::float8 AS decided_at, a.channel, a.comment, a.answer::text AS answer,
       a.expires_at <= clock_timestamp() AS expired,
       EXISTS (SELECT FROM agiwo.run r WHERE r.shard = a.shard AND r.id = a.instance_id) AS live
FROM agiwo.approval a
WHERE a.shard = get_byte(uuid_send($2::uuid), 7) AND a.id = $2 AND a.tenant = $1::text;

-- name: get_promise
-- Which instance a trigger's key has started.
SELECT instance_id, request_digest FROM agiwo.idempotency WHERE tenant = $1::text AND key = $2::text AND expires_at > now();
