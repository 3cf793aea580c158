-- A copy of the clusters' objects in PostgreSQL (13 or newer, encoding UTF8), by the rules of docs/events.md, whose
-- steps have the numbers in the comments. A program that reads a topic inserts each message: those of one partition in
-- their order, from its beginning or from where it had committed to. Repetitions change nothing.
--
--   insert into kubebridge.inbox (topic, partition, partitions, value) values ($1, $2, $3, $4);
--   select namespace, name, object->'status'->>'phase' from kubebridge.objects where resource = 'pods';
--   select namespace, name, request->'user'->>'name' from kubebridge.objects where resource = 'deployments';
--   select * from kubebridge.complete;
--
-- A message without a value has its headers in the column headers: {"ce_type": "…", …}. Of a compacted topic, complete
-- holds only while every partition has been read to its end.
--
-- Kubernetes accepts the character NUL in strings, PostgreSQL does not. The copy has U+FFFD (the replacement character)
-- in its place. Pass messages as text or json: a cast to jsonb in the program fails on such an event.
create schema kubebridge;

create table kubebridge.births (cluster text primary key, birth numeric not null);

create table kubebridge.plans (
    source text primary key,             -- /clusters/<cluster>/<group or core>/<resource>
    birth numeric not null,
    number numeric not null,
    digest text not null
);

create table kubebridge.collections (
    cluster text, collection text,
    source text not null,
    incarnation numeric not null,
    run numeric not null,                -- the highest that was read
    closed boolean not null default false,
    primary key (cluster, collection)
);

create table kubebridge.names (          -- the last event of each name in each collection
    cluster text, collection text,
    subject text,
    run numeric not null,
    resourceversion text not null,
    deleted boolean not null,
    source text not null,
    uid text not null,
    epoch numeric not null,
    "group" text not null,               -- '' is the core group
    resource text not null,
    namespace text not null,             -- '' if there is none
    name text not null,
    kind text not null,
    time timestamptz not null,
    object jsonb,
    id text not null,                    -- of the event
    request jsonb,                       -- who made the change: of the event, or of the attributed event behind it
    primary key (cluster, collection, subject),
    foreign key (cluster, collection) references kubebridge.collections on delete cascade
);
create index on kubebridge.names (source, uid) where not deleted;

create table kubebridge.progress (       -- how far each partition was read of each collection
    cluster text, collection text, topic text, partition int,
    partitions int not null,
    phase text not null default 'unread',
    run numeric not null default 0,      -- the highest that was read
    synced numeric not null default 0,   -- the number of the last synced of that run
    epoch numeric, version numeric, time timestamptz, edit numeric, -- of the last synced
    primary key (cluster, collection, topic, partition),
    foreign key (cluster, collection) references kubebridge.collections on delete cascade
);

create table kubebridge.transitions (phase text, event text, next text not null, primary key (phase, event)); -- 7
insert into kubebridge.transitions values
    ('unread', 'reset', 'open'), ('unread', 'resync', 'resyncing'), ('unread', 'gap', 'partial'), ('unread', 'synced', 'partial'),
    ('unread', 'object', 'partial'),
    ('partial', 'resync', 'resyncing'),
    ('resyncing', 'gap', 'partial'), ('resyncing', 'synced', 'in step'),
    ('open', 'synced', 'in step'),
    ('in step', 'gap', 'open');

-- The version as a number; null if it is not one.
create function kubebridge.number(version text) returns numeric immutable language sql as
    $$ select case when version ~ '^[1-9][0-9]*$' then version::numeric end $$;

-- 8: the union.
create view kubebridge.objects as
    select distinct on (source, uid)
        cluster, "group", resource, namespace, name, uid, kind, epoch, resourceversion, time, object,
        request, -- null: it is not known which request led to this state
        array_agg(collection) over (partition by source, uid) as collections
    from kubebridge.names where not deleted
    order by source, uid, epoch desc, kubebridge.number(resourceversion) desc nulls last, collection collate "C";

