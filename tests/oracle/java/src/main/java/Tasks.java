import org.apache.kafka.server.util.Scheduler;

import java.util.Comparator;
import java.util.PriorityQueue;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/** Background work of one log: queued, and run on the only thread between requests, in order of due time, then of arrival. */
final class Tasks implements Scheduler {
    private final Clock clock;
    private final PriorityQueue<Task> queue =
        new PriorityQueue<>(Comparator.<Task>comparingLong(task -> task.due).thenComparingLong(task -> task.serial));
    private long serial;

    Tasks(Clock clock) {
        this.clock = clock;
    }

    @Override
    public void startup() {
    }

    @Override
    public void shutdown() {
    }

    @Override
    public void resizeThreadPool(int size) {
    }

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable body, long delay, long period) {
        Task task = new Task(body, clock.ms + Math.max(delay, 0), period, serial++);
        queue.add(task);
        return task;
    }

    /** Runs what is due by the clock. */
    void runDue() {
        while (!queue.isEmpty() && queue.peek().due <= clock.ms) {
            Task task = queue.poll();
            if (task.cancelled) {
                continue;
            }
            task.body.run();
            if (task.period > 0) {
                task.due += task.period;
                queue.add(task);
            }
        }
    }

    private static final class Task implements ScheduledFuture<Object> {
        final Runnable body;
        final long period;
        final long serial;
        long due;
        boolean cancelled;

        Task(Runnable body, long due, long period, long serial) {
            this.body = body;
            this.due = due;
            this.period = period;
            this.serial = serial;
        }

        @Override
        public long getDelay(TimeUnit unit) {
            return 0;
        }

        @Override
        public int compareTo(Delayed other) {
            return 0;
        }

        @Override
        public boolean cancel(boolean interrupt) {
            cancelled = true;
            return true;
        }

        @Override
        public boolean isCancelled() {
            return cancelled;
        }

        @Override
        public boolean isDone() {
            return false;
        }

        @Override
        public Object get() {
            return null;
        }

        @Override
        public Object get(long timeout, TimeUnit unit) {
            return null;
        }
    }
}
