import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.record.internal.SimpleRecord;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** Record batches out of requests and into replies, by Kafka's own builder and readers. */
final class Batches {
    private static final int ROOM = 1024;

    private Batches() {
    }

    static byte[] fromBase64(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    static String toBase64(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }

    static String toBase64(MemoryRecords records) {
        return toBase64(bytes(records.buffer()));
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    static byte[] bytes(Records records) throws Exception {
        if (records instanceof FileRecords file) {
            ByteBuffer buffer = ByteBuffer.allocate(file.sizeInBytes());
            file.readInto(buffer, 0);
            return bytes(buffer);
        }
        return bytes(((MemoryRecords) records).buffer());
    }

    /** One batch of magic 2, one wrapper or a run of plain messages of magic 0 and 1, or all of `batches` behind each other. */
    static MemoryRecords encode(JsonNode request, Clock clock) {
        if (request.has("batches")) {
            List<MemoryRecords> parts = new ArrayList<>();
            int total = 0;
            for (JsonNode batch : request.get("batches")) {
                MemoryRecords part = encode(batch, clock);
                parts.add(part);
                total += part.sizeInBytes();
            }
            ByteBuffer all = ByteBuffer.allocate(total);
            parts.forEach(part -> all.put(part.buffer().duplicate()));
            all.flip();
            return MemoryRecords.readableRecords(all);
        }
        byte magic = (byte) request.path("magic").asInt(2);
        long base = request.path("baseOffset").asLong(0);
        TimestampType type = request.path("logAppendTime").asBoolean(false) ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        if (magic == 0) {
            type = TimestampType.NO_TIMESTAMP_TYPE;
        }
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(ROOM), magic, compression(request), type, base,
            clock.ms, request.path("pid").asLong(-1), (short) request.path("epoch").asInt(-1), request.path("seq").asInt(-1),
            request.path("txn").asBoolean(false), false, request.path("batchLeaderEpoch").asInt(-1), Integer.MAX_VALUE);
        long next = base;
        for (JsonNode record : request.get("records")) {
            long offset = record.has("offset") ? record.get("offset").asLong() : next;
            long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : record.path("ts").asLong(clock.ms);
            builder.appendWithOffset(offset,
                new SimpleRecord(timestamp, fromBase64(record.get("key")), fromBase64(record.get("value")), headers(record)));
            next = offset + 1;
        }
        if (request.has("lastOffset")) {
            builder.overrideLastOffset(request.get("lastOffset").asLong());
        }
        return builder.build();
    }

    private static Header[] headers(JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.path("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), fromBase64(header.get(1))));
        }
        return headers.toArray(new Header[0]);
    }

    private static Compression compression(JsonNode request) {
        String codec = request.path("codec").asText("none");
        boolean given = request.has("level");
        int level = request.path("level").asInt();
        return switch (codec) {
            case "none" -> Compression.NONE;
            case "gzip" -> given ? Compression.gzip().level(level).build() : Compression.gzip().build();
            case "lz4" -> given ? Compression.lz4().level(level).build() : Compression.lz4().build();
            case "zstd" -> given ? Compression.zstd().level(level).build() : Compression.zstd().build();
            case "snappy" -> Compression.snappy().build();
            default -> throw new IllegalArgumentException("codec " + codec);
        };
    }

    /** Every batch with its header; with `deep`, its records too. What cannot be read says so in the reply, and ends it. */
    static ArrayNode decode(Records records, boolean deep) {
        ArrayNode out = Oracle.JSON.createArrayNode();
        try {
            decode(records, deep, out);
        } catch (CorruptRecordException e) {
            out.addObject().put("end", true);
        }
        return out;
    }

    private static void decode(Records records, boolean deep, ArrayNode out) {
        for (RecordBatch batch : records.batches()) {
            ObjectNode node = out.addObject();
            node.put("base", batch.baseOffset()).put("last", batch.lastOffset()).put("size", batch.sizeInBytes())
                .put("magic", batch.magic()).put("crc", batch.checksum()).put("valid", batch.isValid())
                .put("codec", batch.compressionType().name).put("tsType", batch.timestampType().name)
                .put("maxTs", batch.maxTimestamp()).put("leaderEpoch", batch.partitionLeaderEpoch())
                .put("pid", batch.producerId()).put("epoch", batch.producerEpoch()).put("seq", batch.baseSequence())
                .put("txn", batch.isTransactional()).put("control", batch.isControlBatch());
            if (batch.countOrNull() != null) {
                node.put("count", batch.countOrNull());
            }
            if (deep) {
                ArrayNode all = node.putArray("records");
                try {
                    for (Record record : batch) {
                        describe(record, all.addObject());
                    }
                } catch (RuntimeException | OutOfMemoryError e) {
                    node.put("unreadable", e.getClass().getSimpleName());
                }
            }
        }
    }

    private static void describe(Record record, ObjectNode node) {
        node.put("offset", record.offset()).put("ts", record.timestamp());
        node.put("key", record.hasKey() ? toBase64(bytes(record.key())) : null);
        node.put("value", record.hasValue() ? toBase64(bytes(record.value())) : null);
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value() == null ? null : toBase64(header.value()));
        }
    }
}
