-- name: keep_last_good
-- The newest good result of a call; it stays for as long as any step that kept it may ask for it.
INSERT INTO agiwo.last_good AS g (tenant, tool, digest, result, at, expires_at)
VALUES ($1::text, $2::text, $3::text, $4::json, to_timestamp($5::float8), to_timestamp($6::float8))
ON CONFLICT (tenant, tool, digest) DO UPDATE
SET result = excluded.result, at = excluded.at, expires_at = greatest(g.expires_at, excluded.expires_at)
WHERE g.at <= excluded.at;

-- name: find_last_good
-- The last good result of a call, if it is not too old.
SELECT result::text AS result, extract(epoch FROM at)::float8 AS at FROM agiwo.last_good
WHERE tenant = $1::text AND tool = $2::text AND digest = $3::text AND at >= to_timestamp($4::float8);

-- name: forget_last_good
-- A few results that nobody may ask for any more.
DELETE FROM agiwo.last_good
WHERE (tenant, tool, digest) IN (
    SELECT tenant, tool, digest FROM agiwo.last_good
    WHERE expires_at <= now() ORDER BY expires_at LIMIT 500 FOR UPDATE SKIP LOCKED);
