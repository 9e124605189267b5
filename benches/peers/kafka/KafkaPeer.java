import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.OffsetResultHolder;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Kafka's own storage layer in one JVM, without a network: makes the benches' partition directories and is the peer to measure
 * against.
 *
 * <p>{@code serve} answers one line of standard input with one line: {@code WORK DIRECTORY [REPEATS | QUERIES SEED]} runs one
 * round and prints {@code cpu= wall= count= sum= p50= p99=} (seconds; the last two in microseconds, look-ups only). The JVM so stays warm
 * while another program runs its own rounds in between.
 */
public final class KafkaPeer {
    static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true, "bench-");
    static final BrokerTopicStats STATS = new BrokerTopicStats();
    private static final BufferSupplier BUFFERS = BufferSupplier.create();
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
    private static final Map<String, UnifiedLog> OPEN = new HashMap<>();
    private static final ByteBuffer READ = ByteBuffer.allocate(4 << 20);

    private static long count;
    private static long sum;

    private KafkaPeer() {
    }

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        switch (args[0]) {
            case "make-log" -> makeLog(new File(args[1]), args[2], Integer.parseInt(args[3]), Long.parseLong(args[4]),
                Integer.parseInt(args[5]), args[6]);
            case "make-compactable" -> Upkeep.makeCompactable(new File(args[1]), args[2], args[3].equals("mixed"), Long.parseLong(args[4]));
            case "make-many" -> Upkeep.create(new File(args[1]), args[2], Integer.parseInt(args[3]));
            case "make-tiny" -> makeTiny(new File(args[1]), Integer.parseInt(args[2]));
            case "produce" -> produce(args[1], args[2], args[3], Integer.parseInt(args[4]), Long.parseLong(args[5]));
            case "serve" -> serve();
            default -> throw new IllegalArgumentException(args[0]);
        }
        SCHEDULER.shutdown();
        System.exit(0);
    }

    // ---- making data ----

    /** One partition directory: {@code mib} MiB of values in batches of about {@code batchBytes}, as a leader appends them. */
    private static void makeLog(File directory, String codec, int valueBytes, long mib, int batchBytes, String segmentBytes)
            throws IOException {
        UnifiedLog log = open(directory, segmentBytes);
        DataMaker maker = new DataMaker(7);
        Compression compression = Compression.of(codec).build();
        int perBatch = Math.max(1, batchBytes / (valueBytes + 20));
        long total = (mib << 20) / valueBytes;
        ByteBuffer buffer = ByteBuffer.allocate(2 << 20);
        long written = 0;
        while (written < total) {
            buffer.clear();
            MemoryRecordsBuilder batch = MemoryRecords.builder(buffer, RecordBatch.CURRENT_MAGIC_VALUE, compression,
                TimestampType.CREATE_TIME, 0L, RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID,
                RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, false, RecordBatch.NO_PARTITION_LEADER_EPOCH);
            for (int i = 0; i < perBatch; i++) {
                batch.append(FIRST_TIMESTAMP + written + i, maker.key(1_000_000), maker.value(valueBytes));
            }
            log.appendAsLeader(batch.build(), 0);
            written += perBatch;
        }
        log.updateHighWatermark(log.logEndOffset());
        log.flush(true);
        System.out.printf(Locale.ROOT, "%s: %d records, %d MB in %d segments%n", directory.getName(), written,
            log.size() / 1_000_000, log.numberOfSegments());
        log.close();
    }

    /** Partition directories of one record each. */
    private static void makeTiny(File logDir, int partitions) throws IOException {
        for (int i = 0; i < partitions; i++) {
            UnifiedLog log = open(new File(logDir, "tiny-" + i), "1073741824");
            DataMaker maker = new DataMaker(i);
            ByteBuffer buffer = ByteBuffer.allocate(4096);
            MemoryRecordsBuilder batch = MemoryRecords.builder(buffer, Compression.NONE, TimestampType.CREATE_TIME, 0L);
            batch.append(FIRST_TIMESTAMP + i, maker.key(1_000_000), maker.value(100));
            log.appendAsLeader(batch.build(), 0);
            log.close();
        }
        System.out.printf("%s: %d partitions of one record%n", logDir.getName(), partitions);
    }

    private static void produce(String server, String topic, String codec, int valueBytes, long records) {
        Properties config = new Properties();
        config.put("bootstrap.servers", server);
        config.put("compression.type", codec);
        config.put("batch.size", "65536");
        config.put("linger.ms", "20");
        config.put("buffer.memory", "67108864");
        ByteArraySerializer bytes = new ByteArraySerializer();
        DataMaker maker = new DataMaker(7);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
            for (long i = 0; i < records; i++) {
                producer.send(new ProducerRecord<>(topic, maker.key(1_000_000), maker.value(valueBytes)));
            }
            producer.flush();
        }
        System.out.printf("%s: %d records%n", topic, records);
    }

    static UnifiedLog open(File directory, String segmentBytes) throws IOException {
        return open(directory, segmentBytes, true, recoveryPoint(directory), Map.of());
    }

    static UnifiedLog open(File directory, String segmentBytes, boolean clean, long recoveryPoint, Map<String, String> settings)
            throws IOException {
        Properties config = new Properties();
        config.putAll(settings);
        config.put(TopicConfig.RETENTION_MS_CONFIG, "-1");
        config.put(TopicConfig.SEGMENT_BYTES_CONFIG, segmentBytes);
        config.put(TopicConfig.SEGMENT_MS_CONFIG, Long.toString(Long.MAX_VALUE));
        config.put(TopicConfig.MAX_MESSAGE_BYTES_CONFIG, "16777216");
        return UnifiedLog.create(directory, new LogConfig(config), 0L, recoveryPoint, SCHEDULER, STATS, Time.SYSTEM,
            15 * 60 * 1000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(10), clean,
            Optional.empty());
    }

    /** A clean shutdown leaves everything flushed: any offset will do that is not below the end of an existing log. */
    private static long recoveryPoint(File directory) {
        return directory.isDirectory() ? Long.MAX_VALUE : 0L;
    }

    // ---- measured rounds ----

    interface Work {
        void run() throws Exception;
    }

    private static void serve() throws IOException {
        System.out.println("ready");
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            try {
                System.out.println(round(line.split(" ")));
            } catch (Exception failure) {
                System.out.println("error " + failure);
            }
            System.out.flush();
        }
        for (UnifiedLog log : OPEN.values()) {
            log.close();
        }
    }

    private static String round(String[] request) throws Exception {
        File directory = new File(request[1]);
        return switch (request[0]) {
            case "headers" -> timed(() -> repeat(request, () -> headers(directory)));
            case "crc" -> timed(() -> repeat(request, () -> batches(directory, false)));
            case "records" -> timed(() -> repeat(request, () -> batches(directory, true)));
            case "open" -> opened(directory);
            case "lookup" -> lookups(directory, request, true);
            case "time" -> lookups(directory, request, false);
            case "append" -> Writing.append(directory, request);
            case "follow" -> Writing.follow(directory, request);
            case "durable" -> Writing.durable(directory, request);
            case "recover" -> Writing.recover(directory, request);
            case "compact" -> Upkeep.compact(directory);
            case "open-all" -> Upkeep.openAll(directory);
            case "create" -> Upkeep.create(directory, request[2], Integer.parseInt(request[3]));
            default -> throw new IllegalArgumentException(request[0]);
        };
    }

    private static void repeat(String[] request, Work work) throws Exception {
        for (int left = Integer.parseInt(request[2]); left > 0; left--) {
            work.run();
        }
    }

    private static String timed(Work work) throws Exception {
        count = 0;
        sum = 0;
        double[] seconds = clocked(work);
        return answer(seconds, count, sum);
    }

    /** CPU seconds of this thread, and wall seconds. */
    static double[] clocked(Work work) throws Exception {
        long wall = System.nanoTime();
        long cpu = THREADS.getCurrentThreadCpuTime();
        work.run();
        double cpuSeconds = (THREADS.getCurrentThreadCpuTime() - cpu) / 1e9;
        return new double[] {cpuSeconds, (System.nanoTime() - wall) / 1e9};
    }

    static String answer(double[] seconds, long count, long sum) {
        return String.format(Locale.ROOT, "cpu=%.9f wall=%.9f count=%d sum=%s", seconds[0], seconds[1], count,
            Long.toUnsignedString(sum));
    }

    /** Closing is not measured, but must be clean: it trims the indexes that opening stretched. */
    private static String opened(File directory) throws Exception {
        UnifiedLog[] log = new UnifiedLog[1];
        String line = timed(() -> {
            log[0] = open(directory, "1048576");
            count++;
            sum += log[0].logEndOffset();
        });
        log[0].close();
        return line;
    }

    private static File[] segments(File directory) {
        File[] files = directory.listFiles((dir, name) -> name.endsWith(".log"));
        Arrays.sort(files);
        return files;
    }

    private static void headers(File directory) throws IOException {
        for (File segment : segments(directory)) {
            try (FileRecords file = FileRecords.open(segment, false)) {
                for (FileLogInputStream.FileChannelRecordBatch batch : file.batches()) {
                    count++;
                    sum += batch.lastOffset() + batch.sizeInBytes();
                }
            }
        }
    }

    /** Reads 4 MiB at a time, checks every CRC, and where asked touches key and value of every record. */
    private static void batches(File directory, boolean records) throws IOException {
        for (File segment : segments(directory)) {
            try (FileRecords file = FileRecords.open(segment, false)) {
                int end = file.sizeInBytes();
                int position = 0;
                while (position < end) {
                    READ.clear();
                    READ.limit(Math.min(READ.capacity(), end - position));
                    file.readInto(READ, position);
                    int used = 0;
                    for (MutableRecordBatch batch : MemoryRecords.readableRecords(READ).batches()) {
                        used += batch.sizeInBytes();
                        batch.ensureValid();
                        if (records) {
                            touch(batch);
                        } else {
                            count++;
                            sum += batch.lastOffset() + batch.sizeInBytes();
                        }
                    }
                    if (used == 0) {
                        throw new IllegalStateException("no whole batch at " + position);
                    }
                    position += used;
                }
            }
        }
    }

    private static void touch(MutableRecordBatch batch) {
        try (CloseableIterator<Record> records = batch.streamingIterator(BUFFERS)) {
            while (records.hasNext()) {
                Record record = records.next();
                ByteBuffer key = record.key();
                ByteBuffer value = record.value();
                count++;
                sum += record.offset() + key.remaining() + key.get(key.position()) + value.remaining()
                    + value.get(value.position()) + value.get(value.limit() - 1);
            }
        }
    }

    private static String lookups(File directory, String[] request, boolean byOffset) throws Exception {
        UnifiedLog log = OPEN.get(request[1]);
        if (log == null) {
            log = open(directory, "1073741824");
            OPEN.put(request[1], log);
        }
        UnifiedLog opened = log;
        long end = log.logEndOffset();
        long[] nanos = new long[Integer.parseInt(request[2])];
        long seed = Long.parseLong(request[3]);
        String line = timed(() -> {
            DataMaker draws = new DataMaker(seed);
            for (int i = 0; i < nanos.length; i++) {
                long offset = (draws.next() >>> 1) % end;
                long start = System.nanoTime();
                sum += byOffset ? valueAt(opened, offset) : offsetAt(opened, FIRST_TIMESTAMP + offset);
                nanos[i] = System.nanoTime() - start;
                count++;
            }
        });
        return line + percentiles(nanos);
    }

    /** The middle and the hundredth part of the times, in microseconds. */
    static String percentiles(long[] nanos) {
        Arrays.sort(nanos);
        return String.format(Locale.ROOT, " p50=%.3f p99=%.3f", nanos[nanos.length / 2] / 1e3,
            nanos[(int) (nanos.length * 0.99)] / 1e3);
    }

    private static long valueAt(UnifiedLog log, long offset) throws IOException {
        FetchDataInfo info = log.read(offset, 1, FetchIsolation.LOG_END, true);
        FileRecords file = (FileRecords) info.records;
        READ.clear();
        READ.limit(file.sizeInBytes());
        file.readInto(READ, 0);
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(READ).batches()) {
            batch.ensureValid();
            try (CloseableIterator<Record> records = batch.streamingIterator(BUFFERS)) {
                while (records.hasNext()) {
                    Record record = records.next();
                    if (record.offset() == offset) {
                        ByteBuffer value = record.value();
                        return offset + value.remaining() + value.get(value.limit() - 3);
                    }
                }
            }
        }
        throw new IllegalStateException("no record at offset " + offset);
    }

    private static long offsetAt(UnifiedLog log, long timestamp) {
        OffsetResultHolder found = log.fetchOffsetByTimestamp(timestamp, Optional.empty());
        return found.timestampAndOffsetOpt().orElseThrow().offset;
    }
}
