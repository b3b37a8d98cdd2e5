-- name: write_steps
-- The hot path: a batch that only appends to instances that this node owns; answers with the ids whose fence held.
WITH moved AS (
    UPDATE agiwo.run r
    SET seq = t.seq
    FROM unnest($2::uuid[], $3::int[], $4::int[], $5::int[], $6::json[], $7::float8[], $8::int[])
        AS t(id, epoch, prev, seq, records, at, seen)
    WHERE r.shard = get_byte(uuid_send(t.id), 7) AND r.id = t.id
        AND r.owner = $1::bigint AND r.epoch = t.epoch AND r.seq = t.prev AND (t.seen IS NULL OR r.inbox_seq = t.seen)
    RETURNING r.shard, r.id, r.tenant, r.epoch, t.prev, t.seq, t.at, t.records
), written AS (
    INSERT INTO agiwo.history (shard, instance_id, seq, first_seq, tenant, epoch, node, at, records)
    SELECT shard, id, seq, prev + 1, tenant, epoch, $1, to_timestamp(at), records FROM moved WHERE seq > prev
)
SELECT id FROM moved;

-- name: write_batch
-- Any batch in one commit: steps, parks, ends and new instances; answers with the ids whose fence (or first insert) held.
-- A write without records (an instance that was looked at and parked again) leaves no history; a new instance always does.
-- Kinds: 0 step, 1 step that changes what lists show, 2 park, 3 end. What came back from an update carries its row of the batch with it,
-- and `in` under `is true` stays a hashed subplan: joining two parts of the batch would be a nested loop over both.
-- New instances of what is held back are left out; the lock that this takes on the table of holds is what a new hold waits for.
WITH t AS MATERIALIZED (
    SELECT get_byte(uuid_send(id), 7)::smallint AS shard, *
    FROM unnest($2::uuid[], $3::smallint[], $4::int[], $5::int[], $6::int[], $7::json[], $8::float8[], $9::int[],
                $10::text[], $11::float8[], $12::json[], $13::text[], $14::json[])
        AS t(id, kind, epoch, prev, seq, records, at, seen, status, due, error, waiting, snapshot)
), asked AS MATERIALIZED (
    SELECT get_byte(uuid_send(id), 7)::smallint AS shard, *
    FROM unnest($15::uuid[], $16::smallint[], $17::int[], $18::int[], $19::json[], $20::float8[],
                $21::text[], $22::float8[], $23::json[], $24::text[], $25::json[],
                $26::text[], $27::text[], $28::text[], $29::text[], $30::text[], $31::text[], $32::jsonb[], $33::text[],
                $34::smallint[], $35::text[], $36::text[], $37::float8[], $38::text[])
        AS n(id, kind, epoch, seq, records, at, status, due, error, waiting, snapshot,
             tenant, workflow, version, content_hash, trace_id, starter, labels, correlation, priority, key, digest, expires, callback)
), held_back AS MATERIALIZED (
    SELECT a.id FROM asked a JOIN agiwo.start_hold h ON h.tenant = a.tenant AND h.workflow = a.workflow AND h.version IN ('', a.version)
    FOR KEY SHARE OF h
), n AS MATERIALIZED (
    SELECT * FROM asked WHERE (id IN (SELECT id FROM held_back)) IS NOT TRUE
), promised AS (
    INSERT INTO agiwo.idempotency (tenant, key, request_digest, shard, instance_id, expires_at)
    SELECT tenant, key, coalesce(digest, ''), shard, id, coalesce(to_timestamp(expires), 'infinity')
    FROM n WHERE key IS NOT NULL ORDER BY tenant, key
    ON CONFLICT DO NOTHING
    RETURNING instance_id
), born AS (
    INSERT INTO agiwo.instance (shard, id, tenant, workflow, version, content_hash, status, trace_id, starter, labels, correlation_key,
                                callback_url, priority, waiting_for, error, created_at, ended_at)
    SELECT shard, id, tenant, workflow, version, content_hash, status, trace_id, starter, labels, correlation,
           callback, priority, CASE WHEN kind < 3 THEN waiting END, error, to_timestamp(at), CASE WHEN kind = 3 THEN to_timestamp(at) END
    FROM n WHERE key IS NULL OR (id IN (SELECT instance_id FROM promised)) IS TRUE
    ON CONFLICT DO NOTHING
    RETURNING id
), entered AS (
    INSERT INTO agiwo.run (shard, id, tenant, workflow, version, owner, epoch, seq, lane, due_at)
    SELECT shard, id, tenant, workflow, version, CASE WHEN kind < 2 THEN $1::bigint END, epoch, seq, priority,
           CASE WHEN kind = 2 THEN coalesce(to_timestamp(due), 'infinity') ELSE to_timestamp(at) END
    FROM n WHERE kind < 3 AND (id IN (SELECT id FROM born)) IS TRUE
), moved AS (
    UPDATE agiwo.run r
    SET seq = t.seq,
        owner = CASE WHEN t.kind = 2 THEN NULL ELSE r.owner END,
        due_at = CASE WHEN t.kind = 2 THEN coalesce(to_timestamp(t.due), 'infinity') ELSE r.due_at END
    FROM t
    WHERE t.kind < 3 AND r.shard = t.shard AND r.id = t.id
        AND r.owner = $1 AND r.epoch = t.epoch AND r.seq = t.prev AND (t.seen IS NULL OR r.inbox_seq = t.seen)
    RETURNING r.shard, r.id, r.tenant, t.kind, t.epoch, t.prev, t.seq, t.records, t.at, t.status, t.error, t.waiting, t.snapshot
), gone AS (
    DELETE FROM agiwo.run r
    USING t
    WHERE t.kind = 3 AND r.shard = t.shard AND r.id = t.id
        AND r.owner = $1 AND r.epoch = t.epoch AND r.seq = t.prev AND (t.seen IS NULL OR r.inbox_seq = t.seen)
    RETURNING r.shard, r.id, r.tenant, t.kind, t.epoch, t.prev, t.seq, t.records, t.at, t.status, t.error, t.waiting, t.snapshot
), held AS MATERIALIZED (
    SELECT * FROM moved UNION ALL SELECT * FROM gone
), shown AS (
    UPDATE agiwo.instance i
    SET status = h.status, error = h.error,
        waiting_for = CASE WHEN h.kind < 3 THEN h.waiting END,
        ended_at = CASE WHEN h.kind = 3 THEN to_timestamp(h.at) END
    FROM held h
    WHERE h.kind > 0 AND i.shard = h.shard AND i.id = h.id
), emptied AS (
    DELETE FROM agiwo.inbox b USING gone g WHERE b.shard = g.shard AND b.instance_id = g.id
), kept AS (
    INSERT INTO agiwo.snapshot (shard, instance_id, tenant, seq, body)
    SELECT shard, id, tenant, seq, snapshot FROM held WHERE snapshot IS NOT NULL
    UNION ALL
    SELECT shard, id, tenant, seq, snapshot FROM n WHERE snapshot IS NOT NULL AND (id IN (SELECT id FROM born)) IS TRUE
    ON CONFLICT (shard, instance_id) DO UPDATE SET seq = excluded.seq, body = excluded.body
), written AS (
    INSERT INTO agiwo.history (shard, instance_id, seq, first_seq, tenant, epoch, node, at, records)
    SELECT shard, id, seq, prev + 1, tenant, epoch, $1, to_timestamp(at), records FROM held WHERE seq > prev
    UNION ALL
    SELECT shard, id, seq, 1, tenant, epoch, $1, to_timestamp(at), records FROM n WHERE (id IN (SELECT id FROM born)) IS TRUE
)
SELECT id FROM held UNION ALL SELECT id FROM born;

