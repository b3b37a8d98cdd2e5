-- name: insert_usage
-- The calls of models that a write tells of; a call that stands in the ledger already stays as it is.
INSERT INTO agiwo.usage (shard, instance_id, tenant, path, attempt, number, workflow, at, purpose, profile, kind, model_asked, model_answered,
                         input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_micro_usd, price_version,
                         status, latency_ms, request_id)
SELECT get_byte(uuid_send(instance_id), 7), instance_id, tenant, path, attempt, number, workflow, to_timestamp(at), purpose, profile, kind,
       model_asked, model_answered, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_micro_usd,
       price_version, status, latency_ms, request_id
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::int[], $5::int[], $6::text[], $7::float8[], $8::text[], $9::text[], $10::text[],
            $11::text[], $12::text[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::text[],
            $20::text[], $21::bigint[], $22::text[])
    AS u(instance_id, tenant, path, attempt, number, workflow, at, purpose, profile, kind, model_asked, model_answered, input_tokens,
         output_tokens, cache_read_tokens, cache_write_tokens, reasoning_tokens, cost_micro_usd, price_version, status, latency_ms, request_id)
ON CONFLICT DO NOTHING;
