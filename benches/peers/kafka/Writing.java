import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * The rounds that write, as `writing` of the Rust counterpart explains them: {@code append DIRECTORY SOURCE RECORDS PER_BATCH CODEC
 * [close]}, {@code follow DIRECTORY SOURCE RECORDS [close]}, {@code durable DIRECTORY SOURCE RECORDS 1 [preallocate]} with
 * {@code flush.messages=1}, {@code recover DIRECTORY SEGMENT_BYTES}.
 */
final class Writing {
    private static final int RECORDS = 4096;
    private static final int BATCHES = 16;
    private static final String ONE_SEGMENT = "1073741824";
    private static final String SMALL_SEGMENT = "67108864";
    private static final Map<String, byte[][][]> SOURCES = new HashMap<>();
    private static final Map<String, List<ByteBuffer>> READY = new HashMap<>();

    private Writing() {
    }

    static String append(File directory, String[] request) throws Exception {
        byte[][][] source = records(request[2]);
        byte[][] keys = source[0];
        byte[][] values = source[1];
        long batches = Long.parseLong(request[3]) / Integer.parseInt(request[4]);
        int perBatch = Integer.parseInt(request[4]);
        Compression compression = Compression.of(request[5]).build();
        ByteBuffer buffer = ByteBuffer.allocate(4 << 20);
        UnifiedLog log = newLog(directory);
        double[] seconds = KafkaPeer.clocked(() -> {
            long timestamp = KafkaPeer.FIRST_TIMESTAMP;
            int next = 0;
            for (long left = batches; left > 0; left--) {
                MemoryRecordsBuilder batch = builder(buffer, compression);
                for (int i = 0; i < perBatch; i++) {
                    batch.append(timestamp++, keys[next], values[next]);
                    if (++next == keys.length) {
                        next = 0;
                    }
                }
                log.appendAsLeader(batch.build(), 0);
            }
        });
        return end(log, directory, request.length > 6, seconds);
    }

    static String follow(File directory, String[] request) throws Exception {
        List<ByteBuffer> ready = batches(request[2]);
        long records = Long.parseLong(request[3]);
        UnifiedLog log = newLog(directory);
        double[] seconds = KafkaPeer.clocked(() -> {
            while (log.logEndOffset() < records) {
                for (ByteBuffer batch : ready) {
                    batch.putLong(0, log.logEndOffset());
                    log.appendAsFollower(MemoryRecords.readableRecords(batch), 0);
                }
            }
        });
        return end(log, directory, request.length > 4, seconds);
    }

    static String durable(File directory, String[] request) throws Exception {
        byte[][][] source = records(request[2]);
        long[] nanos = new long[Integer.parseInt(request[3])];
        boolean preallocate = request.length > 5;
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        Utils.delete(directory);
        UnifiedLog log = KafkaPeer.open(directory, preallocate ? SMALL_SEGMENT : ONE_SEGMENT, true, 0,
            Map.of(TopicConfig.FLUSH_MESSAGES_INTERVAL_CONFIG, "1", TopicConfig.PREALLOCATE_CONFIG, Boolean.toString(preallocate)));
        double[] seconds = KafkaPeer.clocked(() -> {
            for (int i = 0; i < nanos.length; i++) {
                long start = System.nanoTime();
                MemoryRecordsBuilder batch = builder(buffer, Compression.NONE);
                int next = i % source[0].length;
                batch.append(KafkaPeer.FIRST_TIMESTAMP + i, source[0][next], source[1][next]);
                log.appendAsLeader(batch.build(), 0);
                nanos[i] = System.nanoTime() - start;
            }
        });
        return end(log, directory, true, seconds) + KafkaPeer.percentiles(nanos);
    }

    /** A batch as a producer builds it, in a buffer that is used again. */
    static MemoryRecordsBuilder builder(ByteBuffer buffer, Compression compression) {
        buffer.clear();
        return MemoryRecords.builder(buffer, RecordBatch.CURRENT_MAGIC_VALUE, compression, TimestampType.CREATE_TIME, 0L,
            RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false,
            RecordBatch.NO_PARTITION_LEADER_EPOCH);
    }

    /** Closing is not measured. */
    static String recover(File directory, String[] request) throws Exception {
        UnifiedLog[] log = new UnifiedLog[1];
        double[] seconds = KafkaPeer.clocked(() -> log[0] = KafkaPeer.open(directory, request[2], false, 0, Map.of()));
        String line = KafkaPeer.answer(seconds, log[0].numberOfSegments(), log[0].logEndOffset());
        log[0].close();
        return line;
    }

    private static UnifiedLog newLog(File directory) throws IOException {
        Utils.delete(directory);
        return KafkaPeer.open(directory, ONE_SEGMENT);
    }

    /** Offset behind the log, and a checksum over its bytes. Closing flushes; dropping the handles does not. */
    private static String end(UnifiedLog log, File directory, boolean clean, double[] seconds) throws IOException {
        long end = log.logEndOffset();
        if (clean) {
            log.close();
        } else {
            log.closeHandlers();
        }
        return KafkaPeer.answer(seconds, end, checksum(directory));
    }

    /** Over the bytes of all `.log` files. */
    static long checksum(File directory) throws IOException {
        File[] files = directory.listFiles((dir, name) -> name.endsWith(".log"));
        Arrays.sort(files);
        long sum = 0;
        for (File file : files) {
            byte[] bytes = Files.readAllBytes(file.toPath());
            CRC32C crc = new CRC32C();
            crc.update(bytes, 0, bytes.length);
            sum = sum * 31 + crc.getValue() + ((long) bytes.length << 32);
        }
        return sum;
    }

    private static List<ByteBuffer> batches(String source) throws IOException {
        List<ByteBuffer> ready = READY.get(source);
        if (ready == null) {
            ready = new ArrayList<>();
            for (MutableRecordBatch batch : readable(source).batches()) {
                if (ready.size() == BATCHES) {
                    break;
                }
                ByteBuffer copy = ByteBuffer.allocate(batch.sizeInBytes());
                batch.writeTo(copy);
                ready.add(copy.flip());
            }
            READY.put(source, ready);
        }
        return ready;
    }

    static byte[][][] records(String source) throws IOException {
        byte[][][] found = SOURCES.get(source);
        if (found == null) {
            List<byte[]> keys = new ArrayList<>();
            List<byte[]> values = new ArrayList<>();
            for (Record record : readable(source).records()) {
                if (keys.size() == RECORDS) {
                    break;
                }
                keys.add(Utils.toArray(record.key()));
                values.add(Utils.toArray(record.value()));
            }
            found = new byte[][][] {keys.toArray(new byte[0][]), values.toArray(new byte[0][])};
            SOURCES.put(source, found);
        }
        return found;
    }

    /** The front of a log's first segment: more than is asked for. */
    private static MemoryRecords readable(String source) throws IOException {
        File segment = new File(source, "00000000000000000000.log");
        try (java.io.FileInputStream file = new java.io.FileInputStream(segment)) {
            return MemoryRecords.readableRecords(ByteBuffer.wrap(file.readNBytes(24 << 20)));
        }
    }
}