-- 9: the resources whose union is complete, and as of when.
create view kubebridge.complete as
    with steps as (
        select c.cluster, c.source, c.collection, min(p.edit) as edit, min(p.time) as time,
            case when bool_and(p.version is not null) then min(array[p.epoch, p.version]) end as version,
            count(*) = (
                select sum(partitions) from (
                    select max(t.partitions) as partitions from kubebridge.progress t
                    where t.cluster = c.cluster and t.collection = c.collection group by t.topic) as topics)
            and bool_and(p.phase = 'in step' and p.run = c.run) and count(distinct p.edit) = 1 as in_step
        from kubebridge.collections c left join kubebridge.progress p using (cluster, collection)
        where not c.closed group by c.cluster, c.source, c.collection)
    select cluster, source, case when bool_and(version is not null) then (min(version))[1] end as epoch, -- no version: a part did not exist
        case when bool_and(version is not null) then (min(version))[2] end as resourceversion, min(time) as time
    from steps join kubebridge.plans using (source)
    group by cluster, source, digest
    having bool_and(coalesce(in_step, false)) and digest = left(encode(sha256(convert_to(
        string_agg(collection || ' ' || edit || E'\n', '' order by collection collate "C"), 'UTF8')), 'hex'), 16);

create table kubebridge.inbox (topic text not null, partition int not null, partitions int not null default 1, value json, headers json);

-- The JSON as jsonb, with U+FFFD for NUL. \\u0000 is an escaped backslash and the text u0000, and must stay: escaped
-- backslashes are the character 1 during the replacement. JSON never has that character unescaped.
create function kubebridge.storable(message json) returns jsonb immutable language sql as $$
    select case when strpos(message::text, '\u0000') = 0 then message::jsonb
        else replace(replace(replace(message::text, '\\', E'\x01'), '\u0000', '\ufffd'), E'\x01', '\\')::jsonb end
$$;

-- 2, 3
create function kubebridge.follow(e jsonb) returns void language plpgsql as $$
declare
    born numeric := (e->>'birth')::numeric;
begin
    insert into kubebridge.births as b values (e->>'cluster', born)
        on conflict (cluster) do update set birth = excluded.birth where excluded.birth > b.birth;
    delete from kubebridge.collections c where c.cluster = e->>'cluster' and c.incarnation < born;
    insert into kubebridge.plans as p select e->>'source', born, (e->>'plan')::numeric, e->>'plandigest'
        from kubebridge.births b where b.cluster = e->>'cluster' and b.birth = born
        on conflict (source) do update set birth = excluded.birth, number = excluded.number, digest = excluded.digest
        where (excluded.birth, excluded.number) > (p.birth, p.number);
end $$;

-- 4: whether the event counts.
create function kubebridge.enter(e jsonb) returns boolean language plpgsql as $$
declare
    c kubebridge.collections;
begin
    if (e->>'incarnation')::numeric < (select birth from kubebridge.births where cluster = e->>'cluster') then
        return false;
    end if;
    select * into c from kubebridge.collections where cluster = e->>'cluster' and collection = e->>'collection';
    if found and (e->>'incarnation')::numeric <= c.incarnation then
        return (e->>'incarnation')::numeric = c.incarnation and not c.closed;
    end if;
    delete from kubebridge.collections where cluster = e->>'cluster' and collection = e->>'collection';
    insert into kubebridge.collections values (e->>'cluster', e->>'collection', e->>'source', (e->>'incarnation')::numeric, 0);
    return true;
end $$;

-- 5
create function kubebridge.object(e jsonb) returns void language sql as $$
    insert into kubebridge.names as l select
        e->>'cluster', e->>'collection', e->>'subject', (e->>'run')::numeric, coalesce(e->>'resourceversion', ''), e->>'type' like '%.deleted.v1',
        e->>'source', e->>'uid', coalesce(e->>'epoch', '1')::numeric, coalesce(e->>'group', ''), e->>'resource',
        coalesce(e->>'namespace', ''), e->>'name', e->>'kind', (e->>'time')::timestamptz,
        case when e->>'type' not like '%.deleted.v1' then e->'data'->'object' end, e->>'id', e->'data'->'actor'
    on conflict (cluster, collection, subject) do update set
        run = excluded.run, resourceversion = excluded.resourceversion, deleted = excluded.deleted, source = excluded.source,
        uid = excluded.uid, epoch = excluded.epoch, kind = excluded.kind, time = excluded.time, object = excluded.object,
        id = excluded.id, request = excluded.request
    where excluded.run > l.run or excluded.run = l.run and case
        when excluded.resourceversion = l.resourceversion then excluded.deleted and not l.deleted
        else coalesce(kubebridge.number(excluded.resourceversion) > kubebridge.number(l.resourceversion), true) end
