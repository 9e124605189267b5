import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;

/** Kafka's Java client, of whatever version is on the class path; ../programs/common.py says what comes in and goes out. */
public final class ClientProgram {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int READING_SECONDS = 40;
    private static final String BYTES = "org.apache.kafka.common.serialization.ByteArray";

    private interface Verb {
        JsonNode apply(String bootstrap, JsonNode task) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Verb> verbs = new HashMap<>();
        verbs.put("topics", ClientProgram::topics);
        verbs.put("read", ClientProgram::read);
        verbs.put("seek", ClientProgram::seek);
        verbs.put("times", ClientProgram::times);
        verbs.put("ends", ClientProgram::ends);
        verbs.put("committed", ClientProgram::committed);
        verbs.put("group", ClientProgram::group);
        verbs.put("crowd", ClientProgram::crowd);
        verbs.put("subscribe", ClientProgram::subscribe);
        verbs.put("until_error", ClientProgram::untilError);
        verbs.put("produce", ClientProgram::produce);
        JsonNode asked = JSON.readTree(System.in);
        for (JsonNode task : asked.get("tasks")) {
            ObjectNode said = JSON.createObjectNode();
            try {
                String bootstrap = (task.has("bootstrap") ? task : asked).get("bootstrap").asText();
                said.set("answer", verbs.get(task.get("verb").asText()).apply(bootstrap, task));
            } catch (Throwable error) {
                StringWriter text = new StringWriter();
                error.printStackTrace(new PrintWriter(text));
                said.put("error", text.toString());
            }
            System.out.println(JSON.writeValueAsString(said));
        }
        System.out.flush();
        // Threads of a client that failed do not keep the program.
        Runtime.getRuntime().halt(0);
    }

