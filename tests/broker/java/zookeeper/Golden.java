// What a ZooKeeper server has of a cluster of Kafka's: `serve DIR` runs a server of the version on the class path until it is killed, `fill HOST:PORT JSON`
// writes what brokers write, and what its client then reads into a file; `consumers HOST:PORT JSON` does so beside real brokers, with old consumers.

import java.io.File;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.server.NIOServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

public class Golden {
    static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;
    static ZooKeeper client;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("serve")) {
            serve(new File(arguments[1]));
        }
        client = connected(arguments[1]);
        if (arguments[0].equals("fill")) {
            clusterOfKafka();
            oldConsumers();
            if (arguments.length > 3) {
                make("/container", "c", CreateMode.valueOf(arguments[3]));
            }
            // The server takes a snapshot when it sees this; whoever started both looks whether there is one.
            make("/snapshot", null);
            Thread.sleep(1000);
            client.delete("/snapshot", -1);
            behindTheSnapshot();
        } else {
            oldConsumers();
        }
        dump(Path.of(arguments[2]));
        // As if it were killed: the session stays open, and with them brokers and consumers are there.
        Runtime.getRuntime().halt(0);
    }

    static ZooKeeper connected(String address) throws Exception {
        ZooKeeper made = new ZooKeeper(address, 30_000, event -> { });
        while (made.getState() != ZooKeeper.States.CONNECTED) {
            Thread.sleep(20);
        }
        return made;
    }

    static void make(String path, String data) throws Exception {
        make(path, data, CreateMode.PERSISTENT);
    }

    /** Makes a node, and those above it without data. */
    static void make(String path, String data, CreateMode mode) throws Exception {
        int slash = path.lastIndexOf('/');
        if (slash > 0 && client.exists(path.substring(0, slash), false) == null) {
            make(path.substring(0, slash), null);
        }
        client.create(path, data == null ? null : data.getBytes(StandardCharsets.UTF_8), OPEN, mode);
    }

    static void change(String path, String data) throws Exception {
        client.setData(path, data.getBytes(StandardCharsets.UTF_8), -1);
    }

    static void serve(File folder) throws Exception {
        ZooKeeperServer server = new ZooKeeperServer(folder, folder, 2000);
        NIOServerCnxnFactory factory = new NIOServerCnxnFactory();
        factory.configure(new InetSocketAddress("127.0.0.1", 0), 10);
        factory.startup(server);
        System.out.println("\nserves at " + factory.getLocalPort());
        while (server.getZKDatabase().getNode("/snapshot") == null) {
            Thread.sleep(20);
        }
        server.takeSnapshot();
        Thread.sleep(Long.MAX_VALUE);
    }

    static void clusterOfKafka() throws Exception {
        make("/cluster/id", "{\"version\":\"1\",\"id\":\"b2Zmc2V0bG9nLXRlc3RzLWM\"}");
        for (int id = 0; id < 3; id++) {
            make("/brokers/ids/" + id, "{\"features\":{},\"listener_security_protocol_map\":{\"PLAINTEXT\":\"PLAINTEXT\"},\"endpoints\":[\"PLAINTEXT://kafka-"
                + id + ":9092\"],\"jmx_port\":-1,\"port\":9092,\"host\":\"kafka-" + id + "\",\"version\":5,\"timestamp\":\"1700000000000\"}", CreateMode.EPHEMERAL);
        }
        make("/brokers/topics/first", "{\"partitions\":{\"0\":[2,0],\"1\":[0,1],\"2\":[1,2]},\"topic_id\":\"AAECAwQFBgcICQoLDA0ODw\",\"adding_replicas\":{},\"removing_replicas\":{},\"version\":3}");
        make("/brokers/topics/first/partitions/0/state", "{\"controller_epoch\":1,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,0]}");
        make("/brokers/topics/first/partitions/1/state", "{\"controller_epoch\":1,\"leader\":0,\"version\":1,\"leader_epoch\":0,\"isr\":[0,1]}");
        make("/brokers/topics/first/partitions/2/state", "{\"controller_epoch\":1,\"leader\":1,\"version\":1,\"leader_epoch\":0,\"isr\":[1,2]}");
        make("/config/topics/first", "{\"version\":1,\"config\":{\"retention.ms\":\"86400000\",\"setting.of.a.plugin\":\"never-printed-7\"}}");
        make("/config/brokers/<default>", "{\"version\":1,\"config\":{\"log.cleaner.threads\":\"2\"}}");
        make("/config/brokers/1", "{\"version\":1,\"config\":{\"ssl.key.password\":\"encrypted:never-printed-7,initializationVector:eA==\"}}");
        make("/config/users/alice", "{\"version\":1,\"config\":{\"SCRAM-SHA-256\":\"salt=never-printed-7,stored_key=never-printed-7,server_key=never-printed-7,iterations=4096\",\"producer_byte_rate\":\"1024\"}}");
        make("/config/users/a%27b%20%24x/clients/<default>", "{\"version\":1,\"config\":{\"consumer_byte_rate\":\"2048.5\"}}");
        make("/config/clients/loader", "{\"version\":1,\"config\":{\"request_percentage\":\"50\"}}");
        make("/config/ips/10.0.0.1", "{\"version\":1,\"config\":{\"connection_creation_rate\":\"5\"}}");
        make("/kafka-acl/Topic/first", "{\"version\":1,\"acls\":[{\"principal\":\"User:alice\",\"permissionType\":\"Allow\",\"operation\":\"Read\",\"host\":\"*\"},{\"principal\":\"User:eve\",\"permissionType\":\"Deny\",\"operation\":\"All\",\"host\":\"10.0.0.2\"}]}");
        make("/kafka-acl/Cluster/kafka-cluster", "{\"version\":1,\"acls\":[{\"principal\":\"User:alice\",\"permissionType\":\"Allow\",\"operation\":\"ClusterAction\",\"host\":\"*\"}]}");
        make("/kafka-acl-extended/prefixed/Group/team-", "{\"version\":1,\"acls\":[{\"principal\":\"User:bob\",\"permissionType\":\"Allow\",\"operation\":\"Describe\",\"host\":\"*\"}]}");
        make("/controller_epoch", "1");
        make("/brokers/topics/gone", "{\"version\":3,\"partitions\":{},\"topic_id\":\"AQIDBAUGBwgJCgsMDQ4PEA\",\"adding_replicas\":{},\"removing_replicas\":{}}");
        make("/seq-", "x", CreateMode.PERSISTENT_SEQUENTIAL);
    }

    /** As a consumer of Kafka 0.8 to 1.1 leaves it. */
    static void oldConsumers() throws Exception {
        make("/consumers/billing/offsets/first/0", "17");
        make("/consumers/billing/offsets/first/1", "4");
        make("/consumers/billing/owners/first/0", "billing_host-1700000000000-abcdef01-0", CreateMode.EPHEMERAL);
        make("/consumers/billing/ids/billing_host-1700000000000-abcdef01", "{\"version\":1,\"subscription\":{\"first\":1},\"pattern\":\"white_list\",\"timestamp\":\"1700000000000\"}", CreateMode.EPHEMERAL);
        make("/consumers/left/offsets/first/2", "3");
        make("/consumers/empty/offsets", null);
        change("/consumers/billing/offsets/first/1", "5");
    }

    /** What only the log has. */
    static void behindTheSnapshot() throws Exception {
        change("/brokers/topics/first/partitions/0/state", "{\"controller_epoch\":2,\"leader\":2,\"version\":1,\"leader_epoch\":0,\"isr\":[2,0]}");
        change("/brokers/topics/first/partitions/1/state", "{\"controller_epoch\":2,\"leader\":1,\"version\":1,\"leader_epoch\":1,\"isr\":[1]}");
        change("/controller_epoch", "2");
        change("/consumers/billing/offsets/first/0", "20");
        client.multi(Arrays.asList(Op.check("/brokers/topics", -1), Op.create("/config/topics/second", "{\"version\":1,\"config\":{}}".getBytes(StandardCharsets.UTF_8), OPEN, CreateMode.PERSISTENT), Op.delete("/brokers/topics/gone", -1)));
        try {
            client.multi(Arrays.asList(Op.delete("/brokers/topics/first", -1), Op.check("/no/such/node", 1)));
            throw new IllegalStateException("it has to fail");
        } catch (KeeperException expected) {
            // A transaction that failed stands in the log all the same.
        }
        make("/brokers/topics/second", "{\"version\":3,\"partitions\":{\"0\":[1,0]},\"topic_id\":\"AgMEBQYHCAkKCwwNDg8QEQ\",\"adding_replicas\":{},\"removing_replicas\":{}}");
        make("/brokers/topics/second/partitions/0/state", "{\"controller_epoch\":2,\"leader\":-1,\"version\":1,\"leader_epoch\":3,\"isr\":[0]}");
    }

    static void dump(Path told) throws Exception {
        TreeMap<String, String> all = new TreeMap<>();
        collect("/", all);
        Files.writeString(told, "[\n" + String.join(",\n", all.values()) + "\n]\n");
    }

    static void collect(String path, TreeMap<String, String> all) throws Exception {
        Stat stat = new Stat();
        byte[] data = client.getData(path, false, stat);
        if (!path.equals("/")) {
            String text = data == null ? "null" : quoted(new String(data, StandardCharsets.UTF_8));
            all.put(path, "{\"path\": " + quoted(path) + ", \"data\": " + text + ", \"version\": " + stat.getVersion() + ", \"mtime\": " + stat.getMtime()
                + ", \"ephemeral\": " + (stat.getEphemeralOwner() != 0) + "}");
        }
        for (String child : client.getChildren(path, false)) {
            if (!path.equals("/") || !child.equals("zookeeper")) {
                collect(path.equals("/") ? "/" + child : path + "/" + child, all);
            }
        }
    }

    static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", "\\n") + "\"";
    }
}
