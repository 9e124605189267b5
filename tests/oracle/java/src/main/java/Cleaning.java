import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.PreCleanStats;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/** Passes of Kafka's cleaner, with the buffers of a broker and an offset map of the size that is asked for. */
final class Cleaning {
    private static final int DEFAULT_MAP_BYTES = 24 * 100_000;
    private static final int IO_BUFFER_BYTES = 262_144;
    private static final int LARGEST_BATCH_BYTES = 1_048_588;
    private static final double LOAD_FACTOR = 0.9;

    private Cleaning() {
    }

    private static Map.Entry<Long, ?> clean(OpenLog open, LogToClean cleanable, JsonNode request, Clock clock) throws Exception {
        Throttler unlimited = new Throttler(Double.MAX_VALUE, 1000, "cleaner-io", "bytes", clock);
        SkimpyOffsetMap map = new SkimpyOffsetMap(request.path("mapBytes").asInt(DEFAULT_MAP_BYTES));
        return new Cleaner(0, map, IO_BUFFER_BYTES, LARGEST_BATCH_BYTES, LOAD_FACTOR, unlimited, clock, partition -> { })
            .clean(cleanable);
    }

    /** One pass from `firstDirty` on, whatever the settings say. */
    static ObjectNode pass(OpenLog open, JsonNode request, Clock clock) throws Exception {
        UnifiedLog log = open.log;
        long firstDirty = request.path("firstDirty").asLong(log.logStartOffset());
        long end = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        LogToClean cleanable = new LogToClean(log, firstDirty, Math.max(end, firstDirty), true);
        ObjectNode node = Answers.ends(log);
        node.put("firstUncleanable", cleanable.firstUncleanableOffset()).put("ratio", cleanable.cleanableRatio());
        if (firstDirty >= cleanable.firstUncleanableOffset()) {
            return node.put("end", firstDirty);
        }
        return node.put("end", clean(open, cleanable, request, clock).getKey());
    }

    /** What a cleaner thread does with this log until there is nothing more to do, then the retention that it runs. */
    static ObjectNode asDue(OpenLog open, JsonNode request, Clock clock) throws Exception {
        UnifiedLog log = open.log;
        TopicPartition partition = log.topicPartition();
        ConcurrentHashMap<TopicPartition, UnifiedLog> logs = new ConcurrentHashMap<>(Map.of(partition, log));
        LogCleanerManager manager = new LogCleanerManager(List.of(log.parentDirFile()), logs, open.failures);
        ObjectNode node = empty();
        var passes = node.putArray("passes");
        try {
            Optional<LogToClean> due;
            while ((due = manager.grabFilthiestCompactedLog(clock, new PreCleanStats())).isPresent()) {
                LogToClean cleanable = due.get();
                long end = clean(open, cleanable, request, clock).getKey();
                manager.doneCleaning(partition, log.parentDirFile(), end);
                passes.addArray().add(cleanable.firstDirtyOffset()).add(end).add(cleanable.firstUncleanableOffset())
                    .add(cleanable.cleanableRatio());
            }
        } finally {
            manager.removeMetrics();
        }
        return node.put("deleted", log.deleteOldSegments());
    }

    private static ObjectNode empty() {
        return Oracle.JSON.createObjectNode();
    }
}