    private static Properties properties(String bootstrap, JsonNode task, String... more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.deserializer", BYTES + "Deserializer");
        properties.put("value.deserializer", BYTES + "Deserializer");
        properties.put("key.serializer", BYTES + "Serializer");
        properties.put("value.serializer", BYTES + "Serializer");
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.wait.ms", "100");
        properties.put("default.api.timeout.ms", "20000");
        properties.put("request.timeout.ms", "15000");
        for (int i = 0; i < more.length; i += 2) {
            properties.put(more[i], more[i + 1]);
        }
        try {
            secure(properties, task.path("security"));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return properties;
    }

    private static void secure(Properties properties, JsonNode security) throws IOException {
        if (security.has("protocol")) {
            properties.put("security.protocol", security.get("protocol").asText());
        }
        if (security.has("ca")) {
            properties.put("ssl.truststore.type", "PEM");
            properties.put("ssl.truststore.location", security.get("ca").asText());
        }
        if (security.has("certificate")) {
            properties.put("ssl.keystore.type", "PEM");
            properties.put("ssl.keystore.certificate.chain", Files.readString(Path.of(security.get("certificate").asText())));
            properties.put("ssl.keystore.key", Files.readString(Path.of(security.get("key").asText())));
        }
        if (security.has("mechanism")) {
            String mechanism = security.get("mechanism").asText();
            String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
            properties.put("sasl.mechanism", mechanism);
            properties.put("sasl.jaas.config", "org.apache.kafka.common.security." + module + " required username=\""
                    + security.get("user").asText() + "\" password=\"" + security.get("password").asText() + "\";");
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, JsonNode task, String... more) {
        return new KafkaConsumer<>(properties(bootstrap, task, more));
    }

    private static TopicPartition place(JsonNode pair) {
        return new TopicPartition(pair.get(0).asText(), pair.get(1).asInt());
    }

    private static List<TopicPartition> places(JsonNode task) {
        List<TopicPartition> found = new ArrayList<>();
        task.get("places").forEach(pair -> found.add(place(pair)));
        return found;
    }

    private static String encoded(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    private static ArrayNode row(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode row = JSON.createArrayNode();
        row.add(record.offset()).add(record.timestamp()).add(record.timestampType().id);
        row.add(encoded(record.key())).add(encoded(record.value()));
        ArrayNode headers = row.addArray();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(encoded(header.value()));
        }
        return row.add(record.leaderEpoch().orElse(-1));
    }

    private static JsonNode topics(String bootstrap, JsonNode task) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        try (Admin admin = Admin.create(properties(bootstrap, task))) {
            Set<String> names = admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get(20, TimeUnit.SECONDS);
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task)) {
                for (String name : names) {
                    found.put(name, consumer.partitionsFor(name).size());
                }
            }
        }
        return found;
    }

    private static JsonNode read(String bootstrap, JsonNode task) {
        Map<TopicPartition, ArrayNode> rows = new LinkedHashMap<>();
        List<TopicPartition> wanted = places(task);
        wanted.forEach(place -> rows.put(place, JSON.createArrayNode()));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task, "isolation.level", task.get("isolation").asText())) {
            consumer.assign(wanted);
            consumer.seekToBeginning(wanted);
            Map<TopicPartition, Long> ends = consumer.endOffsets(wanted);
            long limit = System.currentTimeMillis() + READING_SECONDS * 1000L;
            while (wanted.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                if (System.currentTimeMillis() > limit) {
                    Map<TopicPartition, Long> positions = new HashMap<>();
                    wanted.forEach(place -> positions.put(place, consumer.position(place)));
                    throw new IllegalStateException("at " + positions + " of " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    rows.get(new TopicPartition(record.topic(), record.partition())).add(row(record));
                }
            }
        }
        ObjectNode found = JSON.createObjectNode();
        rows.forEach((place, seen) -> found.set(place.toString(), seen));
        return found;
    }

    private static JsonNode seek(String bootstrap, JsonNode task) {
        TopicPartition place = place(task.get("place"));
        int count = task.get("count").asInt();
        ArrayNode found = JSON.createArrayNode();
        String reset = task.path("reset").asText("none");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task, "max.poll.records", "" + count, "auto.offset.reset", reset)) {
            consumer.assign(List.of(place));
            for (JsonNode offset : task.get("offsets")) {
                if (task.has("epoch")) {
                    consumer.seek(place, new OffsetAndMetadata(offset.asLong(), java.util.Optional.of(task.get("epoch").asInt()), ""));
                } else {
                    consumer.seek(place, offset.asLong());
                }
                ArrayNode seen = found.addArray();
                long limit = System.currentTimeMillis() + 20_000;
                while (seen.size() < count && System.currentTimeMillis() < limit) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                        if (seen.size() < count) {
                            seen.add(record.offset());
                        }
                    }
                }
            }
        }
        return found;
    }

    private static JsonNode times(String bootstrap, JsonNode task) {
        ArrayNode found = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task, "isolation.level", task.get("isolation").asText())) {
            for (JsonNode query : task.get("queries")) {
                TopicPartition place = place(query);
                OffsetAndTimestamp answer = consumer.offsetsForTimes(Map.of(place, query.get(2).asLong())).get(place);
                if (answer == null) {
                    found.addNull();
                } else {
                    found.addArray().add(answer.offset()).add(answer.timestamp());
                }
            }
        }
        return found;
    }

    private static JsonNode ends(String bootstrap, JsonNode task) {
        ObjectNode found = JSON.createObjectNode();
        List<TopicPartition> wanted = places(task);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task, "isolation.level", task.get("isolation").asText())) {
            Map<TopicPartition, Long> last = consumer.endOffsets(wanted);
            consumer.beginningOffsets(wanted).forEach((place, offset) -> found.putArray(place.toString()).add(offset).add(last.get(place)));
        }
        return found;
    }

    private static JsonNode committed(String bootstrap, JsonNode task) {
        ObjectNode found = JSON.createObjectNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task, "group.id", task.get("group").asText())) {
            Map<TopicPartition, OffsetAndMetadata> offsets = consumer.committed(new HashSet<>(places(task)));
            offsets.forEach((place, offset) -> found.put(place.toString(), offset == null ? null : offset.offset()));
        }
        return found;
    }

    /** One consumer of a group in a thread of its own. */
    private static final class Member implements AutoCloseable {
        volatile List<TopicPartition> assigned = List.of();
        volatile Throwable failed;
        final Map<TopicPartition, TreeSet<Long>> read = new HashMap<>();
        private volatile Map<TopicPartition, OffsetAndMetadata> committing;
        private volatile CountDownLatch committed;
        private volatile boolean isEnded;
        private final Thread thread;

        Member(String bootstrap, JsonNode task) {
            thread = new Thread(() -> run(bootstrap, task));
            thread.setDaemon(true);
            thread.start();
        }

        private void run(String bootstrap, JsonNode task) {
            try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task, "group.id", task.get("group").asText(), "auto.offset.reset",
                    "earliest", "max.poll.records", "50", "session.timeout.ms", "8000", "heartbeat.interval.ms", "300")) {
                consumer.subscribe(List.of(task.get("topic").asText()));
                while (!isEnded) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        synchronized (read) {
                            read.computeIfAbsent(new TopicPartition(record.topic(), record.partition()), any -> new TreeSet<>())
                                    .add(record.offset());
                        }
                    }
                    assigned = sorted(consumer.assignment());
                    if (committing != null && commits(consumer)) {
                        committing = null;
                        committed.countDown();
                    }
                }
            } catch (Throwable error) {
                failed = error;
            }
        }

        /** Whether it is done. In a rebalance, which may begin at any moment while members come, it says to poll and to try again. */
        private boolean commits(KafkaConsumer<byte[], byte[]> consumer) {
            try {
                consumer.commitSync(committing);
                return true;
            } catch (RebalanceInProgressException error) {
                return false;
            }
        }

        Set<Long> seen(TopicPartition place) {
            synchronized (read) {
                return new TreeSet<>(read.getOrDefault(place, new TreeSet<>()));
            }
        }

        void commit(Map<TopicPartition, OffsetAndMetadata> offsets) throws Exception {
            committed = new CountDownLatch(1);
            committing = offsets;
            await(() -> committed.getCount() == 0, "a commit", this);
        }

        @Override
        public void close() throws Exception {
            isEnded = true;
            thread.join(READING_SECONDS * 1000L);
            if (failed != null || thread.isAlive()) {
                throw new IllegalStateException("a member did not close", failed);
            }
        }
    }

    private static List<TopicPartition> sorted(Iterable<TopicPartition> places) {
        List<TopicPartition> all = new ArrayList<>();
        places.forEach(all::add);
        all.sort((one, other) -> one.toString().compareTo(other.toString()));
        return all;
    }

    private static void await(BooleanSupplier done, String what, Member... members) throws Exception {
        long limit = System.currentTimeMillis() + READING_SECONDS * 1000L;
        while (!done.getAsBoolean()) {
            StringBuilder state = new StringBuilder();
            for (Member member : members) {
                if (member.failed != null) {
                    throw new IllegalStateException(what, member.failed);
                }
                state.append(member.assigned).append(' ');
            }
            if (System.currentTimeMillis() > limit) {
                throw new IllegalStateException(what + " took too long: " + state);
            }
            Thread.sleep(20);
        }
    }

    private static JsonNode named(List<TopicPartition> places) {
        ArrayNode found = JSON.createArrayNode();
        places.forEach(place -> found.addArray().add(place.topic()).add(place.partition()));
        return found;
    }

    private static List<TopicPartition> joined(Member... members) {
        List<TopicPartition> all = new ArrayList<>();
        for (Member member : members) {
            all.addAll(member.assigned);
        }
        return sorted(all);
    }

    private static JsonNode group(String bootstrap, JsonNode task) throws Exception {
        List<TopicPartition> expected = sorted(places(task));
        ObjectNode story = JSON.createObjectNode();
        Map<TopicPartition, Set<Long>> seen = new TreeMap<>((one, other) -> one.toString().compareTo(other.toString()));
        Map<TopicPartition, OffsetAndMetadata> where = new HashMap<>();
        try (Member first = new Member(bootstrap, task)) {
            await(() -> first.assigned.equals(expected), "the first assignment", first);
            story.set("alone", named(first.assigned));
            try (Member second = new Member(bootstrap, task)) {
                await(() -> !first.assigned.isEmpty() && !second.assigned.isEmpty() && joined(first, second).equals(expected),
                        "the rebalance", first, second);
                ArrayNode shared = story.putArray("shared");
                shared.add(named(first.assigned));
                shared.add(named(second.assigned));
                await(() -> {
                    int total = 0;
                    for (TopicPartition place : expected) {
                        Set<Long> both = new TreeSet<>(first.seen(place));
                        both.addAll(second.seen(place));
                        seen.put(place, both);
                        total += both.size();
                    }
                    return total >= task.get("records").asInt();
                }, "reading", first, second);
                for (TopicPartition place : expected) {
                    where.put(place, new OffsetAndMetadata(seen.get(place).iterator().next() + task.get("behind").asLong()));
                }
                for (Member member : List.of(first, second)) {
                    Map<TopicPartition, OffsetAndMetadata> own = new HashMap<>(where);
                    own.keySet().retainAll(member.assigned);
                    member.commit(own);
                }
            }
            await(() -> first.assigned.equals(expected), "the rebalance after a member left", first);
        }
        Member third = new Member(bootstrap, task);
        await(() -> expected.stream().allMatch(place -> third.seen(place).size() >= seen.get(place).stream()
                .filter(offset -> offset >= where.get(place).offset()).count()), "continuing", third);
        third.close();
        ObjectNode read = story.putObject("read");
        ObjectNode committed = story.putObject("committed");
        ObjectNode continued = story.putObject("continued");
        for (TopicPartition place : expected) {
            seen.get(place).forEach(read.putArray(place.toString())::add);
            committed.put(place.toString(), where.get(place).offset());
            third.seen(place).forEach(continued.putArray(place.toString())::add);
        }
        return story;
    }

    /** Members that come together, leave and come again while others do: rebalances that run into each other. */
    private static JsonNode crowd(String bootstrap, JsonNode task) throws Exception {
        List<TopicPartition> expected = sorted(places(task));
        Member[] crowd = new Member[task.get("members").asInt()];
        for (int i = 0; i < crowd.length; i++) {
            crowd[i] = new Member(bootstrap, task);
        }
        await(() -> joined(crowd).equals(expected), "the first assignment of a crowd", crowd);
        for (int round = 0; round < task.get("rounds").asInt(); round++) {
            // As many leave as come, at the same time; the next round has others leave.
            List<Member> leaving = new ArrayList<>();
            for (int i = 0; i < crowd.length / 2; i++) {
                int place = (round * (crowd.length / 2) + i) % crowd.length;
                leaving.add(crowd[place]);
                crowd[place] = new Member(bootstrap, task);
            }
            for (Member member : leaving) {
                member.close();
            }
            await(() -> joined(crowd).equals(expected), "a rebalance of a crowd", crowd);
        }
        // Without those that came last the others cover all too, and may not commit once these join.
        await(() -> joined(crowd).equals(expected) && Arrays.stream(crowd).noneMatch(member -> member.assigned.isEmpty()),
                "an assignment of all that came", crowd);
        ObjectNode offsets = JSON.createObjectNode();
        expected.forEach(place -> offsets.put(place.toString(), 7 + place.partition()));
        for (Member member : crowd) {
            Map<TopicPartition, OffsetAndMetadata> own = new HashMap<>();
            member.assigned.forEach(place -> own.put(place, new OffsetAndMetadata(7 + place.partition())));
            member.commit(own);
        }
        for (Member member : crowd) {
            member.close();
        }
        return offsets;
    }

    private static JsonNode subscribe(String bootstrap, JsonNode task) throws Exception {
        ObjectNode found = JSON.createObjectNode();
        Member member = new Member(bootstrap, task);
        await(() -> {
            synchronized (member.read) {
                return member.read.values().stream().mapToInt(Set::size).sum() >= task.get("records").asInt();
            }
        }, "reading in a group", member);
        Thread.sleep(500);
        member.close();
        member.read.forEach((place, offsets) -> offsets.forEach(found.putArray(place.toString())::add));
        return found;
    }

    private static JsonNode untilError(String bootstrap, JsonNode task) {
        TopicPartition place = place(task.get("place"));
        ObjectNode found = JSON.createObjectNode();
        ArrayNode seen = found.putArray("seen");
        String reset = task.get("reset").asText().equals("error") ? "none" : task.get("reset").asText();
        found.putNull("error");
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, task, "auto.offset.reset", reset)) {
            consumer.assign(List.of(place));
            consumer.seek(place, task.get("offset").asLong());
            long limit = System.currentTimeMillis() + task.get("seconds").asLong() * 1000;
            while (System.currentTimeMillis() < limit && seen.size() < task.get("count").asInt()) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> seen.add(record.offset()));
            }
        } catch (Exception error) {
            found.put("error", error.getClass().getSimpleName());
        }
        return found;
    }

    private static JsonNode produce(String bootstrap, JsonNode task) {
        ObjectNode found = JSON.createObjectNode();
        for (String name : List.of("plain", "idempotent")) {
            String idempotent = "" + name.equals("idempotent");
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties(bootstrap, task, "enable.idempotence", idempotent,
                    "acks", "all", "delivery.timeout.ms", "16000", "max.block.ms", "15000", "linger.ms", "0"))) {
                producer.send(new ProducerRecord<>(task.get("topic").asText(), new byte[1])).get(20, TimeUnit.SECONDS);
                found.putNull(name);
            } catch (Exception error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                found.put(name, cause.getClass().getSimpleName());
            }
        }
        return found;
    }
}
