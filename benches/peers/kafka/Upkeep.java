import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import kafka.log.LogManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerConfig;
import org.apache.kafka.storage.internals.log.LogCleaner;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rounds of whole log dirs, through a broker's LogManager, and of compaction, through its Cleaner: {@code create LOG_DIR SOURCE
 * PARTITIONS}, {@code open-all LOG_DIR}, {@code compact DIRECTORY}; and the data of the latter.
 */
final class Upkeep {
    private static final String SEGMENT_BYTES = "67108864";
    private static final int MAP_BYTES = 128 << 20;
    private static final int BATCH_RECORDS = 16;
    /** As of a broker: two threads open the logs of a folder, and close them. */
    private static final int THREADS = 2;

    private Upkeep() {
    }

    // ---- compaction ----

    /**
     * A log in which every key comes twice: in the second half those of the first half, so that batches stay or go as a whole, or at
     * shuffled places, so that most batches are written anew.
     */
    static void makeCompactable(File directory, String codec, boolean mixed, long mib) throws IOException {
        UnifiedLog log = compactable(directory, true);
        DataMaker maker = new DataMaker(9);
        Compression compression = Compression.of(codec).build();
        int half = (int) ((mib << 20) / 1000 / 2 / BATCH_RECORDS * BATCH_RECORDS);
        int[] keys = new int[2 * half];
        for (int i = 0; i < half; i++) {
            keys[i] = i;
            keys[half + i] = (int) (i * 7919L % half);
        }
        for (int i = keys.length - 1; mixed && i > 0; i--) {
            int other = maker.next(i + 1);
            int key = keys[i];
            keys[i] = keys[other];
            keys[other] = key;
        }
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        for (int i = 0; i < keys.length; i += BATCH_RECORDS) {
            MemoryRecordsBuilder batch = Writing.builder(buffer, compression);
            for (int j = i; j < i + BATCH_RECORDS; j++) {
                batch.append(KafkaPeer.FIRST_TIMESTAMP + j, String.format("user-%08d", keys[j]).getBytes(), maker.value(1000));
            }
            log.appendAsLeader(batch.build(), 0);
        }
        log.roll();
        log.updateHighWatermark(log.logEndOffset());
        log.flush(true);
        System.out.printf("%s: %d records, %d MB in %d segments%n", directory.getName(), keys.length, log.size() / 1_000_000,
            log.numberOfSegments());
        log.close();
    }

    private static UnifiedLog compactable(File directory, boolean isNew) throws IOException {
        Map<String, String> settings = Map.of(TopicConfig.CLEANUP_POLICY_CONFIG, TopicConfig.CLEANUP_POLICY_COMPACT);
        return KafkaPeer.open(directory, SEGMENT_BYTES, true, isNew ? 0 : Long.MAX_VALUE, settings);
    }

    /** One pass of the cleaner, with the buffers of a broker. Opening and closing are not measured. */
    static String compact(File directory) throws Exception {
        UnifiedLog log = compactable(directory, false);
        log.updateHighWatermark(log.logEndOffset());
        Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "bench-cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(MAP_BYTES), 256 << 10, 16 << 20, 0.9, unlimited, Time.SYSTEM, partition -> { });
        double[] seconds = KafkaPeer.clocked(() -> cleaner.clean(new LogToClean(log, 0, log.activeSegment().baseOffset(), false)));
        String line = KafkaPeer.answer(seconds, log.logEndOffset(), log.size());
        log.close();
        return line;
    }

    // ---- log dirs ----

    private static LogManager manager(File logDir) {
        Properties config = new Properties();
        config.put(TopicConfig.RETENTION_MS_CONFIG, "-1");
        LogConfig logConfig = new LogConfig(config);
        return new LogManager(seq(List.of(logDir)), seq(List.of()), resource -> new Properties(), logConfig, new CleanerConfig(false), THREADS,
            Long.MAX_VALUE, Long.MAX_VALUE, Long.MAX_VALUE, Long.MAX_VALUE, 15 * 60 * 1000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, KafkaPeer.SCHEDULER, KafkaPeer.STATS,
            new LogDirFailureChannel(10), Time.SYSTEM, false, 0,
            (cleaner, dirs, logs, failures, time) -> new LogCleaner(cleaner, dirs, logs, failures, time));
    }

    private static <T> Seq<T> seq(List<T> list) {
        return CollectionConverters.asScala(list).toSeq();
    }

    /** What a starting broker does before it serves: all logs are open then. Closing is not measured, but must be clean. */
    static String openAll(File logDir) throws Exception {
        LogManager[] manager = new LogManager[1];
        double[] seconds = KafkaPeer.clocked(() -> {
            manager[0] = manager(logDir);
            manager[0].loadLogs(manager[0].currentDefaultConfig(), Map$.MODULE$.empty(), log -> false);
        });
        long count = 0;
        long sum = 0;
        for (UnifiedLog log : CollectionConverters.asJava(manager[0].allLogs())) {
            count++;
            sum += log.logEndOffset();
        }
        manager[0].shutdown(-1);
        return KafkaPeer.answer(seconds, count, sum);
    }

    /** A new log dir of so many partitions, one record appended to each, closed cleanly. */
    static String create(File logDir, String source, int partitions) throws Exception {
        Utils.delete(logDir);
        logDir.mkdirs();
        byte[][][] records = Writing.records(source);
        ByteBuffer buffer = ByteBuffer.allocate(64 << 10);
        double[] seconds = KafkaPeer.clocked(() -> {
            LogManager manager = manager(logDir);
            for (int i = 0; i < partitions; i++) {
                UnifiedLog log = manager.getOrCreateLog(new TopicPartition("many", i), true, false, Optional.empty(), scala.Option.empty());
                MemoryRecordsBuilder batch = Writing.builder(buffer, Compression.NONE);
                int next = i % records[0].length;
                batch.append(KafkaPeer.FIRST_TIMESTAMP + i, records[0][next], records[1][next]);
                log.appendAsLeader(batch.build(), 0);
            }
            manager.shutdown(-1);
        });
        long sum = 0;
        for (int i = 0; i < partitions; i++) {
            sum += Writing.checksum(new File(logDir, "many-" + i));
        }
        return KafkaPeer.answer(seconds, partitions, sum);
    }
}