-- name: judge_misses
-- Why a write was not applied: who owns the row now, what stands in the history under its number, whom its key was promised to.
SELECT w.id, r.owner, r.epoch, r.seq, r.inbox_seq, i.id IS NOT NULL AS known,
       (h.records::text = w.records) IS TRUE AS written,
       p.instance_id AS promised_to, p.request_digest, (p.expires_at <= now()) IS TRUE AS expired,
       (SELECT b.kind FROM agiwo.start_hold b
        WHERE b.tenant = w.tenant AND b.workflow = w.workflow AND b.version IN ('', w.version) ORDER BY b.version LIMIT 1) AS held_back
FROM unnest($2::uuid[], $3::int[], $4::int[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[])
    AS w(id, epoch, seq, records, tenant, key, workflow, version)
LEFT JOIN agiwo.run r ON r.shard = get_byte(uuid_send(w.id), 7) AND r.id = w.id
LEFT JOIN agiwo.instance i ON i.shard = get_byte(uuid_send(w.id), 7) AND i.id = w.id
LEFT JOIN agiwo.history h ON h.shard = get_byte(uuid_send(w.id), 7) AND h.instance_id = w.id AND h.seq = w.seq
    AND h.epoch = w.epoch AND h.node = $1::bigint
LEFT JOIN agiwo.idempotency p ON p.tenant = w.tenant AND p.key = w.key;

-- name: forget_expired_keys
-- Make room for triggers whose key was promised long ago.
DELETE FROM agiwo.idempotency p
USING unnest($1::text[], $2::text[]) AS w(tenant, key)
WHERE p.tenant = w.tenant AND p.key = w.key AND p.expires_at <= now();

-- name: insert_approvals
-- Ask people; in the transaction of the write that asks.
INSERT INTO agiwo.approval (shard, id, instance_id, tenant, path, step, digest, title, body, approvers, asked_at, expires_at)
SELECT get_byte(uuid_send(id), 7), id, instance_id, tenant, path, step, digest, title, body,
       ARRAY(SELECT json_array_elements_text(approvers)), to_timestamp(asked), to_timestamp(expires)
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::json[], $9::json[],
            $10::float8[], $11::float8[])
    AS a(id, instance_id, tenant, path, step, digest, title, body, approvers, asked, expires);