$$;

-- 7, and what 5 says of phases. Event is 'reset', 'resync', 'gap', 'synced' or 'object'.
create function kubebridge.step(e jsonb, place kubebridge.inbox, event text) returns void language plpgsql as $$
declare
    p kubebridge.progress;
    n numeric := case when event = 'synced' then substring(e->>'id' from ':([0-9]+):synced$') end;
begin
    insert into kubebridge.progress as q (cluster, collection, topic, partition, partitions)
        values (e->>'cluster', e->>'collection', place.topic, place.partition, place.partitions)
        on conflict (cluster, collection, topic, partition) do update set partitions = greatest(q.partitions, excluded.partitions)
        returning * into p;
    if event in ('reset', 'resync', 'gap') and (e->>'run')::numeric <= p.run
        or event = 'synced' and ((e->>'run')::numeric < p.run or (e->>'run')::numeric = p.run and n <= p.synced) then
        return;
    end if;
    update kubebridge.collections set run = greatest(run, (e->>'run')::numeric) where cluster = p.cluster and collection = p.collection;
    update kubebridge.progress q set
        phase = coalesce((select next from kubebridge.transitions t where t.phase = p.phase and t.event = step.event), p.phase),
        synced = case when event = 'synced' then n when (e->>'run')::numeric > p.run then 0 else p.synced end,
        run = greatest(p.run, (e->>'run')::numeric)
        where (q.cluster, q.collection, q.topic, q.partition) = (p.cluster, p.collection, p.topic, p.partition);
    if event = 'synced' then
        update kubebridge.progress q set epoch = coalesce(e->>'epoch', '1')::numeric, version = kubebridge.number(e->>'resourceversion'),
            time = (e->>'time')::timestamptz, edit = (e->>'edit')::numeric
            where (q.cluster, q.collection, q.topic, q.partition) = (p.cluster, p.collection, p.topic, p.partition);
    end if;
end $$;

create function kubebridge.apply() returns trigger language plpgsql as $$
declare
    e jsonb := coalesce(kubebridge.storable(new.value),
        (select jsonb_object_agg(substr(key, 4), value) from jsonb_each(kubebridge.storable(new.headers)) where key like 'ce\__%'));
begin
    if e is null or coalesce(e->>'type', '') !~ '^io\.kubebridge\.(resource|collection)\.[^.]+\.v1$' or e ? 'deadletterreason' then -- 1
        return null;
    end if;
    if greatest((e->>'run')::numeric, (e->>'incarnation')::numeric, (e->>'birth')::numeric, (e->>'plan')::numeric, (e->>'edit')::numeric)
            > extract(epoch from now() + interval '24 hours') * 1000 or (e->>'time')::timestamptz > now() + interval '24 hours' then
        raise warning 'ignored, more than a day ahead of the clock: %', e->>'id';
        return null;
    end if;
    perform pg_advisory_xact_lock(hashtext('kubebridge ' || (e->>'cluster'))); -- one writer at a time
    if e ? 'birth' then
        perform kubebridge.follow(e);
    end if;
    if not kubebridge.enter(e) then
        return null;
    end if;
    case split_part(e->>'type', '.', 4)
    when 'closed' then -- 6
        update kubebridge.collections set closed = true where cluster = e->>'cluster' and collection = e->>'collection';
        delete from kubebridge.names where cluster = e->>'cluster' and collection = e->>'collection';
        delete from kubebridge.progress where cluster = e->>'cluster' and collection = e->>'collection';
    when 'attributed' then
        update kubebridge.names set request = e->'data'->'request'
            where cluster = e->>'cluster' and collection = e->>'collection' and subject = e->>'subject' and id = e->'data'->>'explains';
    when 'gap' then
        perform kubebridge.step(e, new, case when e->'data' ? 'reset' then 'reset' when e->'data'->>'reason' = 'resync' then 'resync' else 'gap' end);
    when 'synced' then
        perform kubebridge.step(e, new, 'synced');
    else
        perform kubebridge.step(e, new, 'object');
        perform kubebridge.object(e);
    end case;
    return null;
end $$;

create trigger apply before insert on kubebridge.inbox for each row execute function kubebridge.apply();
