package segmentlog.oracle;

import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** `admin ACTION`: questions and orders to a broker by RocketMQ's own admin client. */
final class AdminCommand {
    /** ResponseCode.NO_MESSAGE, which 4.x and 5.x have in different packages. */
    private static final int NO_MESSAGE = 208;

    private AdminCommand() {
    }

    static void run(String action, Args args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(15_000);
        admin.setNamesrvAddr(args.need("namesrv"));
        BrokerMain.settle(admin);
        admin.setInstanceName("oracle-admin-" + ProcessHandle.current().pid());
        admin.start();
        try {
            act(action, admin, args);
        } finally {
            admin.shutdown();
        }
    }

    private static void act(String action, DefaultMQAdminExt admin, Args args) throws Exception {
        switch (action) {
            case "topic":
                admin.examineTopicStats(args.need("topic")).getOffsetTable().forEach((queue, offsets) ->
                    Main.line(Json.map("type", "queue", "topic", queue.getTopic(), "broker", queue.getBrokerName(),
                        "queueId", queue.getQueueId(), "minOffset", offsets.getMinOffset(),
                        "maxOffset", offsets.getMaxOffset(), "lastUpdateTimestamp", offsets.getLastUpdateTimestamp())));
                break;
            case "progress":
                admin.examineConsumeStats(args.need("group"), args.get("topic", null)).getOffsetTable().forEach((queue, at) ->
                    Main.line(Json.map("type", "progress", "topic", queue.getTopic(), "queueId", queue.getQueueId(),
                        "brokerOffset", at.getBrokerOffset(), "consumerOffset", at.getConsumerOffset(),
                        "lag", at.getBrokerOffset() - at.getConsumerOffset(), "lastTimestamp", at.getLastTimestamp())));
                break;
            case "key":
                for (MessageExt message : admin.queryMessage(args.need("topic"), args.need("key"), args.getInt("max", 64),
                    args.getLong("begin", 0), args.getLong("end", Long.MAX_VALUE)).getMessageList()) {
                    Main.line(ConsumeCommand.json(message));
                }
                break;
            case "id":
                // the id with the offset, or the client's unique key
                Main.line(ConsumeCommand.json(admin.viewMessage(args.need("topic"), args.need("id"))));
                break;
            case "keys":
                answers(args, key -> admin.queryMessage(args.need("topic"), key, args.getInt("max", 64), 0, Long.MAX_VALUE)
                    .getMessageList());
                break;
            case "ids":
                answers(args, id -> Collections.singletonList(admin.viewMessage(args.need("topic"), id)));
                break;
            case "time":
                Main.line(Json.map("type", "offset", "offset", admin.searchOffset(
                    new MessageQueue(args.need("topic"), args.get("broker-name", "broker-a"), args.getInt("queue", 0)),
                    Long.parseLong(args.need("time")))));
                break;
            case "create":
                TopicConfig topic = new TopicConfig(args.need("topic"));
                topic.setReadQueueNums(args.getInt("queues", 4));
                topic.setWriteQueueNums(args.getInt("queues", 4));
                admin.createAndUpdateTopicConfig(args.need("broker"), topic);
                Main.line(Json.map("type", "created", "topic", topic.getTopicName()));
                break;
            case "set":
                Properties properties = new Properties();
                properties.setProperty(args.need("name"), args.need("value"));
                admin.updateBrokerConfig(args.need("broker"), properties);
                Main.line(Json.map("type", "set", "name", args.need("name"),
                    "value", admin.getBrokerConfig(args.need("broker")).getProperty(args.need("name"))));
                break;
            default:
                throw new IllegalArgumentException("admin topic|progress|key|keys|id|ids|time|create|set");
        }
    }

    /** One question of an admin client. */
    private interface Question {
        List<MessageExt> ask(String text) throws Exception;
    }

    /** --file FILE (a key or id per line): one line per question, asked one after the other, and the rate of all. */
    private static void answers(Args args, Question question) throws Exception {
        List<String> texts = Files.readAllLines(Paths.get(args.need("file")));
        long begin = System.nanoTime();
        List<List<Object>> found = new ArrayList<>();
        for (String text : texts) {
            List<Object> offsets = new ArrayList<>();
            try {
                question.ask(text).forEach(message -> offsets.add(message.getCommitLogOffset()));
            } catch (MQClientException nothing) {
                if (nothing.getResponseCode() != NO_MESSAGE) {
                    throw nothing;
                }
            }
            found.add(offsets);
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        for (int row = 0; row < texts.size(); row++) {
            Main.line(Json.map("type", "answer", "asked", texts.get(row), "phyOffsets", found.get(row)));
        }
        Main.line(Json.map("type", "summary", "count", texts.size(), "rate", texts.size() / seconds));
    }
}
