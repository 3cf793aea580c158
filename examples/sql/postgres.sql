-- A copy of the clusters' objects in PostgreSQL (13 or newer), by the consumer's rule of
-- docs/events.md. Whatever reads the topic (Kafka Connect's JDBC sink, a program) inserts
-- each message's value, a partition's in order, from its beginning or from where it had
-- committed to: a repetition changes nothing.
--
--   insert into kubebridge.inbox (topic, partition, value) values ($1, $2, $3);
--   select namespace, name, object->'status'->>'phase' from kubebridge.objects where resource = 'pods';
create schema kubebridge;

create table kubebridge.known (
    source text not null,                -- /clusters/<cluster>/<group or core>/<resource>
    uid text not null,
    cluster text not null,
    collection text not null,
    topic text not null,
    partition int not null,
    epoch bigint not null,
    resourceversion numeric not null,    -- of the newest state; a deletion does not move it
    ids text[] not null,                 -- of what was told at it
    "group" text not null,               -- '' is the core group
    resource text not null,
    namespace text not null,             -- '' where there is none
    name text not null,
    kind text not null,
    object jsonb,                        -- null: it does not exist
    time timestamptz not null,
    primary key (source, uid)
);
create index on kubebridge.known (collection, topic, partition);
create index on kubebridge.known (resource, namespace, name) where object is not null;

create table kubebridge.said (
    cluster text not null, collection text not null, topic text not null, partition int not null,
    type text not null,                  -- gap, synced or closed: the last one
    resourceversion numeric,
    time timestamptz not null,
    resets text[] not null,
    primary key (cluster, collection, topic, partition)
);

create view kubebridge.objects as
    select cluster, "group", resource, namespace, name, uid, kind, epoch, resourceversion, time, object
    from kubebridge.known where object is not null;

create table kubebridge.inbox (topic text not null, partition int not null, value jsonb);

create function kubebridge.take() returns trigger language plpgsql as $$
declare
    e jsonb := new.value;
    typ text := split_part(e->>'type', '.', 4);
    v bigint := coalesce((e->>'epoch')::bigint, 1);
    rv numeric := (e->>'resourceversion')::numeric;
begin
    if e is null or e->>'type' not like 'io.kubebridge.%.v1' or e ? 'deadletterreason' then
        return null;
    end if;
    if e->>'type' like 'io.kubebridge.collection.%' then
        if (e->'data'->>'reset')::boolean then
            perform 1 from kubebridge.said s
                where s.cluster = e->>'cluster' and s.collection = e->>'collection'
                and s.topic = new.topic and s.partition = new.partition and e->>'id' = any (s.resets);
            if found then
                return null;
            end if;
            delete from kubebridge.known k
                where k.cluster = e->>'cluster' and k.collection = e->>'collection'
                and k.topic = new.topic and k.partition = new.partition;
        end if;
        insert into kubebridge.said as s values (
            e->>'cluster', e->>'collection', new.topic, new.partition, typ, rv, (e->>'time')::timestamptz,
            case when e->'data' ? 'reset' then array[e->>'id'] else '{}' end)
        on conflict (cluster, collection, topic, partition) do update set
            type = excluded.type, resourceversion = excluded.resourceversion, time = excluded.time,
            resets = s.resets || excluded.resets;
        return null;
    end if;
    insert into kubebridge.known as k values (
        e->>'source', e->>'uid', e->>'cluster', e->>'collection', new.topic, new.partition, v, rv, array[e->>'id'],
        coalesce(e->>'group', ''), e->>'resource', coalesce(e->>'namespace', ''), e->>'name', e->>'kind',
        case when typ <> 'deleted' then e->'data'->'object' end, (e->>'time')::timestamptz)
    on conflict (source, uid) do update set
        collection = excluded.collection, topic = excluded.topic, partition = excluded.partition,
        epoch = case when typ = 'deleted' then k.epoch else excluded.epoch end,
        resourceversion = case when typ = 'deleted' then k.resourceversion else excluded.resourceversion end,
        ids = case when typ = 'deleted' or (k.epoch, k.resourceversion) = (v, rv) then k.ids || excluded.ids else excluded.ids end,
        object = excluded.object, time = excluded.time
    where (v, rv) >= (k.epoch, k.resourceversion) and not e->>'id' = any (k.ids);
    return null;
end $$;

create trigger take before insert on kubebridge.inbox for each row execute function kubebridge.take();
