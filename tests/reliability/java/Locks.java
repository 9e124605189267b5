import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;

/** Takes and gives back locks as a broker does (Kafka's {@code FileLock}): "lock PATH", "unlock PATH", one answer a line. */
public class Locks {
    public static void main(String[] arguments) throws Exception {
        Map<String, FileChannel> channels = new HashMap<>();
        Map<String, FileLock> locks = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String path = line.substring(line.indexOf(' ') + 1);
            if (line.startsWith("lock ")) {
                FileChannel channel = FileChannel.open(Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE);
                FileLock lock = channel.tryLock();
                if (lock == null) {
                    channel.close();
                    System.out.println("refused");
                } else {
                    channels.put(path, channel);
                    locks.put(path, lock);
                    System.out.println("held");
                }
            } else {
                locks.remove(path).release();
                channels.remove(path).close();
                System.out.println("free");
            }
        }
    }
}