-- name: close_pending_approvals
-- Settle approvals without a person; a decision that was counted stays. `is true` keeps the planner off the list of all that are open.
UPDATE agiwo.approval a
SET state = w.state
FROM unnest($1::uuid[], $2::text[]) AS w(id, state)
WHERE a.shard = get_byte(uuid_send(w.id), 7) AND a.id = w.id AND (a.state = 'pending') IS TRUE;

-- name: insert_outbox
-- Deliveries that a write causes, numbered so that they keep their order.
INSERT INTO agiwo.outbox (shard, id, instance_id, tenant, seq, position, kind, target, body)
SELECT get_byte(uuid_send(id), 7), id, instance_id, tenant, seq, position, kind, target, body
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::int[], $5::smallint[], $6::text[], $7::text[], $8::json[])
    AS o(id, instance_id, tenant, seq, position, kind, target, body);

-- name: take_inbox
-- Consume inbox items: a named one stays, marked, so that its repetition is known.
WITH w AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS w(instance_id, id)
), forgotten AS (
    DELETE FROM agiwo.inbox b USING w
    WHERE b.shard = get_byte(uuid_send(w.instance_id), 7) AND b.instance_id = w.instance_id AND b.id = w.id AND b.dedup IS NULL
)
UPDATE agiwo.inbox b SET taken_at = now()
FROM w
WHERE b.shard = get_byte(uuid_send(w.instance_id), 7) AND b.instance_id = w.instance_id AND b.id = w.id
    AND b.dedup IS NOT NULL AND b.taken_at IS NULL;
