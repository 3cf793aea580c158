-- The Kafka topics in ClickHouse: every event, and a view of what exists, by the rules of docs/events.md, whose steps
-- have the numbers in the comments. The order of partitions does not matter. Not run by the project's tests. Replace
-- broker and topics. Versions must be numbers. The view does not say whether the copy is complete.
create database if not exists kubebridge;

create table kubebridge.queue (value String)
engine = Kafka
settings kafka_broker_list = 'kafka:9092', kafka_topic_list = 'k8s.prod-eu-1.core.pods',
    kafka_group_name = 'clickhouse-kubebridge', kafka_format = 'RawBLOB'; -- reads committed records only

create table kubebridge.events (
    cluster LowCardinality(String),
    type LowCardinality(String),
    collection LowCardinality(String),
    source LowCardinality(String),
    id String,
    subject String,
    uid String,
    namespace LowCardinality(String),
    name String,
    epoch UInt64,
    resourceversion UInt64,
    run UInt64,
    incarnation UInt64,
    birth UInt64, -- 0: of an object
    time DateTime64(6, 'UTC'),
    data String
)
engine = ReplacingMergeTree
order by (cluster, collection, subject, id); -- a repetition has the same id

create materialized view kubebridge.taken to kubebridge.events as
select JSONExtractString(value, 'cluster') as cluster,
    splitByChar('.', JSONExtractString(value, 'type'))[4] as type,
    JSONExtractString(value, 'collection') as collection,
    JSONExtractString(value, 'source') as source,
    JSONExtractString(value, 'id') as id,
    JSONExtractString(value, 'subject') as subject,
    JSONExtractString(value, 'uid') as uid,
    JSONExtractString(value, 'namespace') as namespace,
    JSONExtractString(value, 'name') as name,
    greatest(1, toUInt64OrZero(JSONExtractString(value, 'epoch'))) as epoch,
    toUInt64OrZero(JSONExtractString(value, 'resourceversion')) as resourceversion,
    toUInt64OrZero(JSONExtractString(value, 'run')) as run,
    toUInt64OrZero(JSONExtractString(value, 'incarnation')) as incarnation,
    toUInt64OrZero(JSONExtractString(value, 'birth')) as birth,
    parseDateTime64BestEffort(JSONExtractString(value, 'time'), 6, 'UTC') as time,
    JSONExtractRaw(value, 'data') as data
from kubebridge.queue
where match(JSONExtractString(value, 'type'), '^io\\.kubebridge\\.(resource|collection)\\.[^.]+\\.v1$') and not JSONHas(value, 'deadletterreason') -- 1
    and greatest(run, incarnation, birth) <= toUnixTimestamp64Milli(now64(3)) + 86400000;

create view kubebridge.collections as -- 2, 4, 6: the incarnation of each collection that is not closed
select c.cluster as cluster, c.collection as collection, c.incarnation as incarnation
from (
    select cluster, collection, max(e.incarnation) as incarnation, argMax(e.type = 'closed', (e.incarnation, e.type = 'closed')) as closed
    from kubebridge.events as e group by cluster, collection
) as c
join (select cluster, max(e.birth) as birth from kubebridge.events as e group by cluster) as b on b.cluster = c.cluster
where not c.closed and c.incarnation >= b.birth;

create view kubebridge.names as -- 5: the last event of each name in each collection
select e.cluster as cluster, e.collection as collection, e.subject as subject,
    argMax((e.source, e.uid, e.namespace, e.name, e.epoch, e.resourceversion, e.type, e.data), (e.run, e.resourceversion, e.type = 'deleted')) as last
from kubebridge.events as e
join kubebridge.collections as c on c.cluster = e.cluster and c.collection = e.collection and c.incarnation = e.incarnation
where e.subject != '' and e.type not in ('attributed', 'denied', 'lost') -- 1
group by cluster, collection, subject;

create view kubebridge.requests as -- who made a change, by the id of its event
select if(type = 'attributed', JSONExtractString(data, 'explains'), e.id) as id,
    any(JSONExtractRaw(data, if(type = 'attributed', 'request', 'actor'))) as request
from kubebridge.events as e
where JSONHas(data, if(type = 'attributed', 'request', 'actor'))
group by id;

create view kubebridge.objects as -- 8: the union; if two collections have the same version of an object, the body of either
select any(cluster) as cluster, last.1 as source, last.2 as uid,
    groupArray(collection) as collections,
    argMax(last.3, (last.5, last.6)) as namespace,
    argMax(last.4, (last.5, last.6)) as name,
    max((last.5, last.6)) as version, -- epoch and resourceversion
    argMax(JSONExtractRaw(last.8, 'object'), (last.5, last.6)) as object
from kubebridge.names
where last.7 != 'deleted'
group by source, uid;
