-- name: list_workflows
-- Workflows that have a published version, by name, each with what a trigger takes and what is held back; counts stop at $5.
SELECT p.workflow,
       (SELECT v.version FROM agiwo.workflow_version v
        WHERE v.tenant = $1 AND v.workflow = p.workflow AND (v.is_default OR (v.label = '' AND v.deprecated_at IS NULL))
        ORDER BY v.is_default DESC, v.rank DESC LIMIT 1) AS version,
       (SELECT v.version FROM agiwo.workflow_version v
        WHERE v.tenant = $1 AND v.workflow = p.workflow ORDER BY v.rank DESC LIMIT 1) AS newest,
       (SELECT v.version FROM agiwo.workflow_version v
        WHERE v.tenant = $1 AND v.workflow = p.workflow AND v.is_default) AS marked,
       (SELECT count(*) FROM (SELECT FROM agiwo.workflow_version v
                              WHERE v.tenant = $1 AND v.workflow = p.workflow LIMIT $5::int) c) AS versions,
       (SELECT count(*) FROM (SELECT FROM agiwo.workflow_draft d
                              WHERE d.tenant = $1 AND d.workflow = p.workflow LIMIT $5) c) AS drafts,
       h.held_by, extract(epoch FROM h.since)::float8 AS since, h.reason
FROM (SELECT DISTINCT v.workflow FROM agiwo.workflow_version v
      WHERE v.tenant = $1::text AND ($2::text IS NULL OR v.workflow ILIKE $2) AND ($3::text IS NULL OR v.workflow > $3)
          AND ($6::text IS NULL OR v.workflow = $6)
      ORDER BY v.workflow LIMIT $4::int) p
LEFT JOIN agiwo.start_hold h ON h.tenant = $1 AND h.workflow = p.workflow AND h.version = ''
ORDER BY p.workflow;

-- name: unmark_default
-- Take the default mark from every version but one; the partial unique index lets only one have it.
UPDATE agiwo.workflow_version SET is_default = false
WHERE tenant = $1::text AND workflow = $2::text AND is_default AND version IS DISTINCT FROM $3::text
RETURNING version;

-- name: mark_default
-- Mark a version default.
UPDATE agiwo.workflow_version SET is_default = true
WHERE tenant = $1::text AND workflow = $2::text AND version = $3::text AND NOT is_default
RETURNING version;

-- name: mark_deprecated
-- Deprecate a version, or take that back.
UPDATE agiwo.workflow_version SET deprecated_at = CASE WHEN $4::bool THEN now() END
WHERE tenant = $1::text AND workflow = $2::text AND version = $3::text AND (deprecated_at IS NOT NULL) <> $4
RETURNING version;

-- name: has_version
-- Whether a version stands.
SELECT version FROM agiwo.workflow_version WHERE tenant = $1::text AND workflow = $2::text AND version = $3::text;

-- name: pause_workflow
-- Hold back new instances of a workflow; a hold that stands already stays as it is.
INSERT INTO agiwo.start_hold (tenant, workflow, version, kind, held_by, reason)
VALUES ($1::text, $2::text, '', 'paused', $3::text, $4::text)
ON CONFLICT DO NOTHING;

-- name: resume_workflow
-- Let a paused workflow start again.
DELETE FROM agiwo.start_hold WHERE tenant = $1::text AND workflow = $2::text AND version = ''
RETURNING held_by, extract(epoch FROM since)::float8 AS since, reason;

-- name: get_hold
-- What holds back a workflow's new instances.
SELECT held_by, extract(epoch FROM since)::float8 AS since, reason FROM agiwo.start_hold
WHERE tenant = $1::text AND workflow = $2::text AND version = '';

-- name: look_for_instances
-- The live instances of a version, or of all, the newest first, and whether ended ones are kept.
SELECT ARRAY(SELECT i.id FROM agiwo.instance i
             WHERE i.tenant = $1::text AND i.workflow = $2::text AND ($3::text IS NULL OR i.version = $3) AND i.ended_at IS NULL
             ORDER BY i.id DESC LIMIT $4::int) AS live,
       EXISTS (SELECT FROM agiwo.instance i
               WHERE i.tenant = $1 AND i.workflow = $2 AND ($3 IS NULL OR i.version = $3) AND i.ended_at IS NOT NULL) AS ended;

-- name: forbid_versions
-- Let nothing new use versions that are about to be deleted, and keep what they held.
INSERT INTO agiwo.start_hold (tenant, workflow, version, kind, held_by, content_hash)
SELECT v.tenant, v.workflow, v.version, 'deleted', $4::text, v.content_hash
FROM agiwo.workflow_version v
WHERE v.tenant = $1::text AND v.workflow = $2::text AND ($3::text IS NULL OR v.version = $3)
ON CONFLICT DO NOTHING;

-- name: allow_versions_that_stand
-- Take back what was forbidden for a deletion that was not made.
DELETE FROM agiwo.start_hold h
USING agiwo.workflow_version v
WHERE v.tenant = $1::text AND v.workflow = $2::text AND ($3::text IS NULL OR v.version = $3)
    AND h.tenant = v.tenant AND h.workflow = v.workflow AND h.version = v.version AND h.kind = 'deleted';

-- name: delete_forbidden_versions
-- Delete the versions that nothing new can use.
DELETE FROM agiwo.workflow_version v
USING agiwo.start_hold h
WHERE v.tenant = $1::text AND v.workflow = $2::text AND ($3::text IS NULL OR v.version = $3)
    AND h.tenant = v.tenant AND h.workflow = v.workflow AND h.version = v.version AND h.kind = 'deleted'
RETURNING v.version;

-- name: delete_drafts
-- Delete a draft, or all of a workflow.
DELETE FROM agiwo.workflow_draft WHERE tenant = $1::text AND workflow = $2::text AND ($3::text IS NULL OR version = $3)
RETURNING version;

-- name: keep_draft
-- Store a draft in the place of an earlier one; answers with whether there was none.
INSERT INTO agiwo.workflow_draft AS d (tenant, workflow, version, source, problems, errors, warnings, saved_by)
VALUES ($1::text, $2::text, $3::text, $4::text, $5::json, $6::int, $7::int, $8::text)
ON CONFLICT (tenant, workflow, version) DO UPDATE
SET source = excluded.source, problems = excluded.problems, errors = excluded.errors, warnings = excluded.warnings,
    saved_by = excluded.saved_by, saved_at = now()
RETURNING xmax = 0 AS new;

-- name: list_drafts
-- The drafts of a workflow by version, without their texts: a page of these may be hundreds of megabytes.
SELECT workflow, version, errors, warnings, saved_by, extract(epoch FROM saved_at)::float8 AS saved_at
FROM agiwo.workflow_draft
WHERE tenant = $1::text AND workflow = $2::text AND ($3::text IS NULL OR version > $3)
ORDER BY version LIMIT $4::int;

-- name: get_draft
-- One draft with its text and what is wrong with it.
SELECT workflow, version, source, problems::text AS problems, errors, warnings, saved_by, extract(epoch FROM saved_at)::float8 AS saved_at
FROM agiwo.workflow_draft
WHERE tenant = $1::text AND workflow = $2::text AND version = $3::text;
