import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * java -cp '/opt/kafka/libs/*' KafkaMirror.java BROKER '^k8s\.': prints changes and, when interrupted, a copy of clusters'
 * objects, kept by the rules of docs/events.md. The numbers are those of the steps there. It reads the format structured,
 * from topics that are not compacted.
 */
public class KafkaMirror {
    public static void main(String[] args) throws Exception {
        var config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", "kubebridge-mirror"); // nothing is committed: a copy in memory begins at the beginning
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "none"); // to skip what is lost would falsify the copy
        config.put("isolation.level", "read_committed"); // others see aborted transactions
        config.put("metadata.max.age.ms", "5000"); // how soon a new topic is noticed
        var bytes = new ByteArrayDeserializer();
        var copy = new Copy();
        var partitions = new HashMap<String, Integer>(); // by topic: the bridge does not change their number
        try (var consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            var main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                consumer.wakeup();
                join(main);
            }));
            consumer.subscribe(Pattern.compile(args[1]), new FromStart(consumer));
            while (true) {
                for (var message : consumer.poll(Duration.ofSeconds(1))) {
                    int n = partitions.computeIfAbsent(message.topic(), topic -> consumer.partitionsFor(topic).size());
                    JsonNode event = copy.apply(message, n);
                    if (event != null) {
                        System.out.println(String.join(" ", kind(event), text(event, "collection"), text(event, "name"), text(event, "resourceversion")));
                    }
                }
            }
        } catch (WakeupException stopped) {
            copy.lines().forEach(System.out::println);
        } catch (InvalidOffsetException lost) {
            System.err.println("the topic does not have the next record any more: begin again with an empty copy");
            Runtime.getRuntime().halt(1);
        }
    }

    private static void join(Thread main) {
        try {
            main.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private record FromStart(KafkaConsumer<byte[], byte[]> consumer) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            consumer.seekToBeginning(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }

    static String text(JsonNode event, String attribute) {
        return event.path(attribute).asText("");
    }

    static long number(JsonNode event, String attribute) {
        return event.path(attribute).asLong(0); // an attribute is text
    }

    static String kind(JsonNode event) {
        return text(event, "type").split("\\.")[3];
    }

    /** Epoch and resourceVersion. */
    record Version(long epoch, String resource) {
        static Version of(JsonNode event) {
            return new Version(event.has("epoch") ? number(event, "epoch") : 1, text(event, "resourceversion"));
        }

        boolean newer(Version other) {
            return epoch > other.epoch || epoch == other.epoch && Integer.valueOf(1).equals(compare(resource, other.resource));
        }

        /** -1, 0 or 1; null if the versions are not both numbers and differ. */
        static Integer compare(String a, String b) {
            if (a.equals(b)) {
                return 0;
            }
            return a.matches("[0-9]+") && b.matches("[0-9]+") ? (Integer) new BigInteger(a).compareTo(new BigInteger(b)) : null;
        }
    }

    enum Phase {
        UNREAD, PARTIAL, RESYNCING, OPEN, IN_STEP;

        Phase after(String what) { // 7
            return switch (this) {
                case UNREAD -> what.equals("reset") ? OPEN : what.equals("resync") ? RESYNCING : PARTIAL;
                case PARTIAL -> what.equals("resync") ? RESYNCING : this;
                case RESYNCING -> what.equals("gap") ? PARTIAL : what.equals("synced") ? IN_STEP : this;
                case OPEN -> what.equals("synced") ? IN_STEP : this;
                case IN_STEP -> what.equals("gap") ? OPEN : this;
            };
        }
    }

    static class Part {
        Phase phase = Phase.UNREAD;
        long run;
        long syncedRun, syncedNumber; // of the last synced
        Version synced;
        long edit;
    }

    record Last(long run, String version, boolean deleted) {}

    static class Held {
        final String source;
        final long incarnation;
        boolean closed;
        long run;
        final Map<String, Last> last = new HashMap<>(); // by subject
        final Map<String, JsonNode> objects = new HashMap<>(); // by subject: the event
        final Map<TopicPartition, Part> parts = new HashMap<>();
        final Map<String, Integer> topics = new HashMap<>(); // how many partitions each has

        Held(String source, long incarnation) {
            this.source = source;
            this.incarnation = incarnation;
        }

        boolean inStep() {
            int all = topics.values().stream().mapToInt(Integer::intValue).sum();
            return parts.size() == all
                && parts.values().stream().allMatch(p -> p.phase == Phase.IN_STEP && p.run == run)
                && parts.values().stream().map(p -> p.edit).distinct().count() == 1;
        }
    }

    record Key(String cluster, String collection) {}

    record Plan(long birth, long number, String digest) {}

    /** Messages of one partition must come in order, from its beginning. */
    static class Copy {
        private final ObjectMapper json = new ObjectMapper();
        private final Map<String, Long> births = new HashMap<>(); // by cluster
        private final Map<String, Plan> plans = new HashMap<>(); // by source
        private final Map<Key, Held> collections = new TreeMap<>(Comparator.comparing(Key::cluster).thenComparing(Key::collection));

        /** Takes a message. Returns the event, or null if it changed nothing. */
        JsonNode apply(ConsumerRecord<byte[], byte[]> message, int partitions) throws IOException {
            JsonNode event = decode(message); // 1
            if (event == null) {
                return null;
            }
            follow(event); // 2, 3
            Held c = collection(event); // 4
            if (c == null) {
                return null;
            }
            if (kind(event).equals("attributed")) {
                return attribute(c, event) ? event : null;
            }
            if (kind(event).equals("closed")) { // 6
                c.closed = true;
                c.last.clear();
                c.objects.clear();
                c.parts.clear();
                return event;
            }
            c.topics.put(message.topic(), partitions);
            Part p = c.parts.computeIfAbsent(new TopicPartition(message.topic(), message.partition()), place -> new Part());
            boolean changed = event.has("uid") ? ofObject(c, p, event) : ofCollection(c, p, event);
            return changed ? event : null;
        }

        private JsonNode decode(ConsumerRecord<byte[], byte[]> message) throws IOException {
            JsonNode event;
            if (message.value() == null) {
                var attributes = json.createObjectNode();
                for (var header : message.headers()) {
                    if (header.key().startsWith("ce_")) {
                        attributes.put(header.key().substring(3), new String(header.value(), StandardCharsets.UTF_8));
                    }
                }
                event = attributes;
            } else {
                try {
                    event = json.readTree(message.value());
                } catch (JsonProcessingException notJson) {
                    return null; // somebody else wrote it
                }
            }
            boolean known = text(event, "type").matches("io\\.kubebridge\\.(resource|collection)\\.[^.]+\\.v1");
            if (!known || event.has("deadletterreason")) {
                return null;
            }
            var limit = Instant.now().plus(Duration.ofHours(24));
            boolean ahead = Stream.of("run", "incarnation", "birth", "plan", "edit").anyMatch(name -> number(event, name) > limit.toEpochMilli())
                || Instant.parse(text(event, "time")).isAfter(limit);
            if (ahead) {
                System.err.println("ignored, more than a day ahead of the clock: " + text(event, "id"));
            }
            return ahead ? null : event;
        }

        private void follow(JsonNode event) {
            String cluster = text(event, "cluster");
            long birth = number(event, "birth");
            if (!event.has("birth") || birth < births.getOrDefault(cluster, 0L)) {
                return;
            }
            var plan = new Plan(birth, number(event, "plan"), text(event, "plandigest"));
            plans.merge(text(event, "source"), plan, (old, now) ->
                now.birth > old.birth || now.birth == old.birth && now.number > old.number ? now : old);
            births.put(cluster, birth);
            collections.entrySet().removeIf(e -> e.getKey().cluster.equals(cluster) && e.getValue().incarnation < birth);
        }

        private Held collection(JsonNode event) {
            var key = new Key(text(event, "cluster"), text(event, "collection"));
            long incarnation = number(event, "incarnation");
            if (incarnation < births.getOrDefault(key.cluster, 0L)) {
                return null;
            }
            Held c = collections.get(key);
            if (c == null || incarnation > c.incarnation) {
                c = new Held(text(event, "source"), incarnation);
                collections.put(key, c);
            }
            return incarnation < c.incarnation || c.closed ? null : c;
        }

        /** Notes who made the change that the copy shows. */
        private static boolean attribute(Held c, JsonNode event) {
            JsonNode shown = c.objects.get(text(event, "subject"));
            if (shown == null || !text(shown, "id").equals(text(event.path("data"), "explains"))) {
                return false; // there is a later change
            }
            ((ObjectNode) shown).set("attribution", event.path("data"));
            return true;
        }

        private static boolean ofObject(Held c, Part p, JsonNode event) { // 5
            if (p.phase == Phase.UNREAD) {
                p.phase = Phase.PARTIAL;
            }
            String name = text(event, "subject");
            var now = new Last(number(event, "run"), text(event, "resourceversion"), kind(event).equals("deleted"));
            p.run = Math.max(p.run, now.run);
            c.run = Math.max(c.run, now.run);
            Last last = c.last.get(name);
            if (last != null && now.run <= last.run) {
                Integer order = Version.compare(now.version, last.version);
                boolean later = order == null || order > 0 || order == 0 && now.deleted && !last.deleted;
                if (now.run < last.run || !later) {
                    return false;
                }
            }
            c.last.put(name, now);
            if (now.deleted) {
                c.objects.remove(name);
            } else {
                c.objects.put(name, event);
            }
            return true;
        }

        private static boolean ofCollection(Held c, Part p, JsonNode event) { // 7
            long run = number(event, "run");
            String what = kind(event);
            if (what.equals("gap")) {
                if (run <= p.run) {
                    return false;
                }
                JsonNode data = event.path("data");
                what = data.path("reset").asBoolean() ? "reset" : text(data, "reason").equals("resync") ? "resync" : "gap";
            } else {
                String[] id = text(event, "id").split(":");
                long n = Long.parseLong(id[id.length - 2]);
                if (run < p.run || run < p.syncedRun || run == p.syncedRun && n <= p.syncedNumber) {
                    return false;
                }
                p.syncedRun = run;
                p.syncedNumber = n;
                p.synced = Version.of(event);
                p.edit = number(event, "edit");
            }
            p.phase = p.phase.after(what);
            p.run = run;
            c.run = Math.max(c.run, run);
            return true;
        }

        /** The union (8): events by source and uid. */
        Collection<JsonNode> objects() {
            var shown = new HashMap<List<String>, JsonNode>();
            for (Held c : collections.values()) {
                for (JsonNode event : c.objects.values()) {
                    shown.merge(List.of(text(event, "source"), text(event, "uid")), event,
                        (one, other) -> Version.of(other).newer(Version.of(one)) ? other : one);
                }
            }
            return shown.values();
        }

        /** The version up to which a resource is complete (9), or null. No resourceVersion: a part of it did not exist. */
        Version complete(String source) {
            Version lowest = null;
            var lines = new StringBuilder();
            for (var entry : collections.entrySet()) {
                Held c = entry.getValue();
                if (!c.source.equals(source) || c.closed) {
                    continue;
                }
                if (!c.inStep()) {
                    return null;
                }
                for (Part p : c.parts.values()) {
                    if (lowest == null || !lowest.resource.isEmpty() && (p.synced.resource.isEmpty() || lowest.newer(p.synced))) {
                        lowest = p.synced;
                    }
                }
                lines.append(entry.getKey().collection).append(' ').append(c.parts.values().iterator().next().edit).append('\n');
            }
            return lowest != null && digest(lines.toString()).equals(plans.get(source).digest) ? lowest : null;
        }

        private static String digest(String lines) {
            try {
                byte[] sum = MessageDigest.getInstance("SHA-256").digest(lines.getBytes(StandardCharsets.UTF_8));
                return HexFormat.of().formatHex(sum).substring(0, 16);
            } catch (NoSuchAlgorithmException e) {
                throw new IllegalStateException(e); // every Java has it
            }
        }

        /** The copy for people: a line for each object, and one for each resource that is complete. */
        List<String> lines() {
            var lines = new ArrayList<String>();
            for (JsonNode event : objects()) {
                String resource = text(event, "resource") + (event.has("group") ? "." + text(event, "group") : "");
                JsonNode actor = event.path("data").path("actor");
                JsonNode request = actor.isMissingNode() ? event.path("attribution").path("request") : actor;
                JsonNode user = (request.has("impersonated") ? request.path("impersonated") : request.path("user")).path("name");
                lines.add(String.join(" ", "copy", resource, text(event, "namespace") + "/" + text(event, "name"), text(event, "uid"), text(event, "resourceversion"))
                    + (user.isMissingNode() ? "" : " by " + user));
            }
            lines.sort(null);
            var sources = new TreeSet<String>();
            collections.values().forEach(c -> sources.add(c.source));
            for (String source : sources) {
                Version at = complete(source);
                if (at != null) {
                    lines.add("complete " + source + " " + at.resource);
                }
            }
            return lines;
        }
    }
}
