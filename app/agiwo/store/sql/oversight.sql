-- name: list_nodes
-- Every incarnation that is known, the living first, with what it holds by the database's word.
SELECT n.id, n.name, extract(epoch FROM n.started_at)::float8 AS started_at, extract(epoch FROM n.lease_until)::float8 AS lease_until,
       extract(epoch FROM n.lease_until - clock_timestamp())::float8 AS lease_left, n.state,
       (SELECT count(*) FROM (SELECT FROM agiwo.run r WHERE r.owner = n.id LIMIT 100000) AS held)::int AS instances,
       (SELECT count(*) FROM (SELECT FROM agiwo.outbox o WHERE o.owner = n.id LIMIT 100000) AS taken)::int AS deliveries
FROM agiwo.node n
ORDER BY n.state = 'alive' DESC, n.started_at DESC, n.id
LIMIT $1::int;

-- name: count_queues
-- What a tenant has lying about, each number capped: ready for a node, waiting for a time, waiting without one.
SELECT (SELECT count(*) FROM (SELECT FROM agiwo.run r WHERE r.tenant = $1::text AND r.owner IS NULL AND r.due_at <= now() LIMIT $2::int) AS d)::int AS ready,
       (SELECT extract(epoch FROM clock_timestamp() - min(r.due_at))::float8
        FROM agiwo.run r WHERE r.tenant = $1 AND r.owner IS NULL AND r.due_at <= now()) AS oldest_ready,
       (SELECT count(*) FROM (SELECT FROM agiwo.run r WHERE r.tenant = $1 AND r.owner IS NULL AND r.due_at > now() AND r.due_at < 'infinity'
                              LIMIT $2) AS t)::int AS timed,
       (SELECT count(*) FROM (SELECT FROM agiwo.run r WHERE r.tenant = $1 AND r.owner IS NULL AND r.due_at = 'infinity' LIMIT $2) AS w)::int AS waiting,
       (SELECT count(*) FROM (SELECT FROM agiwo.approval a WHERE a.tenant = $1 AND a.state = 'pending' LIMIT $2) AS a)::int AS approvals;

-- name: list_audit
-- Who did what, the newest first, out of the newest $6 rows below $5; `scanned` is the last id that was looked at.
WITH looked AS MATERIALIZED (
    SELECT a.id, a.at, a.actor, a.action, a.object, a.data
    FROM agiwo.audit a
    WHERE a.tenant = $1::text AND ($5::uuid IS NULL OR a.id < $5) AND ($4::text IS NULL OR a.object = $4)
    ORDER BY a.id DESC
    LIMIT $6::int
)
SELECT l.id, extract(epoch FROM l.at)::float8 AS at, l.actor, l.action, l.object, l.data::text AS data,
       CASE WHEN (SELECT count(*) FROM looked) = $6 THEN (SELECT id FROM looked ORDER BY id LIMIT 1) END AS scanned
FROM (SELECT * FROM looked WHERE ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR action = $3) ORDER BY id DESC LIMIT $7::int) AS l
RIGHT JOIN (SELECT 1) AS always ON true
ORDER BY l.id DESC;

-- name: find_owners_that_are_gone
-- Instances whose owner is no living node, longer than a sweep takes; of another tenant's than $2 only that there are some.
SELECT CASE WHEN r.tenant = $2::text THEN r.id END AS id FROM agiwo.run r
WHERE r.owner IS NOT NULL AND NOT EXISTS (SELECT FROM agiwo.node n WHERE n.id = r.owner AND (n.state = 'alive' OR n.lease_until > now() - interval '30 seconds'))
LIMIT $1::int;

-- name: find_due_and_not_taken
-- Instances that have been due for a minute, and no node has taken them; of another tenant's than $2 only that there are some.
SELECT CASE WHEN r.tenant = $2::text THEN r.id END AS id FROM agiwo.run r WHERE r.owner IS NULL AND r.due_at < now() - interval '1 minute' ORDER BY r.due_at LIMIT $1::int;

-- name: find_ended_with_a_live_row
-- Live rows of instances that have ended, or that are not listed at all; looked for among those that a node
-- has; of another tenant's than $2 only that there are some.
SELECT CASE WHEN r.tenant = $2::text THEN r.id END AS id FROM agiwo.run r
LEFT JOIN agiwo.instance i ON i.shard = r.shard AND i.id = r.id
WHERE r.owner IS NOT NULL AND (i.id IS NULL OR i.ended_at IS NOT NULL)
LIMIT $1::int;

-- name: find_pending_without_a_life
-- Approvals that people may still answer although their instance is over.
SELECT a.id FROM agiwo.approval a
WHERE a.state = 'pending' AND a.tenant = $2::text AND NOT EXISTS (SELECT FROM agiwo.run r WHERE r.shard = a.shard AND r.id = a.instance_id)
LIMIT $1::int;

-- name: find_gaps_in_histories
-- Of the newest instances, those whose history misses a number, tells one twice, or ends elsewhere than the live row says.
WITH newest AS MATERIALIZED (
    SELECT i.shard, i.id FROM agiwo.instance i WHERE i.tenant = $2::text ORDER BY i.id DESC LIMIT 200
), numbered AS (
    SELECT n.shard, n.id, h.seq, h.first_seq, lag(h.seq, 1, 0) OVER (PARTITION BY n.id ORDER BY h.seq) AS before
    FROM newest n JOIN agiwo.history h ON h.shard = n.shard AND h.instance_id = n.id
)
SELECT DISTINCT id FROM numbered WHERE first_seq <> before + 1 LIMIT $1::int;

-- name: find_waiting_for_nothing
-- Of the newest instances that run and that no node holds, those that wait for no time and of which nothing says what else they wait for.
WITH newest AS MATERIALIZED (
    SELECT i.shard, i.id, i.waiting_for
    FROM agiwo.instance i
    WHERE i.tenant = $2::text AND i.status = 'RUNNING'
    ORDER BY i.id DESC
    LIMIT 20000
)
SELECT n.id FROM newest n JOIN agiwo.run r ON r.shard = n.shard AND r.id = n.id
WHERE n.waiting_for IS NULL AND r.owner IS NULL AND r.due_at = 'infinity'
LIMIT $1::int;
