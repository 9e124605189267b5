import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.File;

/** One partition that is open, with the request that opened it. */
final class OpenLog {
    JsonNode opened;
    File directory;
    LogConfig config;
    UnifiedLog log;
    Tasks tasks;
    LogDirFailureChannel failures;
}
