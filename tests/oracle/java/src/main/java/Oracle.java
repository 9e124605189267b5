import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogManager;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.OffsetResultHolder;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Kafka's real partition log behind JSON lines: one request object per line in, one reply object per line out, in order.
 *
 * A request names its verb in `do` and its log in `id`. Time stands still unless `time` moves it; work that a broker does in the
 * background (flush after a roll, delayed deletes, epoch file after a truncation, expiry of producers) runs after each request
 * when it is due. The high watermark follows the end after each append, as with a single replica.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final int TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000;
    private static final int PRODUCER_EXPIRATION_MS = 86_400_000;
    private static final int PRODUCER_EXPIRATION_CHECK_MS = 600_000;

    private final Clock clock = new Clock();
    private final Map<String, OpenLog> logs = new HashMap<>();
    private final BrokerTopicStats stats = new BrokerTopicStats();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Whatever Kafka prints must not come between the replies.
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 16);
        Oracle oracle = new Oracle();
        String line;
        while ((line = in.readLine()) != null) {
            out.println(JSON.writeValueAsString(oracle.reply(line)));
            out.flush();
        }
        System.exit(0);
    }

    private ObjectNode reply(String line) {
        ObjectNode reply = JSON.createObjectNode();
        try {
            JsonNode request = JSON.readTree(line);
            JsonNode result = run(request.path("do").asText(), request);
            OpenLog log = logs.get(id(request));
            if (log != null) {
                log.tasks.runDue();
            }
            reply.put("ok", true).set("r", result);
        } catch (Throwable thrown) {
            reply.put("ok", false).set("error", Answers.error(thrown));
            // Work queued before the failure (a roll's flush, for example) still runs, as it would in a broker.
            try {
                logs.values().forEach(log -> log.tasks.runDue());
            } catch (Throwable later) {
                reply.set("background_error", Answers.error(later));
            }
        }
        return reply;
    }

    private static String id(JsonNode request) {
        return request.path("id").asText("0");
    }

    private OpenLog open(String id) {
        OpenLog log = logs.get(id);
        if (log == null) {
            throw new IllegalStateException("no open log with that id");
        }
        return log;
    }

    private UnifiedLog log(JsonNode request) {
        return open(id(request)).log;
    }

    private JsonNode run(String verb, JsonNode request) throws Exception {
        return switch (verb) {
            case "time" -> time(request);
            case "open" -> open(request);
            case "close" -> close(request);
            case "config" -> configure(open(id(request)), request);
            case "encode" -> JSON.createObjectNode().put("data", Batches.toBase64(Batches.encode(request, clock)));
            case "encodeMarker" -> JSON.createObjectNode().put("data", Batches.toBase64(encodeMarker(request)));
            case "append" -> append(open(id(request)), Batches.encode(request, clock), request);
            case "appendRaw" ->
                append(open(id(request)), MemoryRecords.readableRecords(ByteBuffer.wrap(Batches.fromBase64(request.get("data")))), request);
            case "marker" -> marker(open(id(request)), request);
            case "compact" -> Cleaning.pass(open(id(request)), request, clock);
            case "maintain" -> Cleaning.asDue(open(id(request)), request, clock);
            case "message" -> Messages.recode(request);
            case "headers" -> Messages.headers(request);
            case "read" -> read(log(request), request);
            case "batches" -> batches(request);
            case "offsetForTime" -> offsetForTime(log(request), request);
            case "epochEnd" -> epochEnd(log(request), request);
            case "ends" -> Answers.ends(log(request));
            case "state" -> Answers.state(log(request));
            case "epochs" -> Answers.epochs(log(request));
            case "producers" -> Answers.producers(log(request));
            case "index" -> Answers.indexes(log(request));
            default -> change(verb, log(request), request);
        };
    }

    /** Verbs that change a log and answer with its offsets. */
    private JsonNode change(String verb, UnifiedLog log, JsonNode request) throws Exception {
        Boolean done = null;
        Integer deleted = null;
        switch (verb) {
            case "roll" -> log.roll();
            case "truncate" -> done = log.truncateTo(request.get("offset").asLong());
            case "truncateFully" -> log.truncateFullyAndStartAt(request.get("offset").asLong(),
                request.has("logStartOffset") ? Optional.of(request.get("logStartOffset").asLong()) : Optional.empty());
            case "deleteRecords" -> done = log.maybeIncrementLogStartOffset(request.get("offset").asLong(),
                LogStartOffsetIncrementReason.ClientRecordDeletion);
            case "hw" -> log.updateHighWatermark(request.path("offset").asLong(log.logEndOffset()));
            case "flush" -> log.flush(request.path("force").asBoolean(false));
            case "retention" -> deleted = log.deleteOldSegments();
            case "snapshot" -> log.takeProducerSnapshot();
            default -> throw new IllegalArgumentException("unknown verb: " + verb);
        }
        ObjectNode node = Answers.ends(log);
        if (deleted != null) {
            node.put("deleted", deleted);
        }
        return done == null ? node : node.put("done", done);
    }

    private JsonNode time(JsonNode request) {
        if (request.has("set")) {
            clock.ms = request.get("set").asLong();
        }
        clock.ms += request.path("add").asLong(0);
        logs.values().forEach(log -> log.tasks.runDue());
        return JSON.createObjectNode().put("time", clock.ms);
    }

    private static OffsetCheckpointFile checkpoint(File logDir, String name, LogDirFailureChannel failures) throws Exception {
        return new OffsetCheckpointFile(new File(logDir, name), failures);
    }

    private static LogConfig config(JsonNode request) {
        Properties settings = new Properties();
        request.path("config").properties().forEach(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        return new LogConfig(settings);
    }

    private static JsonNode configure(OpenLog open, JsonNode request) {
        open.config = config(request);
        open.log.updateConfig(open.config);
        return Answers.ends(open.log);
    }

    /** Opens as a broker's start does; with `useCheckpoints` it takes clean marker, recovery point and start from the log dir. */
    private JsonNode open(JsonNode request) throws Exception {
        String id = id(request);
        if (logs.containsKey(id)) {
            throw new IllegalStateException("already open; close it first");
        }
        OpenLog open = new OpenLog();
        open.opened = request;
        open.directory = new File(request.get("dir").asText()).getAbsoluteFile();
        open.config = config(request);
        open.tasks = new Tasks(clock);
        open.failures = new LogDirFailureChannel(10);
        boolean clean = request.path("clean").asBoolean(false);
        long start = request.path("logStartOffset").asLong(0);
        long recoveryPoint = request.path("recoveryPoint").asLong(0);
        if (request.path("useCheckpoints").asBoolean(false)) {
            File logDir = open.directory.getParentFile();
            Files.createDirectories(logDir.toPath());
            CleanShutdownFileHandler marker = new CleanShutdownFileHandler(logDir.getPath());
            clean = marker.exists();
            if (clean) {
                marker.delete();
            }
            TopicPartition partition = UnifiedLog.parseTopicPartitionName(open.directory);
            recoveryPoint = checkpoint(logDir, LogManager.RECOVERY_POINT_CHECKPOINT_FILE, open.failures).read().getOrDefault(partition, 0L);
            start = checkpoint(logDir, LogManager.LOG_START_OFFSET_CHECKPOINT_FILE, open.failures).read().getOrDefault(partition, 0L);
        }
        open.log = UnifiedLog.create(open.directory, open.config, start, recoveryPoint, open.tasks, stats, clock,
            TRANSACTION_TIMEOUT_MS, new ProducerStateManagerConfig(PRODUCER_EXPIRATION_MS, false), PRODUCER_EXPIRATION_CHECK_MS,
            open.failures, clean,
            request.has("topicId") ? Optional.of(Uuid.fromString(request.get("topicId").asText())) : Optional.empty(),
            new ConcurrentHashMap<>(), false, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        logs.put(id, open);
        open.log.updateHighWatermark(open.log.logEndOffset());
        return Answers.ends(open.log).put("clean", clean);
    }

    /** `how` is `clean`, as a broker shuts down, or `drop`: descriptors are closed and nothing is written, as after a kill. */
    private JsonNode close(JsonNode request) throws Exception {
        OpenLog open = open(id(request));
        UnifiedLog log = open.log;
        ObjectNode node = Answers.ends(log);
        if (request.path("how").asText("clean").equals("clean")) {
            open.tasks.runDue();
            log.flush(true);
            log.close();
            if (open.opened.path("useCheckpoints").asBoolean(false)) {
                writeCheckpoints(open);
                new CleanShutdownFileHandler(open.directory.getParentFile().getPath()).write(-1);
            }
        } else {
            log.closeHandlers();
        }
        log.removeLogMetrics();
        node.put("recoveryPoint", log.recoveryPoint());
        logs.remove(id(request));
        return node;
    }

    private static void writeCheckpoints(OpenLog open) throws Exception {
        File logDir = open.directory.getParentFile();
        TopicPartition partition = open.log.topicPartition();
        OffsetCheckpointFile points = checkpoint(logDir, LogManager.RECOVERY_POINT_CHECKPOINT_FILE, open.failures);
        Map<TopicPartition, Long> all = points.read();
        all.put(partition, open.log.recoveryPoint());
        points.write(all);
        OffsetCheckpointFile starts = checkpoint(logDir, LogManager.LOG_START_OFFSET_CHECKPOINT_FILE, open.failures);
        all = starts.read();
        if (open.log.logStartOffset() > open.log.logSegments().iterator().next().baseOffset()) {
            all.put(partition, open.log.logStartOffset());
        } else {
            all.remove(partition);
        }
        starts.write(all);
    }

    private JsonNode append(OpenLog open, MemoryRecords records, JsonNode request) throws Exception {
        int leaderEpoch = request.path("leaderEpoch").asInt(0);
        UnifiedLog log = open.log;
        LogAppendInfo info;
        if (request.path("as").asText("leader").equals("follower")) {
            info = log.appendAsFollower(records, leaderEpoch);
        } else {
            AppendOrigin origin = AppendOrigin.valueOf(request.path("origin").asText("CLIENT"));
            info = log.appendAsLeader(records, leaderEpoch, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
                (short) request.path("tv").asInt(0));
        }
        log.maybeIncrementHighWatermark(log.logEndOffsetMetadata());
        ObjectNode node = JSON.createObjectNode();
        node.put("firstOffset", info.firstOffset()).put("lastOffset", info.lastOffset()).put("maxTimestamp", info.maxTimestamp())
            .put("logAppendTime", info.logAppendTime());
        Answers.ends(log, node);
        return node;
    }

    private MemoryRecords encodeMarker(JsonNode request) {
        return MemoryRecords.withEndTransactionMarker(request.path("baseOffset").asLong(0), request.path("ts").asLong(clock.ms),
            request.path("leaderEpoch").asInt(0), request.get("pid").asLong(), (short) request.path("epoch").asInt(0),
            new EndTransactionMarker(request.path("commit").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT,
                request.path("coordinatorEpoch").asInt(0)));
    }

    private JsonNode marker(OpenLog open, JsonNode request) throws Exception {
        return append(open, encodeMarker(request), ((ObjectNode) request.deepCopy()).put("origin", "COORDINATOR"));
    }

    private static JsonNode read(UnifiedLog log, JsonNode request) throws Exception {
        FetchIsolation isolation = FetchIsolation.valueOf(request.path("isolation").asText("LOG_END"));
        FetchDataInfo fetched = log.read(request.get("offset").asLong(), request.path("max").asInt(Integer.MAX_VALUE), isolation, true);
        ObjectNode node = JSON.createObjectNode();
        node.put("offset", fetched.fetchOffsetMetadata.messageOffset).put("data", Batches.toBase64(Batches.bytes(fetched.records)));
        var aborted = node.putArray("aborted");
        fetched.abortedTransactions.ifPresent(all ->
            all.forEach(entry -> aborted.addArray().add(entry.producerId()).add(entry.firstOffset())));
        return node.put("hw", log.highWatermark()).put("lso", log.lastStableOffset()).put("start", log.logStartOffset());
    }

    private static JsonNode offsetForTime(UnifiedLog log, JsonNode request) {
        OffsetResultHolder held = log.fetchOffsetByTimestamp(request.get("ts").asLong(), Optional.empty());
        ObjectNode node = JSON.createObjectNode().put("found", held.timestampAndOffsetOpt().isPresent());
        held.timestampAndOffsetOpt().ifPresent(found -> node.put("timestamp", found.timestamp).put("offset", found.offset)
            .put("leaderEpoch", found.leaderEpoch.orElse(null)));
        return node;
    }

    private static JsonNode epochEnd(UnifiedLog log, JsonNode request) {
        var end = log.endOffsetForEpoch(request.get("epoch").asInt());
        ObjectNode node = JSON.createObjectNode().put("found", end.isPresent());
        end.ifPresent(found -> node.put("epoch", found.epoch()).put("offset", found.offset()));
        return node;
    }

    private static JsonNode batches(JsonNode request) throws Exception {
        boolean deep = request.path("deep").asBoolean(false);
        if (request.has("data")) {
            return Batches.decode(MemoryRecords.readableRecords(ByteBuffer.wrap(Batches.fromBase64(request.get("data")))), deep);
        }
        FileRecords file = FileRecords.open(new File(request.get("file").asText()), false, true, 0, false);
        try {
            return Batches.decode(file, deep);
        } finally {
            file.closeHandlers();
        }
    }
}
