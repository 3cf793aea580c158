-- The Kafka topics in ClickHouse: every event, and the newest of each object. Not run by the
-- project's tests. Replace broker and topics; {cluster} and the like are in the events.
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
    uid String,
    namespace LowCardinality(String),
    name String,
    epoch UInt64,
    resourceversion UInt64,
    time DateTime64(6, 'UTC'),
    reset UInt8,
    data String
)
engine = ReplacingMergeTree
order by (source, uid, epoch, resourceversion, id); -- a repetition has the same id

create materialized view kubebridge.taken to kubebridge.events as
select JSONExtractString(value, 'cluster') as cluster,
    splitByChar('.', JSONExtractString(value, 'type'))[4] as type,
    JSONExtractString(value, 'collection') as collection,
    JSONExtractString(value, 'source') as source,
    JSONExtractString(value, 'id') as id,
    JSONExtractString(value, 'uid') as uid,
    JSONExtractString(value, 'namespace') as namespace,
    JSONExtractString(value, 'name') as name,
    greatest(1, toUInt64OrZero(JSONExtractString(value, 'epoch'))) as epoch,
    toUInt64OrZero(JSONExtractString(value, 'resourceversion')) as resourceversion,
    parseDateTime64BestEffort(JSONExtractString(value, 'time'), 6, 'UTC') as time,
    JSONExtractBool(value, 'data', 'reset') as reset,
    JSONExtractRaw(value, 'data') as data
from kubebridge.queue
where startsWith(JSONExtractString(value, 'type'), 'io.kubebridge.') and not JSONHas(value, 'deadletterreason');

-- What exists: the last word on each object since its collection's last reset. Without
-- partitions in the table a reset is told from what was before it by time.
create view kubebridge.objects as
select e.cluster as cluster, e.source as source, e.uid as uid,
    argMax(e.namespace, (e.epoch, e.resourceversion, e.time)) as namespace,
    argMax(e.name, (e.epoch, e.resourceversion, e.time)) as name,
    argMax(e.type, (e.epoch, e.resourceversion, e.time)) as last,
    argMax(JSONExtractRaw(e.data, 'object'), (e.epoch, e.resourceversion, e.time)) as object
from kubebridge.events as e
left join (select cluster, collection, max(time) as since from kubebridge.events where reset group by cluster, collection) as r
    on r.cluster = e.cluster and r.collection = e.collection
where e.uid != '' and e.time >= r.since
group by cluster, source, uid
having last != 'deleted';
