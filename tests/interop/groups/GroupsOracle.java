import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What RocketMQ's own classes say of consumer groups: answers are the lines that begin with "> ", the rest are its logs.
 *
 * offsets FILE                        what a broker loads of FILE: "topic@group queue offset", sorted
 * commit FILE GROUP TOPIC QUEUE N     loads FILE, commits, and persists it as a broker does
 * allocate FILE                       for each line "consumers,… TAB topic:broker:queue,…": "strategy consumer queues,…"
 */
public final class GroupsOracle {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "offsets":
                print(load(args[1]));
                break;
            case "commit":
                ConsumerOffsetManager manager = load(args[1]);
                // What commitOffset does; that of 5.x asks a running broker for its settings as well.
                manager.getOffsetTable()
                    .computeIfAbsent(args[3] + "@" + args[2], key -> new ConcurrentHashMap<>())
                    .put(Integer.parseInt(args[4]), Long.parseLong(args[5]));
                manager.persist();
                print(load(args[1]));
                break;
            case "allocate":
                for (String line : Files.readAllLines(Path.of(args[1]))) {
                    allocate(line.split("\t"));
                }
                break;
            default:
                throw new IllegalArgumentException(args[0]);
        }
        System.exit(0); // RocketMQ's loggers keep threads
    }

    private static ConsumerOffsetManager load(String file) {
        ConsumerOffsetManager manager = new ConsumerOffsetManager() {
            @Override
            public String configFilePath() {
                return file;
            }
        };
        if (!manager.load()) {
            throw new IllegalStateException("RocketMQ does not load " + file);
        }
        return manager;
    }

    private static void print(ConsumerOffsetManager manager) {
        for (Map.Entry<String, ConcurrentMap<Integer, Long>> entry : new TreeMap<>(manager.getOffsetTable()).entrySet()) {
            for (Map.Entry<Integer, Long> queue : new TreeMap<>(entry.getValue()).entrySet()) {
                System.out.println("> " + entry.getKey() + " " + queue.getKey() + " " + queue.getValue());
            }
        }
    }

    private static void allocate(String[] columns) {
        List<String> consumers = new ArrayList<>(List.of(columns[0].split(",")));
        List<MessageQueue> queues = new ArrayList<>();
        for (String text : columns[1].split(",")) {
            String[] parts = text.split(":");
            queues.add(new MessageQueue(parts[0], parts[1], Integer.parseInt(parts[2])));
        }
        // As RebalanceImpl does before it asks a strategy.
        Collections.sort(queues);
        Collections.sort(consumers);
        List<AllocateMessageQueueStrategy> strategies = List.of(
            new AllocateMessageQueueAveragely(),
            new AllocateMessageQueueAveragelyByCircle(),
            new AllocateMessageQueueConsistentHash());
        for (AllocateMessageQueueStrategy strategy : strategies) {
            for (String consumer : consumers) {
                StringBuilder line = new StringBuilder("> " + strategy.getName() + " " + consumer + " ");
                String comma = "";
                for (MessageQueue queue : strategy.allocate("group", consumer, queues, consumers)) {
                    line.append(comma).append(queue.getTopic() + ":" + queue.getBrokerName() + ":" + queue.getQueueId());
                    comma = ",";
                }
                System.out.println(line);
            }
        }
    }
}
