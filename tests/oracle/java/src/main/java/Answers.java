import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.util.Comparator;

/** What a log says of itself, as JSON. */
final class Answers {
    private Answers() {
    }

    static ObjectNode error(Throwable thrown) {
        ObjectNode node = Oracle.JSON.createObjectNode();
        node.put("class", thrown.getClass().getName());
        node.put("message", thrown.getMessage());
        if (thrown instanceof RecordValidationException validation) {
            node.put("invalid", validation.invalidException().getClass().getName());
        }
        if (thrown.getCause() != null && thrown.getCause() != thrown) {
            node.set("cause", error(thrown.getCause()));
        }
        return node;
    }

    /** The offsets and the active segment. Asks for nothing that Kafka would load for it: no file changes by being asked. */
    static ObjectNode ends(UnifiedLog log) {
        ObjectNode node = Oracle.JSON.createObjectNode();
        ends(log, node);
        return node;
    }

    static void ends(UnifiedLog log, ObjectNode node) {
        node.put("leo", log.logEndOffset()).put("hw", log.highWatermark()).put("lso", log.lastStableOffset())
            .put("start", log.logStartOffset()).put("segments", log.numberOfSegments())
            .put("activeBase", log.activeSegment().baseOffset()).put("activeSize", log.activeSegment().size())
            .put("recoveryPoint", log.recoveryPoint());
    }

    /** `ends`, and the segments, epochs and producers. Loads largest timestamps, which Kafka then writes to time indexes. */
    static ObjectNode state(UnifiedLog log) throws Exception {
        ObjectNode node = ends(log);
        node.put("size", log.size()).put("mapEnd", log.latestProducerStateEndOffset());
        ArrayNode segments = node.putArray("segmentList");
        for (LogSegment segment : log.logSegments()) {
            segments.addObject().put("base", segment.baseOffset()).put("size", segment.size())
                .put("maxTs", segment.maxTimestampSoFar());
        }
        node.set("epochs", epochs(log));
        node.set("producers", producers(log));
        return node;
    }

    static ArrayNode epochs(UnifiedLog log) {
        ArrayNode all = Oracle.JSON.createArrayNode();
        log.leaderEpochCache().epochEntries().forEach(entry -> all.addArray().add(entry.epoch()).add(entry.startOffset()));
        return all;
    }

    static ArrayNode producers(UnifiedLog log) {
        ArrayNode all = Oracle.JSON.createArrayNode();
        log.producerStateManager().activeProducers().values().stream()
            .sorted(Comparator.comparingLong(ProducerStateEntry::producerId)).forEach(entry -> producer(all.addObject(), entry));
        return all;
    }

    private static void producer(ObjectNode node, ProducerStateEntry entry) {
        node.put("pid", entry.producerId()).put("epoch", entry.producerEpoch()).put("coordinatorEpoch", entry.coordinatorEpoch())
            .put("lastTimestamp", entry.lastTimestamp()).put("txnFirst", entry.currentTxnFirstOffset().orElse(-1L));
        ArrayNode batches = node.putArray("batches");
        entry.batchMetadata().forEach(batch -> batches.addArray().add(batch.firstSeq()).add(batch.lastSeq())
            .add(batch.firstOffset()).add(batch.lastOffset()).add(batch.timestamp()));
    }

    /** The entries of each segment's indexes. */
    static ArrayNode indexes(UnifiedLog log) throws Exception {
        ArrayNode all = Oracle.JSON.createArrayNode();
        for (LogSegment segment : log.logSegments()) {
            ObjectNode node = all.addObject().put("base", segment.baseOffset());
            ArrayNode offsets = node.putArray("offset");
            for (int slot = 0; slot < segment.offsetIndex().entries(); slot++) {
                OffsetPosition entry = segment.offsetIndex().entry(slot);
                offsets.addArray().add(entry.offset()).add(entry.position());
            }
            ArrayNode times = node.putArray("time");
            for (int slot = 0; slot < segment.timeIndex().entries(); slot++) {
                TimestampOffset entry = segment.timeIndex().entry(slot);
                times.addArray().add(entry.timestamp()).add(entry.offset());
            }
            ArrayNode aborted = node.putArray("txn");
            segment.txnIndex().allAbortedTxns().forEach(entry -> aborted.addArray().add(entry.producerId())
                .add(entry.firstOffset()).add(entry.lastOffset()).add(entry.lastStableOffset()));
        }
        return all;
    }
}
