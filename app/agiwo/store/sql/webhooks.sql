-- name: insert_webhook
-- A new webhook; the row of news is locked until the commit, so that a higher number is never seen before a lower one.
WITH told AS (
    INSERT INTO agiwo.webhook_news (id, number) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET number = webhook_news.number + 1 RETURNING number
)
INSERT INTO agiwo.webhook (tenant, id, url, events, workflow, description, header_names, headers, secrets, include_output, active,
                           disabled_reason, created_at, created_by, updated_at, revision)
SELECT $1::text, $2::uuid, $3::text, $4::text[], $5::text, $6::text, $7::text[], $8::text, $9::json, $10::boolean, $11::boolean, $12::text,
       to_timestamp($13::float8), $14::text, to_timestamp($15::float8), number
FROM told
RETURNING revision;

-- name: change_webhook_if_unchanged
-- A change; no row if somebody else changed it meanwhile.
WITH told AS (
    INSERT INTO agiwo.webhook_news (id, number) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET number = webhook_news.number + 1 RETURNING number
)
UPDATE agiwo.webhook w
SET url = $3::text, events = $4::text[], workflow = $5::text, description = $6::text, header_names = $7::text[], headers = $8::text,
    secrets = $9::json, include_output = $10::boolean, active = $11::boolean, disabled_reason = $12::text,
    updated_at = to_timestamp($13::float8), revision = told.number
FROM told
WHERE w.tenant = $1::text AND w.id = $2::uuid AND w.revision = $14::bigint
RETURNING w.revision;

-- name: disable_webhook
-- Nothing is sent there any more.
WITH told AS (
    INSERT INTO agiwo.webhook_news (id, number) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET number = webhook_news.number + 1 RETURNING number
)
UPDATE agiwo.webhook w
SET active = false, disabled_reason = $3::text, updated_at = now(), revision = told.number
FROM told
WHERE w.tenant = $1::text AND w.id = $2::uuid AND w.active;

-- name: delete_webhook
-- What is still to be delivered there is given up at its next try.
WITH told AS (
    INSERT INTO agiwo.webhook_news (id, number) VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET number = webhook_news.number + 1 RETURNING number
)
DELETE FROM agiwo.webhook w USING told WHERE w.tenant = $1::text AND w.id = $2::uuid AND told.number > 0
RETURNING w.id;

-- name: read_webhook_news
-- Whether any webhook changed, for every node each second.
SELECT number FROM agiwo.webhook_news WHERE id = 1;

-- name: list_subscriptions
-- All active webhooks, as the engine needs them.
SELECT id, tenant, events, workflow, include_output FROM agiwo.webhook WHERE active ORDER BY tenant, id;

-- name: deliver_again
-- Deliver it at once, whatever became of it; no row if it is unknown or under way.
UPDATE agiwo.outbox
SET state = 'pending', tries = CASE state WHEN 'pending' THEN tries ELSE 0 END, due_at = now(), settled_at = NULL
WHERE shard = get_byte(uuid_send($2::uuid), 7) AND id = $2 AND tenant = $1::text AND owner IS NULL
RETURNING id;
