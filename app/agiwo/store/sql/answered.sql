-- name: hold_answered_call
-- Take a key that is free; no row if something stands under it.
INSERT INTO agiwo.answered_call AS c (tenant, principal, key, digest, claim, expires_at)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::uuid, clock_timestamp() + $6::float8 * interval '1 second')
ON CONFLICT (tenant, principal, key) DO UPDATE
SET digest = excluded.digest, claim = excluded.claim, expires_at = excluded.expires_at, status = NULL, headers = NULL, body = NULL
WHERE c.expires_at <= clock_timestamp()
RETURNING 1;

-- name: look_at_answered_call
-- What stands under a key.
SELECT digest, status, headers::text AS headers, body FROM agiwo.answered_call
WHERE tenant = $1::text AND principal = $2::text AND key = $3::text AND expires_at > clock_timestamp();

-- name: renew_answered_call
-- A sign of life of the call that holds a key.
UPDATE agiwo.answered_call SET expires_at = clock_timestamp() + $5::float8 * interval '1 second'
WHERE tenant = $1::text AND principal = $2::text AND key = $3::text AND claim = $4::uuid AND status IS NULL;

-- name: keep_answered_call
-- The answer of the call that holds a key.
UPDATE agiwo.answered_call
SET status = $5::smallint, headers = $6::json, body = $7::bytea, expires_at = clock_timestamp() + $8::float8 * interval '1 second'
WHERE tenant = $1::text AND principal = $2::text AND key = $3::text AND claim = $4::uuid AND status IS NULL;

-- name: free_answered_call
-- The call that holds a key was refused.
DELETE FROM agiwo.answered_call
WHERE tenant = $1::text AND principal = $2::text AND key = $3::text AND claim = $4::uuid AND status IS NULL;

-- name: forget_answered_calls
-- A few keys whose time is over.
DELETE FROM agiwo.answered_call
WHERE (tenant, principal, key) IN (
    SELECT tenant, principal, key FROM agiwo.answered_call
    WHERE expires_at <= now() ORDER BY expires_at LIMIT 500 FOR UPDATE SKIP LOCKED);
