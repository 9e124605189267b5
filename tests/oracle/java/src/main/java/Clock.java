import org.apache.kafka.common.utils.Time;

import java.util.function.Supplier;

/** A clock that moves only when told to. */
final class Clock implements Time {
    long ms = 1_700_000_000_000L;

    @Override
    public long milliseconds() {
        return ms;
    }

    @Override
    public long nanoseconds() {
        return ms * 1_000_000L;
    }

    @Override
    public void sleep(long millis) {
        ms += millis;
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadline) {
        throw new UnsupportedOperationException();
    }
}
